"""The files of a program, and changes to them. Modification times are polled, so every file system and editor works."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

_MISSING = (0, 0, 0)
_LIBRARIES = ("site-packages", "dist-packages")


Signature = tuple[int, int, int]
"""Modification time in ns, size and inode of a file."""


def program_files(folder: str) -> dict[str, Signature]:
    """Return the source files of the imported modules that are below the folder, without installed packages."""
    found = {}
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if path and path.endswith(".py") and is_below(path, folder):
            found[os.path.abspath(path)] = _signature(path) or _MISSING
    return found


def is_below(path: str, folder: str) -> bool:
    """Return whether a file belongs to the program in this folder.

    >>> is_below("/p/rules/fraud.py", "/p"), is_below("/p/.venv/lib/site-packages/x.py", "/p"), is_below("/q/x.py", "/p")
    (True, False, False)
    """
    inside = os.path.abspath(path)
    return inside.startswith(folder.rstrip(os.sep) + os.sep) and not any(
        part in _LIBRARIES for part in Path(inside).parts
    )


class WatchedFiles:
    """Files whose changes `changed` returns. A file that an editor replaces may be missing for a moment, which is not a change."""

    def __init__(self, path: str) -> None:
        self._seen = {path: _signature(path) or _MISSING}
        self._moving: dict[str, Signature] = {}

    def add(self, files: Mapping[str, Signature]) -> None:
        """Watch files from now on. A signature shows whether the file has changed since the program read it."""
        for path, signature in files.items():
            self._seen.setdefault(path, signature)

    def changed(self) -> list[str]:
        """Return the files that changed since the last call and had the same content at the last two calls."""
        moving = {
            path: now for path, seen in self._seen.items() if (now := _signature(path)) is not None and now != seen
        }
        is_stable = bool(moving) and moving == self._moving
        self._moving = moving
        if not is_stable:
            return []
        self._seen.update(moving)
        self._moving = {}
        return sorted(moving)


def _signature(path: str) -> Signature | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
