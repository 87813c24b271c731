"""The extension of griffe that shows the examples of docstrings as code in the API reference."""

from __future__ import annotations

from typing import Any

import griffe

from tools.site.markdown import with_fenced_doctests


class FencedDoctests(griffe.Extension):  # type: ignore[misc] # griffe is not installed where mypy runs
    """Extension that rewrites every docstring when griffe has read it."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = with_fenced_doctests(obj.docstring.value)
