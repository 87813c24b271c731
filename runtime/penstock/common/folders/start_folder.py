"""The folder in which the process was started. The engine resolves relative paths against it, even if functions work elsewhere."""

from __future__ import annotations

import os

folder: str | None = None
"""The start folder if the working directory is a different folder, otherwise None.

`working_folder` sets this variable before it changes the working directory, because other threads may read the variable
in between.
"""


def absolute(path: str) -> str:
    """Return the absolute form of a path. A relative path starts at the folder in which the process was started."""
    return os.path.abspath(path if folder is None else os.path.join(folder, path))
