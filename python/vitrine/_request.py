"""A request's parameters: Python values checked and put into vt_request_params."""
from __future__ import annotations

import ctypes
import difflib
import math
import numbers
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, Union

from . import _abi
from ._library import lib

Prompt = Union[str, Sequence[int]]
"""A text, or token ids."""
Prompts = Union[list[str], list[list[int]]]
"""Several of them."""


class Sampling(TypedDict, total=False):
    """The keywords of generate, stream, chat and their async twins. What is not given has the value in brackets."""

    max_tokens: int
    """Tokens of a completion at most [128]."""
    min_tokens: int
    """No end token and no stop string before that many tokens [0]."""
    n: int
    """Completions of one prompt, 1 to 128 [1]."""
    temperature: float
    """0: always the likeliest token [0]."""
    top_k: int
    """Choose among the k likeliest tokens; 0: all [0]."""
    top_p: float
    """Choose among the likeliest tokens that together have this probability [1]."""
    min_p: float
    """Choose among tokens with at least this share of the likeliest one's probability [0]."""
    repetition_penalty: float
    """Divides the logits of tokens that occurred, prompt included [1: off]."""
    presence_penalty: float
    """Taken from the logit of a token that occurred in the completion [0]."""
    frequency_penalty: float
    """The same for each time that it occurred [0]."""
    seed: int
    """The same seed, the same text [one of the engine's]."""
    stop: str | Sequence[str]
    """Strings before whose first one a completion ends, at most 64 [none]."""
    stop_ids: Sequence[int]
    """Further end tokens [none]."""
    ignore_eos: bool
    """The model's end tokens do not end a completion [False]."""
    logit_bias: Mapping[int, float]
    """Added to the logits of these tokens; -inf: never chosen [none]."""
    allowed: Sequence[int]
    """Only these ids may be chosen [all]."""
    logprobs: int
    """0: log-probabilities of the chosen tokens; k: of the k likeliest too, at most 20 [none]."""
    priority: int
    """Higher first, under LLM(policy="priority") [0]."""
    cache_salt: str
    """Requests with different salts share no cached prefix [none]."""
    timeout: float
    """Seconds after which the request fails; 0: never [0]."""


INTEGERS = {"max_tokens": 32, "min_tokens": 32, "n": 32, "top_k": 32, "logprobs": 32, "priority": 32, "seed": 64}
FLOATS = {"temperature": "temperature", "top_p": "top_p", "min_p": "min_p", "repetition_penalty": "repetition_penalty",
          "presence_penalty": "presence_penalty", "frequency_penalty": "frequency_penalty", "timeout": "timeout_s"}


def integer(name: str, value: Any, bits: int = 32) -> int:
    """`value` as a C integer of that many bits; 64 are unsigned. ValueError names the parameter."""
    low, high = (0, 2**64 - 1) if bits == 64 else (-(2**31), 2**31 - 1)
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or not low <= int(value) <= high:
        raise ValueError(f"{name} is {value!r}, expected an integer from {low} to {high}")
    return int(value)


def real(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or math.isnan(value):
        raise ValueError(f"{name} is {value!r}, expected a number")
    return float(value)


def flag(name: str, value: Any) -> bool:
    numpys = getattr(value, "dtype", None) == bool and getattr(value, "ndim", 1) == 0
    if not isinstance(value, bool) and not numpys:
        raise ValueError(f"{name} is {value!r}, expected True or False")
    return bool(value)


def integers(name: str, values: Any) -> ctypes.Array[ctypes.c_int32]:
    if isinstance(values, (str, bytes)) or not hasattr(values, "__iter__"):
        raise ValueError(f"{name} is {values!r}, expected integers")
    listed = [integer(f"{name}[{i}]", v) for i, v in enumerate(values)]
    return (ctypes.c_int32 * len(listed))(*listed)


def text(name: str, value: Any) -> bytes:
    """Its UTF-8. The C API ends these strings at a NUL, so they may hold none."""
    if not isinstance(value, str) or "\0" in value:
        raise ValueError(f"{name} is {value!r}, expected a str without a NUL character")
    try:
        return value.encode()
    except UnicodeEncodeError as e:
        raise ValueError(f"{name} is no text: {e}") from None


class Request:
    """vt_request_params, and what they point to."""

    def __init__(self, prompt: ctypes.Array[ctypes.c_int32], sampling: Mapping[str, Any]) -> None:
        self.c = c = _abi.vt_request_params()
        lib.vt_request_init_size(c, ctypes.sizeof(c))
        c.prompt, c.n_prompt = prompt, len(prompt)
        self.stop: list[str] = []
        self._keep: list[Any] = [prompt]
        for name, value in sampling.items():
            if value is None:
                continue
            if name in INTEGERS:
                setattr(c, name, integer(name, value, INTEGERS[name]))
            elif name in FLOATS:
                setattr(c, FLOATS[name], real(name, value))
                if name == "timeout" and not 0 <= value <= 1e9:
                    raise ValueError(f"timeout is {value!r}, expected 0 to 1e9 seconds")
            elif name == "ignore_eos":
                c.ignore_eos = flag(name, value)
            elif name in ("stop_ids", "allowed"):
                self._list(name, integers(name, value))
            elif hasattr(self, "_set_" + name):
                getattr(self, "_set_" + name)(value)
            else:
                near = difflib.get_close_matches(name, Sampling.__annotations__, 1)
                raise TypeError(f"unknown parameter {name!r}" + (f", did you mean {near[0]!r}?" if near else ""))
        c.has_seed = sampling.get("seed") is not None

    def _list(self, name: str, array: Any) -> None:
        self._keep.append(array)
        setattr(self.c, name, array)
        setattr(self.c, "n_" + name, len(array))

    def _set_stop(self, value: str | Sequence[str]) -> None:
        if not isinstance(value, (str, list, tuple)):
            raise ValueError(f"stop is {value!r}, expected a str or a list of them")
        self.stop = [value] if isinstance(value, str) else list(value)
        self._list("stop", (ctypes.c_char_p * len(self.stop))(*(text("stop", s) for s in self.stop)))

    def _set_logit_bias(self, value: Mapping[int, float]) -> None:
        if not isinstance(value, Mapping):
            raise ValueError(f"logit_bias is {value!r}, expected a dict of token ids and numbers")
        pairs = [_abi.vt_logit_bias(integer("logit_bias", i), real(f"logit_bias[{i}]", b)) for i, b in value.items()]
        self._list("logit_bias", (_abi.vt_logit_bias * len(pairs))(*pairs))

    def _set_cache_salt(self, value: str) -> None:
        self.c.cache_salt = text("cache_salt", value)
