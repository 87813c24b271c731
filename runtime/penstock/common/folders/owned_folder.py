"""Temporary folders that belong to a process. If a process ends without removing its folders, another process removes
them later.

Each folder has a file `owner`, which its process keeps locked (`flock`). The kernel releases the lock when the process
ends, for any reason. The next process that creates a folder in the same place removes the folders whose lock is free.
Process ids are not compared. Another process may have got the same id, and an id has no meaning in another container.
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
    """A new folder of this process that only this user can access.

    Args:
        parent: folder of the new folder. It is created if it does not exist.
        name: start of the folder's name, after the prefix.
        sweeps: whether to first remove the folders in `parent` that have the same prefix and whose process has ended.
    """

    def __init__(self, parent: str, prefix: str, name: str = "", *, sweeps: bool = True) -> None:
        if sweeps:
            sweep(parent, prefix)
        self.path = _new_folder(parent, prefix + name)
        self._lock = -1
        beginning = os.path.join(self.path, f".{OWNER}")
        self._lock = os.open(beginning, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with contextlib.suppress(OSError):  # on a file system without locks, the folder is never swept
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.rename(beginning, os.path.join(self.path, OWNER))

    @staticmethod
    def is_mark(name: str) -> bool:
        """Return whether this is the name of the owner file in an owned folder."""
        return name.lstrip(".") == OWNER

    def remove(self) -> None:
        """Remove the folder and its content. May be called again."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.release_lock()

    @property
    def lock(self) -> int:
        """Return the descriptor of the lock. A child process that inherits it owns the folder, too."""
        return self._lock

    def release_lock(self) -> None:
        """Release the lock and keep the folder. Another process sweeps it later. May be called again."""
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)


def _new_folder(parent: str, prefix: str) -> str:
    """Create the folder. Try again if another process removes the empty parent at the same moment."""
    for _ in range(_TRIES):
        with contextlib.suppress(FileNotFoundError, FileExistsError):
            os.makedirs(parent, exist_ok=True)
            return tempfile.mkdtemp(prefix=prefix, dir=parent)
    os.makedirs(parent, exist_ok=True)
    return tempfile.mkdtemp(prefix=prefix, dir=parent)


def sweep(parent: str, prefix: str, *, but: str = "", newest: int = 0) -> list[str]:
    """Remove this user's folders whose process has ended, and return their paths.

    Keep folders whose name starts with `but`. Also keep the most recent other folders, at most `newest` of them.
    """
    abandoned: list[tuple[float, str]] = []
    with contextlib.suppress(FileNotFoundError), os.scandir(parent) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                is_own = entry.is_dir(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_uid == os.getuid()
                is_wanted = entry.name.startswith(prefix) and not (but and entry.name.startswith(but))
                if is_wanted and is_own and _is_abandoned(entry.path):
                    abandoned.append((entry.stat(follow_symlinks=False).st_mtime, entry.path))
    swept = [path for _, path in sorted(abandoned)[: max(0, len(abandoned) - newest)]]
    for path in swept:
        shutil.rmtree(path, ignore_errors=True)
    return swept


def is_owned(folder: str) -> bool:
    """Return whether this is an owned folder whose process is still running."""
    return os.path.exists(os.path.join(folder, OWNER)) and not _is_abandoned(folder)


def _is_abandoned(folder: str) -> bool:
    """Return whether the process of the folder has ended.

    Raises:
        OSError: the folder has no owner file: it is not an owned folder, or its process is still creating it.
    """
    owner = os.open(os.path.join(folder, OWNER), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(owner)
    return True
