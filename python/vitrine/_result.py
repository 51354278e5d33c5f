"""What a request has given."""
from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Optional

from . import _abi
from ._library import Error, lib
from ._story import Story

if TYPE_CHECKING:
    from ._llm import LLM

REASONS = {_abi.VT_FINISH_STOP: "stop", _abi.VT_FINISH_LENGTH: "length", _abi.VT_FINISH_ABORT: "abort",
           _abi.VT_FINISH_ERROR: "error"}


@dataclass
class Completion:
    """One of the n completions of a prompt."""

    text: str = ""
    tokens: list[int] = field(default_factory=list)
    finish_reason: Optional[str] = None
    """"stop": an end token or a stop string; "length": max_tokens, the context or the KV cache is full; "abort"; None while
    it goes on."""
    end_reason: Optional[str] = None
    """The same more closely: "stop_token", "stop_string", "max_tokens", "context", "kv_cache", "abort", "timeout" ..."""
    stop: Optional[str] = None
    """The stop string that ended it."""
    logprobs: Optional[list[float]] = None
    """Of the chosen tokens, natural logarithms; asked for with logprobs=."""
    top_logprobs: Optional[list[dict[int, float]]] = None
    """For each token the likeliest ids and their log-probabilities."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    """Prompt tokens that the prefix cache had."""
    draft_tokens: int = 0
    """Guesses that were verified for it (option draft)."""
    draft_accepted: int = 0
    scores: list[float] = field(default_factory=list, repr=False)
    vector: list[float] = field(default_factory=list, repr=False)
    """What embed returns."""
    error: Optional[str] = None

    def add(self, e: _abi.vt_event, stops: list[str]) -> str:
        """Appends an event; returns its text."""
        tokens = e.tokens[: e.n_tokens]
        logprobs = [e.logprobs[i].logprob for i in range(e.n_tokens)] if e.logprobs else None
        if tokens and e.completion_tokens == 0:
            self.scores += logprobs or []
            return ""
        new = ctypes.string_at(e.text, e.text_len).decode("utf-8", "replace")
        self.text += new
        self.tokens += tokens
        if logprobs is not None:
            self.logprobs = (self.logprobs or []) + logprobs
        if e.top_logprobs:
            rows = (e.top_logprobs[i * e.n_top : (i + 1) * e.n_top] for i in range(e.n_tokens))
            self.top_logprobs = (self.top_logprobs or []) + [{t.id: t.logprob for t in row if t.id >= 0} for row in rows]
        for name in ("prompt_tokens", "completion_tokens", "cached_tokens", "draft_tokens", "draft_accepted"):
            setattr(self, name, getattr(e, name))
        if e.vector:
            self.vector = e.vector[: e.n_vector]
        if e.finish != _abi.VT_FINISH_NONE:
            self.finish_reason = REASONS[e.finish]
            self.end_reason = lib.vt_end_reason_name(e.end_reason).decode()
            self.stop = stops[e.stop] if e.stop >= 0 else None
            self.error = e.error.decode("utf-8", "replace") if e.error else None
        return new


class Result:
    """A request's completions. The attributes of the first one are the result's own: r.text is r.completions[0].text."""

    def __init__(self, llm: "LLM", request: int, n: int) -> None:
        self._llm = llm
        self._request = request
        self._story: Optional[Story] = None
        self.completions: list[Completion] = [Completion() for _ in range(n)]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in Completion.__dataclass_fields__:
            raise AttributeError(f"a result has no {name!r}")
        return getattr(self.completions[0], name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *Completion.__dataclass_fields__]

    def __repr__(self) -> str:
        return f"Result(text={self.text!r}, finish_reason={self.finish_reason!r}, completion_tokens={self.completion_tokens})"

    @property
    def ended(self) -> bool:
        return all(c.finish_reason for c in self.completions)

    def check(self) -> None:
        """Raises what went wrong with a completion."""
        for c in self.completions:
            if c.error:
                raise TimeoutError(c.error) if c.end_reason == "timeout" else Error(c.error)

    @property
    def story(self) -> Story:
        """The request's story (docs/story-format.md), asked for once. The LLM must be open, and its recording, which
        holds the newest steps only, must still have the request (else ValueError)."""
        if self._story is None:
            self._story = self._llm.story(self._request)
        return self._story


@dataclass
class Score:
    """How likely a text is to the model."""

    tokens: list[int]
    logprobs: list[Optional[float]]
    """Of each token after those before it, natural logarithms; the first one has none."""

    @property
    def total(self) -> float:
        return math.fsum(p for p in self.logprobs if p is not None)

    @property
    def perplexity(self) -> float:
        n = len(self.logprobs) - 1
        return math.exp(-self.total / n) if n > 0 else math.nan
