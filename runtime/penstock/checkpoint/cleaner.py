"""Deletes in the background what nobody needs, and tries again later what could not be deleted.

Order matters (I5): the manifest goes first, the files only it named after it. Nothing waits for the cleaner; whatever it
did not get to is found again as an orphan.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.checkpoint.codec import files_of
from penstock.checkpoint.fencing import list_leader_folder
from penstock.checkpoint.layout import METADATA, SHARED, base_path, checkpoint_folder, claim_path
from penstock.checkpoint.object_store import ObjectMissing, relative_url
from penstock.common.errors import Fenced, PenstockError, SnapshotNotFound, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from concurrent.futures import Executor

    from penstock.checkpoint.recovery import Recovery
    from penstock.checkpoint.registry import SharedStateRegistry
    from penstock.checkpoint.storage import CheckpointStorage

logger = logging.getLogger(__name__)

CLOCK_MARGIN = 2.0
"""Seconds by which an object must be older than the newest manifest; S3 lists times in whole seconds."""
_BATCH = 100


@dataclass(frozen=True)
class _Work:
    """Paths to delete, strictly in this order."""

    paths: tuple[str, ...]


class Cleaner:
    """A queue of deletions of one job. Thread-safe. `may_delete` raises when this process must not act any more."""

    def __init__(
        self, storage: CheckpointStorage, executor: Executor, may_delete: Callable[[], None] = lambda: None
    ) -> None:
        self._storage = storage
        self._executor = executor
        self._may_delete = may_delete
        self._lock = threading.Lock()
        self._queue: deque[_Work] = deque()
        self._running = False
        self._closed = False
        self.deleted = 0

    @property
    def pending(self) -> int:
        """Objects still to be deleted."""
        with self._lock:
            return sum(len(work.paths) for work in self._queue)

    def discard_files(self, paths: Iterable[str]) -> None:
        """Files of `shared/` that the registry gave up."""
        self._add([*paths])

    def discard_checkpoint(self, checkpoint_id: int, garbage: Iterable[str]) -> None:
        """A subsumed checkpoint's manifest, then the files only it named."""
        self._add([f"{checkpoint_folder(checkpoint_id)}/{METADATA}", *garbage])

    def find_leftovers(self, recovery: Recovery, newest_checkpoint_id: int, registry: SharedStateRegistry) -> None:
        """Once, in the background: queue what dead leaders and subtasks left behind (protocol, 6)."""

        def find() -> None:
            try:
                for checkpoint_id, files in void_checkpoints(self._storage, recovery.void_ids, registry.is_needed):
                    self.discard_checkpoint(checkpoint_id, files)
                self.discard_files(find_orphans(self._storage, newest_checkpoint_id, registry.is_needed))
                self.discard_files(obsolete_leader_files(self._storage, recovery.epoch, recovery.obsolete_epochs))
            except (ObjectMissing, Fenced) as gone:
                logger.debug("leftovers are another leader's business: %s", gone)
            except PenstockError as error:
                logger.warning("leftovers of earlier attempts stay for now: %s", error)

        try:
            self._executor.submit(find)
        except RuntimeError:
            pass  # the pool was shut down: the next leader finds them

    def start(self) -> None:
        """Work through the queue in the background, once; call it now and then (each tick) to retry what failed."""
        with self._lock:
            if self._running or self._closed or not self._queue:
                return
            self._running = True
        try:
            self._executor.submit(self._drain)
        except RuntimeError:  # the pool was shut down
            with self._lock:
                self._running = False

    def close(self) -> None:
        """Start nothing new; what is queued is left to the orphan clean-up of the next leader."""
        with self._lock:
            self._closed = True

    def drain_now(self) -> int:
        """Work through the queue in this thread. Returns how many objects could not be deleted."""
        with self._lock:
            self._running = True
        self._drain()
        return self.pending

    def _add(self, paths: list[str]) -> None:
        if not paths:
            return
        with self._lock:
            self._queue.extend(_Work(tuple(paths[i : i + _BATCH])) for i in range(0, len(paths), _BATCH))

    def _drain(self) -> None:
        try:
            with self._lock:
                rounds = len(self._queue)
            for _ in range(rounds):
                with self._lock:
                    if self._closed or not self._queue:
                        return
                    work = self._queue.popleft()
                rest = self._delete(work.paths)
                if rest:
                    with self._lock:
                        self._queue.append(_Work(rest))
                    return
        finally:
            with self._lock:
                self._running = False

    def _delete(self, paths: tuple[str, ...]) -> tuple[str, ...]:
        """Returns what is left to do after a failure."""
        for done, path in enumerate(paths):
            try:
                if done == 0:
                    self._may_delete()
                self._storage.delete(path)
                self.deleted += 1
            except Fenced as error:
                logger.debug("%s is another leader's to delete: %s", self._storage.url_of(path), error.message)
                return paths[done:]
            except PenstockError as error:
                logger.warning("cannot delete %s, trying again later: %s", self._storage.url_of(path), error.message)
                return paths[done:]
        return ()


def find_orphans(storage: CheckpointStorage, newest_checkpoint_id: int, is_needed: Callable[[str], bool]) -> list[str]:
    """Paths under `shared/` that no manifest in the folder names and that are older than the newest checkpoint.

    Void manifests count as naming their files here: they are removed as checkpoints, files after them. One that is gone
    since it was listed names nothing: it was subsumed, by this leader or, if this one was stopped for a while, by its successor.

    Raises:
        StorageError: the store does not answer; nothing was decided.
        ObjectMissing: the newest checkpoint is gone, so a successor acts.
    """
    manifest_url = storage.url_of(f"{checkpoint_folder(newest_checkpoint_id)}/{METADATA}")
    newest = storage.store.head(manifest_url).modified
    if newest is None:
        return []
    listed = storage.list_objects(SHARED)
    named = set()
    for checkpoint_id in storage.checkpoint_ids():
        try:
            named |= {file.path for file in files_of(storage.read_manifest(checkpoint_id))}
        except SnapshotNotFound:
            continue
        except StorageError as error:
            logger.warning("checkpoint %d cannot be read, so no orphans are removed: %s", checkpoint_id, error)
            return []
    orphans = []
    for info in listed:
        path = relative_url(info.url, storage.url)
        is_old = info.modified is not None and info.modified < newest - CLOCK_MARGIN
        if is_old and path not in named and not is_needed(path):
            orphans.append(path)
    return orphans


def obsolete_leader_files(storage: CheckpointStorage, epoch: int, obsolete_bases: Iterable[int]) -> list[str]:
    """Claims below this leader's, and bases that no retained manifest needs. The newest of each stays (I6)."""
    claims = [claim_path(claim) for claim in list_leader_folder(storage).claims if claim < epoch]
    return [*claims, *(base_path(base) for base in obsolete_bases if base < epoch)]


def void_checkpoints(
    storage: CheckpointStorage, void_ids: Iterable[int], is_needed: Callable[[str], bool]
) -> list[tuple[int, list[str]]]:
    """For each void checkpoint its number and the files nobody else needs."""
    found = []
    for checkpoint_id in void_ids:
        try:
            files = files_of(storage.read_manifest(checkpoint_id))
        except StorageError:
            continue
        found.append((checkpoint_id, [file.path for file in files if not is_needed(file.path)]))
    return found
