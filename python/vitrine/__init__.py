"""vitrine: run a language model on a CPU or an NVIDIA GPU, and see how it ran.

    import vitrine

    with vitrine.LLM("smollm2-135m", device="cpu") as llm:
        r = llm.generate("The capital of France is", max_tokens=16)
        print(r.text, r.finish_reason, r.story["request"])

A model is a path (.gguf or a Hugging Face folder), a name from `vitrine list`, or dummy:NAME. `python -m vitrine` is the
program of the same version. docs/python.md has the whole of it.
"""
from ._library import BusyError, DeviceError, Error, ModelError, UnsupportedError, __version__
from ._llm import LLM
from ._request import Sampling
from ._result import Completion, Result, Score
from ._server import Server, serve
from ._story import Story
from ._stream import AsyncStream, Stream

__all__ = ["LLM", "AsyncStream", "BusyError", "Completion", "DeviceError", "Error", "ModelError", "Result", "Sampling", "Score",
           "Server", "Story", "Stream", "UnsupportedError", "__version__", "serve"]
