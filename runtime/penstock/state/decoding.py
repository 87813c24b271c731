"""The error with a code for stored bytes that cannot be decoded.

A checksum proves that a file is the file that its handle names. It does not prove that Penstock wrote the file. For
bytes that Penstock did not write, a decoder can raise any Python error. Each reader of storage therefore runs inside
`decoding`. A state handle that is read for every record calls `refuse_undecodable` in an `except` clause instead,
because a context manager would slow down each read.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from penstock.common.errors import CorruptStateFile, LocalDiskError, PenstockError
from penstock.state.local_disk import is_disk_error

if TYPE_CHECKING:
    from collections.abc import Iterator

_SHOWN = 300


@contextmanager
def decoding(description: str, *, operator: str = "") -> Iterator[None]:
    """Convert an error of the block that has no code into a `CorruptStateFile`. The original error becomes its cause.

    Args:
        description: name of the file or the state, for the error.
        operator: name of the operator that owns the state, for the error.

    Raises:
        LocalDiskError: the disk is the reason, for example because it is full.
        CorruptStateFile: the block raised another error that is not a `PenstockError`.

    >>> with decoding("state 'totals'"):
    ...     int.from_bytes(None)
    Traceback (most recent call last):
    ...
    penstock.common.errors.CorruptStateFile: [CORRUPT_STATE_FILE] state 'totals' cannot be decoded: TypeError: ...
    """
    try:
        yield
    except Exception as error:
        refuse_undecodable(description, error, operator=operator)


def refuse_undecodable(description: str, error: Exception, *, operator: str = "") -> NoReturn:
    """Raise the coded error for an error of a decoder. `decoding` explains the arguments.

    A `PenstockError` is raised unchanged, except that the operator is added if the error names no operator.

    Raises:
        LocalDiskError: the disk is the reason, for example because it is full.
        CorruptStateFile: `error` has another reason and is not a `PenstockError`. `error` becomes the cause.
    """
    if isinstance(error, PenstockError):
        error.operator = error.operator or operator
        raise error
    if is_disk_error(error):
        raise LocalDiskError(
            f"{description} cannot be put on the local disk: {str(error)[:_SHOWN]}",
            remedy="check the disk of this TaskManager. The job restarts from its newest checkpoint",
            operator=operator,
        ) from error
    raise CorruptStateFile(
        f"{description} cannot be decoded: {type(error).__name__}: {str(error)[:_SHOWN]}",
        remedy="restore another checkpoint or savepoint by naming its path",
        operator=operator,
    ) from error
