"""The error with a code for state that a TaskManager cannot write to its own disk.

No state is lost by such an error, because the job restarts from its newest checkpoint. RocksDB's binding raises plain `Exception`s. They
contain texts of the operating system, which distinguish a full disk from damaged files.
"""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from penstock.common.errors import LocalDiskError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_ERRNOS = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM),
    *(errno.EIO, errno.EMFILE, errno.ENFILE),
}
_TEXTS = tuple(map(os.strerror, sorted(_ERRNOS)))
_REMEDY = (
    "make sure that state.backend.rocksdb.localdir is a folder that the TaskManager can write to, on a disk with "
    "free space. The job restarts from its newest checkpoint"
)
_SHOWN = 300


def is_from_rocksdb(error: Exception) -> bool:
    """Return whether RocksDB's binding raised the error: a plain `Exception`, or one of the binding's classes."""
    return type(error) is Exception or type(error).__module__ == "rocksdict"


def is_disk_error(error: Exception) -> bool:
    """Return whether the disk caused the error: it is full, read-only or damaged, access is not permitted, or too many
    files are open."""
    if isinstance(error, OSError):
        return error.errno in _ERRNOS
    return is_from_rocksdb(error) and any(text in str(error) for text in _TEXTS)


def refuse_failed_write(path: str | Path, error: Exception) -> NoReturn:
    """Raise the coded error for a write that failed. Raise any other error unchanged.

    Raises:
        LocalDiskError: RocksDB or the operating system did not write.
    """
    if isinstance(error, OSError) or is_from_rocksdb(error):
        raise LocalDiskError(f"state cannot be written to {path}: {str(error)[:_SHOWN]}", remedy=_REMEDY) from error
    raise error


@contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """Turn an error of RocksDB or of files in the block into a `LocalDiskError`."""
    try:
        yield
    except Exception as error:
        refuse_failed_write(path, error)
