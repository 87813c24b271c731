"""Folders that only this user can write to and read, even in a place where every user may create folders, such as `/tmp`."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.common.errors import ClusterError
from penstock.common.folders.start_folder import absolute

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_ROOT = 0


def private_folder(path: str | os.PathLike[str]) -> Path:
    """Return the folder. Create it with mode 0700 if it does not exist.

    An existing folder is used if it belongs to this user and is not a link. A folder of root, such as one in a container
    image, is used if no other user can write to it. Any other folder is an error, because another user could use it to
    choose the code that this process runs or unpickles.

    Raises:
        ClusterError: the folder belongs to another user.
        OSError: the folder cannot be created.
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
    problem = f"belongs to the user with id {found.st_uid}" if is_folder else "is not a folder"
    raise ClusterError(
        f"{folder} {problem}. Penstock only uses a folder of the user with id {os.getuid()}",
        remedy="remove it, or set TMPDIR (for the cache, PENSTOCK_CACHE) to another folder",
    )


def cache_folder(name: str) -> Path:
    """Return a folder of this user's cache: below `PENSTOCK_CACHE` or `~/.cache/penstock`.

    If that place is not writable, the folder is below `temporary_folder()`.

    Raises:
        ClusterError: the folder belongs to another user.
    """
    root = os.environ.get("PENSTOCK_CACHE") or os.path.join(os.path.expanduser("~"), ".cache", "penstock")
    try:
        return private_folder(Path(absolute(root)) / name)
    except OSError:
        return private_folder(temporary_folder() / name)


@contextmanager
def filled(folder: Path) -> Iterator[Path]:
    """Yield a new folder next to `folder`, and move it to `folder` after the block. So `folder` is never incomplete.

    The block may raise; then nothing remains. If another process has created `folder` in the meantime, its content is used.
    """
    building = Path(tempfile.mkdtemp(prefix="building-", dir=folder.parent))
    try:
        yield building
        try:
            os.replace(building, folder)
        except OSError:  # another process was faster
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(building, ignore_errors=True)


def temporary_folder() -> Path:
    """Return this user's folder for files with fixed names. Several programs share these files."""
    return private_folder(Path(tempfile.gettempdir()) / f"penstock-{os.getuid()}")
