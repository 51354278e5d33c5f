"""vt_inbox: requests under way, and the results that they fill."""
from __future__ import annotations

import ctypes
import threading
import weakref
from typing import TYPE_CHECKING

from . import _abi
from ._library import call, lib
from ._request import Request
from ._result import Completion, Result

if TYPE_CHECKING:
    from ._llm import LLM

LOOK_MS = 100  # how often the main thread lets Python see a signal


class Inbox:
    """The requests of one call: their results fill up with each take."""

    def __init__(self, llm: "LLM", whole: bool) -> None:
        self._llm = llm
        self._results: dict[int, Result] = {}
        self._stops: dict[int, list[str]] = {}
        self._handle = ctypes.c_void_p()
        call("vt_inbox_new", whole, ctypes.byref(self._handle))
        self._free = weakref.finalize(self, lib.vt_inbox_free, self._handle)
        self.fd_ = -1

    def submit(self, request: Request) -> Result:
        id = ctypes.c_uint64()
        with self._llm.use() as engine:
            call("vt_inbox_submit", self._handle, engine, ctypes.byref(request.c), ctypes.byref(id))
        result = Result(self._llm, id.value, request.c.n)
        self._results[id.value] = result
        self._stops[id.value] = request.stop
        return result

    @property
    def fd(self) -> int:
        """Readable while there is news."""
        if self.fd_ < 0:
            fd = ctypes.c_int()
            call("vt_inbox_fd", self._handle, ctypes.byref(fd))
            self.fd_ = fd.value
        return self.fd_

    @property
    def ended(self) -> bool:
        return all(r.ended for r in self._results.values())

    def take(self, wait: bool = True) -> str:
        """Waits for news and adds it to its result; returns the text of it. Without `wait`, "" where there is none."""
        event = ctypes.POINTER(_abi.vt_event)()
        main = threading.current_thread() is threading.main_thread()
        while True:
            call("vt_inbox_take", self._handle, (LOOK_MS if main else -1) if wait else 0, ctypes.byref(event))
            if event:
                e = event.contents
                completion: Completion = self._results[e.request].completions[e.sample]
                return completion.add(e, self._stops[e.request])
            if not wait or self.ended:
                return ""

    def close(self) -> None:
        """Ends what is still open."""
        for id, result in self._results.items():
            if not result.ended:
                self._llm.abort(id)
        self._free()
