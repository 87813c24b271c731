"""The end of a job: all its checkpoints are deleted, so that no remaining or late file counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.checkpoint.coordinator.cleaner import Cleaner
from penstock.checkpoint.files.layout import LATEST, METADATA, SHARED, checkpoint_folder
from penstock.checkpoint.leadership.lineage import Base
from penstock.checkpoint.savepoint.drain_notes import FOLDER
from penstock.checkpoint.store.object_store import relative_url
from penstock.common.errors import PenstockError

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from penstock.checkpoint.files.storage import CheckpointStorage
    from penstock.checkpoint.leadership.fencing import Leadership


@dataclass(frozen=True)
class ShutdownReport:
    """The result of deleting a job's checkpoints. `undeleted`: objects that could not be deleted."""

    kept: bool
    reason: str
    undeleted: int = 0
    needed: dict[str, list[Any]] | None = None
    """Committables of every snapshot of the job that may still be restored, by uid; None means that this JobManager
    does not know them.
    """
    unconfirmed: dict[str, list[Any]] = field(default_factory=dict)
    """Pre-committed committables whose commit is not confirmed, by uid."""


def delete_checkpoints(
    storage: CheckpointStorage, leadership: Leadership, next_checkpoint_id: int, executor: Executor
) -> ShutdownReport:
    """Delete all checkpoints. This blocks.

    An empty base is written first. A manifest that arrives later, or that a crash leaves here, then does not count.
    """
    try:
        last = leadership.renew()
        last.begin(Base(last.epoch, next_checkpoint_id))
        cleaner = Cleaner(storage, executor, last.check)
        cleaner.discard_in_order(*_everything(storage))
    except PenstockError as error:
        return ShutdownReport(kept=True, reason=error.message)
    return ShutdownReport(kept=False, reason="deleted", undeleted=cleaner.drain_now())


def _everything(storage: CheckpointStorage) -> tuple[list[str], list[str]]:
    """Return all manifests, and the objects to delete after the manifests: all shared files and the hint. The records
    under `leader/` are kept.
    """
    manifests = [f"{checkpoint_folder(id)}/{METADATA}" for id in storage.checkpoint_ids()]
    shared = [relative_url(info.url, storage.url) for info in storage.list_objects(SHARED)]
    notes = [f"{FOLDER}/{name}" for name in storage.list_names(FOLDER)]
    return manifests, [*shared, *notes, LATEST]
