"""Checkpoint storage as the operator needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.storage.snapshots import Left, StoredSnapshot, Verdict


class Storage(Protocol):
    """The checkpoints and savepoints of one job. Every method raises `StorageError` if storage does not answer."""

    async def newest_complete(self, root: str, job_id: str) -> StoredSnapshot | None:
        """The newest checkpoint of an incarnation that a restore can use, or None if there is none at all."""

    async def verify(self, path: str) -> Verdict:
        """Whether a checkpoint or savepoint is whole."""

    async def savepoints(self, directory: str) -> list[StoredSnapshot]:
        """Complete savepoints directly in a folder, newest first."""

    async def left_by(self, root: str, prefix: str, savepoints: str, folder: str) -> Left:
        """What FlinkJobs of one name have left: incarnations below `root` whose id has the prefix, and savepoints below the
        folders of `savepoints` that begin with `folder` and go on with a uid."""

    async def fence(self, root: str, job_id: str) -> None:
        """Make sure that no master of an incarnation can complete a checkpoint any more."""

    async def release(self, root: str, job_id: str, path: str) -> None:
        """Tell the master of an incarnation that stands by what it starts from; empty: nothing to restore."""

    async def dispose(self, path: str) -> None:
        """Delete a savepoint; one that is gone is fine."""

    async def dispose_job(self, root: str, job_id: str) -> None:
        """Delete all checkpoints of an incarnation."""


class StorageFactory(Protocol):
    """Opens the storage of a job."""

    def __call__(self, spec: FlinkJobSpec, secret: Mapping[str, str]) -> Storage:
        """`secret`: the content of `storage.secretName`."""
