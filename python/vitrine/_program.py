"""The program that came with this package."""
from __future__ import annotations

import importlib.metadata
import os
import shutil


def program() -> str:
    """Its path. RuntimeError if the package was not installed as a whole."""
    try:
        for f in importlib.metadata.files("vitrine") or []:
            path = str(f.locate())
            if os.path.basename(path) == "vitrine" and os.access(path, os.X_OK) and not os.path.isdir(path):
                return os.path.normpath(path)
    except importlib.metadata.PackageNotFoundError:
        pass
    found = shutil.which("vitrine")
    if found:
        return found
    raise RuntimeError("the program 'vitrine' is neither in this package nor on the PATH")
