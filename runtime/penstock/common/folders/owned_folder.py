"""Temporary folders that belong to a process, and are swept when it has ended without removing them.

Each has a file `owner` that its process keeps locked (`flock`): the kernel lets go of the lock when the process ends, however
it does. Who makes the next folder at the same place removes those whose owner's lock can be had. No process id is compared,
which another process may have got meanwhile, or which means nothing in another container.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile

OWNER = "owner"
_TRIES = 10


class OwnedFolder:
    """A new folder of this process, and only this user's.

    Args:
        parent: made if need be; folders of the same prefix in it whose process has ended are removed.
        name: what its name begins with, behind the prefix.
        sweeps: remove those of others that have ended.
    """

    def __init__(self, parent: str, prefix: str, name: str = "", *, sweeps: bool = True) -> None:
        if sweeps:
            sweep(parent, prefix)
        self.path = _new_folder(parent, prefix + name)
        self._lock = -1
        beginning = os.path.join(self.path, f".{OWNER}")
        self._lock = os.open(beginning, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with contextlib.suppress(OSError):  # a file system without locks: nobody sweeps there
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.rename(beginning, os.path.join(self.path, OWNER))

    @staticmethod
    def is_mark(name: str) -> bool:
        """Whether a name in such a folder is that of the file that says whose it is."""
        return name.lstrip(".") == OWNER

    def remove(self) -> None:
        """With all that is in it; may be called again."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.let_go()

    def let_go(self) -> None:
        """It stays until it is swept; may be called again."""
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)


def _new_folder(parent: str, prefix: str) -> str:
    """Somebody may remove the parent, which is empty, just when this one is to be made."""
    for _ in range(_TRIES):
        with contextlib.suppress(FileNotFoundError, FileExistsError):
            os.makedirs(parent, exist_ok=True)
            return tempfile.mkdtemp(prefix=prefix, dir=parent)
    os.makedirs(parent, exist_ok=True)
    return tempfile.mkdtemp(prefix=prefix, dir=parent)


def sweep(parent: str, prefix: str, *, but: str = "") -> list[str]:
    """Remove the folders of this user's whose process has ended, but for those whose name begins with `but`; returns their paths."""
    swept = []
    with contextlib.suppress(FileNotFoundError), os.scandir(parent) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                is_own = entry.is_dir(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_uid == os.getuid()
                is_wanted = entry.name.startswith(prefix) and not (but and entry.name.startswith(but))
                if is_wanted and is_own and _is_abandoned(entry.path):
                    shutil.rmtree(entry.path, ignore_errors=True)
                    swept.append(entry.path)
    return swept


def is_owned(folder: str) -> bool:
    """Whether it is one of these, and its process goes on."""
    return os.path.exists(os.path.join(folder, OWNER)) and not _is_abandoned(folder)


def _is_abandoned(folder: str) -> bool:
    """A folder without the file is none of these, or is just being made."""
    owner = os.open(os.path.join(folder, OWNER), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(owner)
    return True
