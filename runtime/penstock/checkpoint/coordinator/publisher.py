"""Background storage of manifests. The results wait in a queue until the coordinator takes them."""

from __future__ import annotations

import logging
import queue
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.checkpoint.files.layout import LATEST, checkpoint_folder
from penstock.checkpoint.leadership.fencing import PublishOutcome
from penstock.common.errors import PenstockError, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Executor

    from penstock.checkpoint.files.manifest import Manifest
    from penstock.checkpoint.files.storage import CheckpointStorage
    from penstock.checkpoint.leadership.fencing import Leadership

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stored:
    """The result of storing a manifest: an outcome, or an error. After an error, the manifest may still have been stored."""

    leadership: Leadership
    """Leadership under which the manifest was stored. The recovery, not the coordinator, judges the outcome of a former attempt."""
    manifest: Manifest
    outcome: PublishOutcome | None = None
    error: PenstockError | None = None


class ManifestPublisher:
    """The publisher of one job. `publish` returns immediately."""

    def __init__(self, storage: CheckpointStorage, executor: Executor) -> None:
        self._storage = storage
        self._executor = executor
        self._ended: queue.SimpleQueue[Stored] = queue.SimpleQueue()

    def publish(self, leadership: Leadership, manifest: Manifest) -> None:
        self._executor.submit(self._store, leadership, manifest)

    def take(self) -> Iterator[Stored]:
        """Yield the results since the last call."""
        while not self._ended.empty():
            yield self._ended.get()

    def _store(self, leadership: Leadership, manifest: Manifest) -> None:
        try:
            stored = Stored(leadership, manifest, leadership.publish(manifest))
        except PenstockError as error:
            stored = Stored(leadership, manifest, error=error)
        except Exception as error:
            failure = StorageError(f"the manifest of checkpoint {manifest.checkpoint_id} cannot be stored: {error!r}")
            failure.outcome_unknown = True
            stored = Stored(leadership, manifest, error=failure)
        self._ended.put(stored)
        if stored.outcome is PublishOutcome.COMPLETE:
            self._write_hint(manifest.checkpoint_id)

    def _write_hint(self, checkpoint_id: int) -> None:
        try:
            self._storage.put(LATEST, f"{checkpoint_folder(checkpoint_id)}\n".encode())
        except PenstockError as error:
            logger.info("the hint %s was not written: %s", LATEST, error.message)
