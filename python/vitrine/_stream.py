"""Texts as they come, for threads and for asyncio."""
from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, AsyncIterator, Iterator, Optional

from ._inbox import Inbox
from ._request import Request
from ._result import Result

if TYPE_CHECKING:
    from ._llm import LLM


class Stream(Iterator[str]):
    """Pieces of a completion's text. Left early (close, with, or no longer used) it ends the request. `result` has what has
    come so far, and all of it in the end."""

    def __init__(self, llm: "LLM", request: Request) -> None:
        self._inbox: Optional[Inbox] = None
        self._inbox = Inbox(llm, whole=False)
        self.result: Result = self._inbox.submit(request)

    def __next__(self) -> str:
        while self._inbox:
            new = self._inbox.take()
            if self._inbox.ended:
                self.close()
                self.result.check()
            if new:
                return new
        raise StopIteration

    def close(self) -> None:
        """Ends the request if it is still open, and frees its pages."""
        inbox, self._inbox = self._inbox, None
        if inbox:
            inbox.close()

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_inbox", None):
            self.close()


class AsyncStream(AsyncIterator[str]):
    """The same for `async for`. Belongs to the event loop that reads it first."""

    def __init__(self, llm: "LLM", request: Request) -> None:
        self._inbox: Optional[Inbox] = None
        self._inbox = Inbox(llm, whole=False)
        self.result: Result = self._inbox.submit(request)

    async def __anext__(self) -> str:
        while self._inbox:
            new = await next_news(self._inbox)
            if self._inbox and self._inbox.ended:
                await self.aclose()
                self.result.check()
            if new:
                return new
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Ends the request if it is still open, and frees its pages."""
        inbox, self._inbox = self._inbox, None
        if inbox:
            inbox.close()

    async def __aenter__(self) -> "AsyncStream":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        if getattr(self, "_inbox", None):
            self._inbox.close()  # type: ignore[union-attr]


async def next_news(inbox: Inbox) -> str:
    """The next piece of text, without holding the event loop meanwhile."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(inbox.fd, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(inbox.fd)
    return inbox.take(wait=False)
