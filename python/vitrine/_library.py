"""libvitrine.so: found beside this file, its functions typed, its errors as exceptions."""
from __future__ import annotations

import ctypes
import os
from typing import Any, NoReturn

from . import _abi


class Error(RuntimeError):
    """Something failed while a model was loaded or a request ran."""


class DeviceError(Error):
    """The device or its driver failed, or is not there."""


class BusyError(Error):
    """The queue is full (option max_queued): try again later."""


class ModelError(OSError):
    """The file is there, and is damaged or describes a model that vitrine does not run."""


class UnsupportedError(NotImplementedError, ValueError):
    """A known thing that this version or this device does not have."""


EXCEPTIONS: dict[int, type[Exception]] = {
    _abi.VT_ERR_USAGE: ValueError,
    _abi.VT_ERR_CONTEXT: ValueError,
    _abi.VT_ERR_GRAMMAR: ValueError,
    _abi.VT_ERR_IO: OSError,
    _abi.VT_ERR_FORMAT: ModelError,
    _abi.VT_ERR_MODEL: ModelError,
    _abi.VT_ERR_MEMORY: MemoryError,
    _abi.VT_ERR_NO_PAGES: MemoryError,
    _abi.VT_ERR_DEVICE: DeviceError,
    _abi.VT_ERR_UNSUPPORTED: UnsupportedError,
    _abi.VT_ERR_BUSY: BusyError,
    _abi.VT_ERR_CANCELLED: KeyboardInterrupt,  # type: ignore[dict-item]
}
STRUCTS = ("vt_err", "vt_progress_info", "vt_token_logprob", "vt_event", "vt_logit_bias", "vt_request_params", "vt_stats")


def load() -> ctypes.CDLL:
    """The library, whose structs are held against those that this package was made for."""
    path = os.environ.get("VITRINE_LIBRARY") or os.path.join(os.path.dirname(__file__), "libvitrine.so.0")
    library = ctypes.CDLL(path)
    _abi.declare(library)
    for name in STRUCTS:
        ours, theirs = ctypes.sizeof(getattr(_abi, name)), library.vt_struct_size(name.encode())
        if ours > theirs:
            raise ImportError(f"{path} is older than this package: its {name} has {theirs} bytes, expected {ours}")
    return library


lib = load()
__version__: str = lib.vt_version().decode()


def fail(error: _abi.vt_err) -> NoReturn:
    message = error.message.decode("utf-8", "replace")
    raise EXCEPTIONS.get(error.status, Error)(message)


def call(name: str, *arguments: Any) -> None:
    """Calls a function whose last parameter is vt_err, and raises what it reports."""
    error = _abi.vt_err()
    if getattr(lib, name)(*arguments, ctypes.byref(error)) != _abi.VT_OK:
        fail(error)


def take_text(address: ctypes.c_void_p, size: ctypes.c_size_t) -> str:
    """A text that the library gave away, which is freed."""
    try:
        return ctypes.string_at(address.value or 0, size.value).decode("utf-8", "replace")
    finally:
        lib.vt_free(address)
