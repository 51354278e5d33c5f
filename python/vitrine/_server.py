"""The program's server in the background."""
from __future__ import annotations

import collections
import os
import re
import subprocess
import threading
from typing import Any, Union

from ._library import Error
from ._llm import option_text
from ._program import program

READY = re.compile(r"(https?://\S+) serves ")


class Server:
    """`vitrine serve` as a child process. `url` is where it listens; a with block ends it."""

    def __init__(self, arguments: list[str]) -> None:
        self.process = subprocess.Popen([program(), "serve", *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE, text=True, errors="replace")
        self.log: collections.deque[str] = collections.deque(maxlen=1000)
        """Its newest lines."""
        self.url = ""
        self._ready = threading.Event()
        threading.Thread(target=self._read, name="vitrine-serve-log", daemon=True).start()
        try:
            while not self._ready.wait(0.1):
                pass
        except BaseException:
            self.close()
            raise
        if not self.url:
            self.process.wait()
            line = self.log[-1] if self.log else ""
            message = line.removeprefix("vitrine: ") or f"the server ended with status {self.process.returncode}"
            kind = ValueError if self.process.returncode == 2 else OSError if message.startswith("no model ") else Error
            raise kind(message)

    def _read(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            self.log.append(line.rstrip("\n"))
            found = READY.search(line)
            if found and not self.url:
                self.url = found[1]
                self._ready.set()
        self._ready.set()

    def close(self) -> None:
        """Lets requests under way finish, as SIGTERM does."""
        self.process.terminate()
        self.process.wait()

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve(model: Union[str, "os.PathLike[str]", None] = None, *, port: int = 0, **options: Any) -> Server:
    """Serves a model over HTTP in the background, for tests and notebooks; returns when it is ready. The keywords are the
    options of `vitrine serve --help`, with _ for -; a list gives an option several times. Errors are those of LLM.

        with vitrine.serve("smollm2-135m") as s:
            openai.OpenAI(base_url=s.url + "/v1", api_key="none")
    """
    arguments = ["--port", str(port)]
    if model is not None:
        arguments += ["--model", option_text(model)]
    for key, value in options.items():
        name = "--" + key.replace("_", "-")
        for v in value if isinstance(value, (list, tuple)) else [value]:
            if v is True:
                arguments.append(name)
            elif v is not None and v is not False:
                arguments += [name, option_text(v)]
    return Server(arguments)
