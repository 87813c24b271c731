"""The release record: it starts a job whose processes were started in advance, and names the job's state.

Problem: a new incarnation must take over within seconds, but its processes take longer to start. Its state is known
only after the old incarnation has stopped.

Solution: the processes start in advance, do nothing, and poll for a record in the folder of the future job. The record
is in storage and not in a request to the process. So a restarted process also finds the record, and a released job
always starts from the same place.

Guarantee: before the record exists, the job claims nothing, reads no checkpoint and writes nothing. The first record
counts.
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
    """Path of a savepoint or checkpoint; empty means that the job starts with empty state."""


def release(storage: CheckpointStorage, record: ReleaseRecord) -> None:
    """Release the job. A second call with the same record has no effect.

    >>> storage = CheckpointStorage("memory://doc/release", "job-1")
    >>> read_release(storage) is None
    True
    >>> release(storage, ReleaseRecord("s3://b/savepoint-1"))
    >>> release(storage, ReleaseRecord("s3://b/savepoint-1"))
    >>> read_release(storage)
    ReleaseRecord(restore='s3://b/savepoint-1')

    Raises:
        StorageError: the job was released from another place before, or the outcome of the write is unknown.
    """
    if storage.put_if_absent(RELEASE, msgspec.json.encode(record)):
        return
    before = read_release(storage)
    if before != record:
        where = before.restore or "empty state" if before is not None else "nowhere"
        raise StorageError(f"{storage.url} was released before, from {where}", remedy="start the job under another id")


def read_release(storage: CheckpointStorage) -> ReleaseRecord | None:
    """Return the job's release record; None means that the job must wait.

    Raises:
        SnapshotTorn: the record cannot be read.
        StorageError: the store does not respond.
    """
    try:
        return read_record(storage, RELEASE, ReleaseRecord, "this record states where the job starts. Write it again")
    except ObjectMissing:
        return None
