"""Protocol of the checkpoint storage: the functions that the operator uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.storage.snapshots import Beginning, Left, StoredSnapshot, Verdict


class Storage(Protocol):
    """The checkpoints and savepoints of one job. Every method raises `StorageError` if storage does not respond."""

    async def newest_complete(self, root: str, job_id: str) -> StoredSnapshot | None:
        """Return the newest checkpoint of an incarnation, or None if the incarnation has no checkpoint. `torn` is set
        if a restore cannot use it.
        """

    async def beginning(self, root: str, job_id: str) -> Beginning:
        """Return the records of the start of an incarnation."""

    async def verify(self, path: str) -> Verdict:
        """Verify that a checkpoint or savepoint is complete."""

    async def savepoints(self, directory: str) -> list[StoredSnapshot]:
        """Return the complete savepoints directly in a folder, newest first."""

    async def left_by(self, root: str, prefix: str, savepoints: str, folder: str) -> Left:
        """Return the incarnations and savepoints that FlinkJobs of one name have left.

        Args:
            root: folder of the incarnations.
            prefix: prefix of their job ids.
            savepoints: root directory of the savepoints.
            folder: path of the savepoints below `savepoints`, without the uid of the FlinkJob at its end.
        """

    async def fence(self, root: str, job_id: str) -> None:
        """Ensure that no master of an incarnation can complete another checkpoint."""

    async def release(self, root: str, job_id: str, path: str) -> None:
        """Send the source of the state to the waiting master of an incarnation. An empty path stands for empty state."""

    async def dispose(self, path: str) -> None:
        """Delete a savepoint. Do nothing if it does not exist."""

    async def dispose_job(self, root: str, job_id: str) -> None:
        """Delete all checkpoints of an incarnation."""


class StorageFactory(Protocol):
    """Factory of the storages of jobs."""

    def __call__(self, spec: FlinkJobSpec, secret: Mapping[str, str], tenant: str = "") -> Storage:
        """Open the storage of a job.

        Args:
            secret: content of the Secret `storage.secretName`.
            tenant: namespace of the job. Limits apply to all calls of a tenant together.
        """
