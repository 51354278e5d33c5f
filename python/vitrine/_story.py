"""A story as a dict that notebooks show as a page."""
from __future__ import annotations

import html
import json
import subprocess
from typing import Any, Optional

from ._program import program


class Story(dict[str, Any]):
    """docs/story-format.md. `html()` is its page, as `vitrine story export --to html` makes it."""

    def html(self) -> str:
        """One page that needs no other file and no network. RuntimeError: the program is not there, or refuses the story."""
        try:
            out = subprocess.run([program(), "story", "export", "/dev/stdin", "--to", "html"], input=json.dumps(self).encode(),
                                 capture_output=True)
        except OSError as e:
            raise RuntimeError(f"the program that renders stories: {e}") from None
        if out.returncode != 0:
            raise RuntimeError(out.stderr.decode("utf-8", "replace").strip().removeprefix("vitrine: "))
        return out.stdout.decode()

    def _repr_html_(self) -> Optional[str]:
        try:
            page = self.html()
        except RuntimeError:
            return None  # a notebook then shows the dict
        return (f'<iframe srcdoc="{html.escape(page)}" sandbox="allow-scripts" style="width:100%;height:48em;border:0">'
                "</iframe>")
