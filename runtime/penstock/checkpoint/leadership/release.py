"""The word that lets a job go which was started ahead of time: where its state comes from, said when that is known.

The problem. An incarnation is to take over from another one in seconds, but its processes take longer than that to start, and
until the other has stopped nobody knows what it starts from. The way: they are started before, do nothing, and look for a
record in the folder of the job that is to be. Storage has it rather than a request to the process, so that a process which
is started again finds it, too, and a job that was let go once is let go for ever, from the same place.

What holds. Before the record is there, the job claims nothing, reads no checkpoint and writes nothing. The first word counts.
"""

from __future__ import annotations

import msgspec

from penstock.checkpoint.files.storage import CheckpointStorage, read_record
from penstock.checkpoint.store.object_store import ObjectMissing
from penstock.common.errors import StorageError

RELEASE = "release"


class ReleaseRecord(msgspec.Struct, frozen=True):
    """Content of `<root>/<job-id>/release`."""

    restore: str
    """Path of a savepoint or checkpoint; empty: the job starts with empty state."""


def release(storage: CheckpointStorage, record: ReleaseRecord) -> None:
    """Let the job go; once more with the same word changes nothing.

    >>> storage = CheckpointStorage("memory://doc/release", "job-1")
    >>> read_release(storage) is None
    True
    >>> release(storage, ReleaseRecord("s3://b/savepoint-1"))
    >>> release(storage, ReleaseRecord("s3://b/savepoint-1"))
    >>> read_release(storage)
    ReleaseRecord(restore='s3://b/savepoint-1')

    Raises:
        StorageError: it was let go from another place before; or it is not known whether the record was stored.
    """
    if storage.put_if_absent(RELEASE, msgspec.json.encode(record)):
        return
    before = read_release(storage)
    if before != record:
        where = before.restore or "empty state" if before is not None else "nowhere"
        raise StorageError(f"{storage.url} was released before, from {where}", remedy="start the job under another id")


def read_release(storage: CheckpointStorage) -> ReleaseRecord | None:
    """Where the job starts from; None: it is to wait.

    Raises:
        SnapshotTorn: the record cannot be read.
        StorageError: the store does not answer.
    """
    try:
        return read_record(storage, RELEASE, ReleaseRecord, "it says where the job starts from; write it anew")
    except ObjectMissing:
        return None
