"""Folders that only this user writes to and reads from, also where everybody may make folders, as in `/tmp`."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from penstock.common.errors import ClusterError
from penstock.common.folders.start_folder import absolute

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_ROOT = 0


def private_folder(path: str | os.PathLike[str]) -> Path:
    """The folder, made if need be, mode 0700.

    What is there already is taken if it is a folder, no link to one, of this user's; or root's, if nobody else may write to
    it (an image's). What runs or is unpickled out of it would otherwise be somebody else's to choose.

    Raises:
        ClusterError: it is somebody else's.
        OSError: it cannot be made.
    """
    folder = Path(path)
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        pass
    found = folder.lstat()
    is_folder = stat.S_ISDIR(found.st_mode)
    if is_folder and found.st_uid == os.getuid():
        if found.st_mode & _OTHERS:
            folder.chmod(0o700)
        return folder
    is_images = found.st_uid == _ROOT and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if is_folder and is_images and os.access(folder, os.R_OK | os.X_OK):
        return folder
    what = f"is of the user with id {found.st_uid}" if is_folder else "is not a folder"
    raise ClusterError(
        f"{folder} {what}; only a folder of the user with id {os.getuid()} is used",
        remedy="remove it, or let TMPDIR (or PENSTOCK_CACHE, for the cache) name another place",
    )


def cache_folder(name: str) -> Path:
    """A folder of this user's cache, in `PENSTOCK_CACHE` or `~/.cache/penstock`; where neither can be written to, in the temporary one.

    Raises:
        ClusterError: it is somebody else's.
    """
    root = os.environ.get("PENSTOCK_CACHE") or os.path.join(os.path.expanduser("~"), ".cache", "penstock")
    try:
        return private_folder(Path(absolute(root)) / name)
    except OSError:
        return private_folder(temporary_folder() / name)


def temporary_folder() -> Path:
    """This user's, for what processes of several programs look for under fixed names."""
    return private_folder(Path(tempfile.gettempdir()) / f"penstock-{os.getuid()}")
