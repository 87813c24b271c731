"""Where the process was started: what the engine finds by a relative path is relative to that, wherever its functions work."""

from __future__ import annotations

import os

left: str | None = None
"""Set while the working directory is another one, and while it is about to be: other threads ask meanwhile (`working_folder`)."""


def absolute(path: str) -> str:
    """A path as it was meant where the process was started."""
    return os.path.abspath(path if left is None else os.path.join(left, path))
