"""A model on a device, and the requests that it runs."""
from __future__ import annotations

import ctypes
import json
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, Optional, Union, overload

from . import _abi
from ._inbox import Inbox
from ._library import call, lib, take_text
from ._request import Prompt, Prompts, Request, Sampling, flag, integer, integers
from ._result import Result, Score
from ._story import Story
from ._stream import AsyncStream, Stream, next_news

if TYPE_CHECKING:
    from typing_extensions import Unpack

Messages = Sequence[Mapping[str, Any]]


SPOKEN = ("json", "quiet")  # options of the program, which the library, being silent, would ignore


def option_text(value: Any) -> str:
    """An option's value as one would type it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


class Opening:
    """Opens a model and makes its engine on a thread of its own, so that Ctrl-C is seen meanwhile."""

    def __init__(self, options: dict[str, str], progress: Optional[Callable[[str, float], None]]) -> None:
        self.options, self.model, self.engine = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        self.error: Optional[BaseException] = None
        self.stopped = False
        self.progress = progress
        self.hook = _abi.vt_progress(self.on_progress)
        call("vt_options_new", ctypes.byref(self.options))
        try:
            for key, value in options.items():
                call("vt_options_set", self.options, key.encode(), value.encode())
            call("vt_options_set_progress", self.options, self.hook, None)
        except BaseException:
            self.free()
            raise

    def on_progress(self, _: Any, info: Any) -> bool:
        if self.progress and not self.stopped:
            try:
                self.progress(info.contents.stage.decode(), info.contents.done / info.contents.total)
            except BaseException as e:
                self.error, self.stopped = e, True
        return not self.stopped

    def run(self) -> None:
        try:
            call("vt_model_open", self.options, ctypes.byref(self.model))
            call("vt_engine_new", self.model, self.options, ctypes.byref(self.engine))
            call("vt_engine_start", self.engine)
        except BaseException as e:
            self.error = self.error or e

    def wait(self) -> None:
        thread = threading.Thread(target=self.run, name="vitrine-open", daemon=True)
        thread.start()
        try:
            while thread.is_alive():
                thread.join(0.1)
        except BaseException as e:
            self.error, self.stopped = e, True
            thread.join()
        if self.error:
            self.free()
            raise self.error
        lib.vt_options_free(self.options)

    def free(self) -> None:
        lib.vt_engine_free(self.engine)
        lib.vt_model_free(self.model)
        lib.vt_options_free(self.options)


def free_handles(pid: int, engine: ctypes.c_void_p, model: ctypes.c_void_p) -> None:
    """In a forked process the engine's threads do not exist: nothing there can end them."""
    if os.getpid() == pid:
        lib.vt_engine_free(engine)
        lib.vt_model_free(model)


class LLM:
    """A model, loaded. Threads may share it: their requests run in one batch.

    `model` is a path, a name from `vitrine list`, or dummy:NAME. The other keywords are the long options of
    `vitrine run --help` under "Common options", with _ for -: device="cpu", threads=4, kv_memory="2G", max_context=4096.
    `progress` is called with a stage and its share done, 0 to 1, while the model loads.

    OSError: no such model, or a damaged one (ModelError). ValueError: an option is wrong. DeviceError, MemoryError.
    """

    def __init__(self, model: Union[str, "os.PathLike[str]", None] = None, *,
                 progress: Optional[Callable[[str, float], None]] = None, **options: Any) -> None:
        texts = {key.replace("_", "-"): option_text(value) for key, value in options.items() if value is not None}
        for key in SPOKEN:
            if key in texts:
                raise ValueError(f"option {key}: belongs to the program, and the library prints nothing")
        if model is not None:
            if not isinstance(model, (str, os.PathLike)) or not os.fspath(model):
                raise ValueError(f"model is {model!r}, expected a path or a name")
            texts["model"] = option_text(model)
        opening = Opening(texts, progress)
        opening.wait()
        self._engine, self._model, self._pid = opening.engine, opening.model, os.getpid()
        self._lock = threading.Condition()
        self._users = 0  # calls of the engine under way
        self._closed = False
        self._free = weakref.finalize(self, free_handles, self._pid, self._engine, self._model)
        self.name: str = lib.vt_model_name(self._model).decode()
        """The model's."""
        self.vocab_size: int = lib.vt_model_vocab_size(self._model)
        """Token ids are 0 .. vocab_size - 1."""
        self.max_context: int = lib.vt_model_max_context(self._model)
        """Tokens that the model was made for; option max_context may allow fewer."""

    # ---- life ----

    @contextmanager
    def use(self, handle: Optional[ctypes.c_void_p] = None) -> Iterator[ctypes.c_void_p]:
        """The engine, for one call that close() waits for. RuntimeError: closed, or in a forked process."""
        if os.getpid() != self._pid:
            raise RuntimeError(f"this LLM belongs to process {self._pid}, and a fork has none of its threads: open a model "
                               "after the fork")
        with self._lock:
            if self._closed:
                raise RuntimeError("this LLM is closed")
            self._users += 1
        try:
            yield self._engine if handle is None else handle
        finally:
            with self._lock:
                self._users -= 1
                self._lock.notify_all()

    def close(self) -> None:
        """Ends the requests that are open, and frees the model. Closing twice does nothing."""
        if os.getpid() == self._pid:
            with self._lock:
                self._closed = True
                while self._users > 0:
                    self._lock.wait()
        self._free()

    def __enter__(self) -> "LLM":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<vitrine.LLM {self.name}{', closed' if self._closed else ''}>"

    def abort(self, request: int) -> None:
        """Ends a request; nothing happens if it has ended or the LLM is closed."""
        try:
            with self.use() as engine:
                lib.vt_engine_abort(engine, request)
        except RuntimeError:
            pass

    # ---- text ----

    def tokenize(self, text: str, *, add_bos: bool = False, special: bool = False) -> list[int]:
        """Token ids of a text. `special`: spellings of special tokens such as <|im_end|> become these tokens."""
        return list(self._tokens(text, (_abi.VT_TOKENIZE_ADD_BOS if add_bos else 0)
                                 | (_abi.VT_TOKENIZE_SPECIAL if special else 0)))

    def detokenize(self, ids: Sequence[int]) -> str:
        """The text of token ids, special tokens included. Bytes that are no UTF-8 become U+FFFD."""
        array = integers("ids", ids)
        out, size = ctypes.c_void_p(), ctypes.c_size_t()
        with self.use(self._model) as model:
            call("vt_detokenize", model, array, len(array), ctypes.byref(out), ctypes.byref(size))
        return take_text(out, size)

    def _ids(self, function: str, data: bytes, flags: int) -> "ctypes.Array[ctypes.c_int32]":
        ids, n = ctypes.POINTER(ctypes.c_int32)(), ctypes.c_size_t()
        with self.use(self._model) as model:
            call(function, model, data, len(data), flags, ctypes.byref(ids), ctypes.byref(n))
        try:
            return (ctypes.c_int32 * n.value)(*ids[: n.value])
        finally:
            lib.vt_free(ids)

    def _tokens(self, text: Any, flags: int) -> "ctypes.Array[ctypes.c_int32]":
        if not isinstance(text, str):
            raise ValueError(f"the text is {type(text).__name__}, expected str")
        try:
            data = text.encode()
        except UnicodeEncodeError as e:
            raise ValueError(f"the text is none: {e}") from None
        return self._ids("vt_tokenize", data, flags)

    def render(self, messages: Messages, **template: Any) -> str:
        """The prompt that the model's chat template makes of messages."""
        out, size = ctypes.c_void_p(), ctypes.c_size_t()
        data = self._chat_json(messages, template)
        with self.use(self._model) as model:
            call("vt_render_chat", model, data, len(data), True, ctypes.byref(out), ctypes.byref(size))
        return take_text(out, size)

    @staticmethod
    def _chat_json(messages: Messages, template: Optional[Mapping[str, Any]]) -> bytes:
        if isinstance(messages, (str, bytes)) or not hasattr(messages, "__iter__") or not all(isinstance(m, Mapping) for m in messages):
            raise ValueError(f"messages are {messages!r}, expected a list of dicts with role and content")
        try:
            return json.dumps({**(template or {}), "messages": [dict(m) for m in messages]}).encode()
        except TypeError as e:
            raise ValueError(f"messages: {e}") from None

    def _chat_request(self, messages: Messages, template: Optional[Mapping[str, Any]], sampling: Mapping[str, Any]) -> Request:
        ids = self._ids("vt_encode_chat", self._chat_json(messages, template), _abi.VT_CHAT_OPEN_TURN | _abi.VT_CHAT_LITERAL)
        return Request(ids, sampling)

    # ---- completions ----

    def _request(self, prompt: Any, sampling: Mapping[str, Any]) -> Request:
        ids = self._tokens(prompt, _abi.VT_TOKENIZE_ADD_BOS) if isinstance(prompt, str) else integers("prompt", prompt)
        return Request(ids, sampling)

    @staticmethod
    def _is_list(prompts: Any) -> bool:
        """True for several prompts: a list whose entries are texts, lists or arrays, or an array of two dimensions."""
        return getattr(prompts, "ndim", 1) == 2 or isinstance(prompts, (list, tuple)) and all(hasattr(p, "__iter__") for p in prompts)

    def _results(self, requests: Sequence[Request]) -> list[Result]:
        inbox = Inbox(self, whole=True)
        try:
            results = [inbox.submit(r) for r in requests]
            while not inbox.ended:
                inbox.take()
        finally:
            inbox.close()
        for r in results:
            r.check()
        return results

    async def _aresults(self, requests: Sequence[Request]) -> list[Result]:
        inbox = Inbox(self, whole=True)
        try:
            results = [inbox.submit(r) for r in requests]
            while not inbox.ended:
                await next_news(inbox)
        finally:
            inbox.close()
        for r in results:
            r.check()
        return results

    @staticmethod
    def _one(sampling: Mapping[str, Any]) -> None:
        if sampling.get("n") not in (None, 1):
            raise ValueError(f"n is {sampling['n']!r}, expected 1 in a stream")

    @overload
    def generate(self, prompt: str, **sampling: "Unpack[Sampling]") -> Result: ...
    @overload
    def generate(self, prompt: Sequence[int], **sampling: "Unpack[Sampling]") -> Result: ...
    @overload
    def generate(self, prompt: Prompts, **sampling: "Unpack[Sampling]") -> list[Result]: ...
    def generate(self, prompt: Any, **sampling: Any) -> Any:
        """Continues a prompt (a text or token ids), or each of a list of prompts in one batch. The keywords are Sampling's.
        Ctrl-C ends the requests."""
        if self._is_list(prompt):
            return self._results([self._request(p, sampling) for p in prompt])
        return self._results([self._request(prompt, sampling)])[0]

    @overload
    async def agenerate(self, prompt: str, **sampling: "Unpack[Sampling]") -> Result: ...
    @overload
    async def agenerate(self, prompt: Sequence[int], **sampling: "Unpack[Sampling]") -> Result: ...
    @overload
    async def agenerate(self, prompt: Prompts, **sampling: "Unpack[Sampling]") -> list[Result]: ...
    async def agenerate(self, prompt: Any, **sampling: Any) -> Any:
        """generate for asyncio; a cancelled task ends its requests."""
        if self._is_list(prompt):
            return await self._aresults([self._request(p, sampling) for p in prompt])
        return (await self._aresults([self._request(prompt, sampling)]))[0]

    def stream(self, prompt: Prompt, **sampling: "Unpack[Sampling]") -> Stream:
        """The text of a completion, piece by piece."""
        self._one(sampling)
        return Stream(self, self._request(prompt, sampling))

    def astream(self, prompt: Prompt, **sampling: "Unpack[Sampling]") -> AsyncStream:
        """The same for `async for`."""
        self._one(sampling)
        return AsyncStream(self, self._request(prompt, sampling))

    @overload
    def chat(self, messages: Messages, *, stream: Literal[False] = ..., template: Optional[Mapping[str, Any]] = ...,
             **sampling: "Unpack[Sampling]") -> Result: ...
    @overload
    def chat(self, messages: Messages, *, stream: Literal[True], template: Optional[Mapping[str, Any]] = ...,
             **sampling: "Unpack[Sampling]") -> Stream: ...
    def chat(self, messages: Messages, *, stream: bool = False, template: Optional[Mapping[str, Any]] = None,
             **sampling: Any) -> Union[Result, Stream]:
        """Answers messages ({"role": ..., "content": ...}); with `stream` the answer's text, piece by piece. `template`
        has further variables of the chat template, such as enable_thinking."""
        if flag("stream", stream):
            self._one(sampling)
        request = self._chat_request(messages, template, sampling)
        return Stream(self, request) if stream else self._results([request])[0]

    async def achat(self, messages: Messages, *, template: Optional[Mapping[str, Any]] = None,
                    **sampling: "Unpack[Sampling]") -> Result:
        """chat for asyncio."""
        return (await self._aresults([self._chat_request(messages, template, sampling)]))[0]

    # ---- looking inside ----

    def score(self, prompt: Prompt) -> Score:
        """The log-probability of each token of a text after those before it."""
        request = self._request(prompt, {"max_tokens": 0, "logprobs": 0})
        request.c.prompt_logprobs = True
        tokens = list(request.c.prompt[: request.c.n_prompt])
        return Score(tokens, [None, *self._results([request])[0].completions[0].scores])

    @overload
    def embed(self, prompt: str, *, dimensions: int = ..., unscaled: bool = ..., prompt_name: str = ...) -> list[float]: ...
    @overload
    def embed(self, prompt: Sequence[int], *, dimensions: int = ..., unscaled: bool = ..., prompt_name: str = ...) -> list[float]: ...
    @overload
    def embed(self, prompt: Prompts, *, dimensions: int = ..., unscaled: bool = ..., prompt_name: str = ...) -> list[list[float]]: ...
    def embed(self, prompt: Any, *, dimensions: int = 0, unscaled: bool = False, prompt_name: Optional[str] = None) -> Any:
        """The vector of a text (or token ids), or those of a list of them in one batch, of an LLM with pooling="last",
        "mean" or "cls", or of one whose files say how to pool. Its length is 1, unless `unscaled`; `dimensions` leaves only
        its first numbers. `prompt_name`: the prompt of the model's files that stands in front of texts, such as "query"."""
        before = lib.vt_model_prompt(self._model, None if prompt_name is None else prompt_name.encode())
        if before is None:
            raise ValueError(f"prompt_name: the model has no prompt {prompt_name!r}")
        front = before.decode()
        several = self._is_list(prompt)
        requests = []
        for p in prompt if several else [prompt]:
            r = Request(self._tokens(front + p, _abi.VT_TOKENIZE_ADD_BOS | _abi.VT_TOKENIZE_ADD_EOS) if isinstance(p, str)
                        else integers("prompt", p), {})
            r.c.embed, r.c.dimensions = True, integer("dimensions", dimensions)
            r.c.unscaled = flag("unscaled", unscaled)
            requests.append(r)
        vectors = [r.completions[0].vector for r in self._results(requests)]
        return vectors if several else vectors[0]

    def story(self, request: int = 0) -> Story:
        """The story of the newest steps of all requests; Result.story is one request's. A dict, which notebooks show as a page."""
        out, size = ctypes.c_void_p(), ctypes.c_size_t()
        with self.use() as engine:
            call("vt_engine_story", engine, request, ctypes.byref(out), ctypes.byref(size))
        return Story(json.loads(take_text(out, size)))

    def stats(self) -> dict[str, int]:
        """Numbers about the engine as of its last step: pages, queue, tokens; vt_stats in vitrine.h explains each."""
        c = _abi.vt_stats()
        with self.use() as engine:
            call("vt_engine_get_stats_size", engine, ctypes.byref(c), ctypes.sizeof(c))
        return {name: getattr(c, name) for name, *_ in _abi.vt_stats._fields_}
