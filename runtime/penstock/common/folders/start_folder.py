"""The folder in which the process was started. The engine resolves relative paths against it, even if functions work elsewhere."""

from __future__ import annotations

import os

folder: str | None = None
"""The start folder while the working directory is another one, else None.

`working_folder` sets it before it changes the directory, because other threads read it in between.
"""


def absolute(path: str) -> str:
    """Return a path as an absolute one, relative to the folder in which the process was started."""
    return os.path.abspath(path if folder is None else os.path.join(folder, path))
