"""Deletes in the background what nobody needs, and tries again later what could not be deleted.

Order matters (I5): the manifest goes first, the files only it named after it. So a round takes everything that is queued,
deletes the manifests in as few requests as the store allows (1,000 objects each on S3), then the files of those that are
gone. Nothing waits for the cleaner; whatever it did not get to is found again as an orphan.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.checkpoint.files.codec import objects_of
from penstock.checkpoint.files.layout import METADATA, SHARED, base_path, checkpoint_folder, claim_path
from penstock.checkpoint.leadership.fencing import list_leader_folder
from penstock.checkpoint.store.object_store import DELETES_AT_ONCE, ObjectMissing, relative_url
from penstock.common.errors import Fenced, PenstockError, SnapshotNotFound, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from concurrent.futures import Executor

    from penstock.checkpoint.files.registry import SharedStateRegistry
    from penstock.checkpoint.files.storage import CheckpointStorage
    from penstock.checkpoint.recovery.takeover import Recovery

logger = logging.getLogger(__name__)

CLOCK_MARGIN = 2.0
"""Seconds by which an object must be older than the newest manifest; S3 lists times in whole seconds."""
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
"""Seconds until what could not be deleted is tried again: doubled from the first to the longest."""


@dataclass(frozen=True)
class _Work:
    """Paths to delete: `then` only when `first` are gone."""

    first: tuple[str, ...]
    then: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.first) + len(self.then)

    def without(self, gone: set[str]) -> _Work:
        return _Work(
            tuple(path for path in self.first if path not in gone),
            tuple(path for path in self.then if path not in gone),
        )


class Cleaner:
    """A queue of deletions of one job. Thread-safe. `may_delete` raises when this process must not act any more."""

    def __init__(
        self,
        storage: CheckpointStorage,
        executor: Executor,
        may_delete: Callable[[], None] = lambda: None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._storage = storage
        self._executor = executor
        self._may_delete = may_delete
        self._lock = threading.Lock()
        self._queue: deque[_Work] = deque()
        self._running = False
        self._closed = False
        self._clock = clock
        self._failures = 0
        self._retry_at = -math.inf
        self.deleted = 0

    @property
    def pending(self) -> int:
        """Objects still to be deleted."""
        with self._lock:
            return sum(map(len, self._queue))

    def discard_files(self, paths: Iterable[str]) -> None:
        """Files of `shared/` that the registry gave up."""
        self._add(_Work(tuple(paths)))

    def discard_checkpoint(self, checkpoint_id: int, garbage: Iterable[str]) -> None:
        """A subsumed checkpoint's manifest, then the files only it named."""
        self._add(_Work((f"{checkpoint_folder(checkpoint_id)}/{METADATA}",), tuple(garbage)))

    def discard_in_order(self, first: Iterable[str], then: Iterable[str]) -> None:
        """The first ones, and when all of them are gone the others."""
        self._add(_Work(tuple(first), tuple(then)))

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
        """Work through the queue in the background, once; call it now and then (each tick).

        What failed is tried again after a pause that grows from one second to a minute.
        """
        with self._lock:
            if self._running or self._closed or not self._queue or self._clock() < self._retry_at:
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

    def _add(self, work: _Work) -> None:
        if len(work):
            with self._lock:
                self._queue.append(work)

    def _drain(self) -> None:
        """Everything that is queued now, once, as many objects at a time as the store takes in one request."""
        try:
            with self._lock:
                works = list(self._queue)
                self._queue.clear()
            left = works
            try:
                for choose in (_first, _then):
                    left = self._delete_chosen(left, choose)
            finally:
                left = [work for work in left if len(work)]
                with self._lock:
                    self._queue.extend(left)
                    self._failures = self._failures + 1 if left else 0
                    pause = min(FIRST_PAUSE * 2.0 ** min(self._failures - 1, 30), LONGEST_PAUSE)
                    self._retry_at = self._clock() + pause if left else -math.inf
        finally:
            with self._lock:
                self._running = False

    def _delete_chosen(self, works: list[_Work], choose: Callable[[_Work], tuple[str, ...]]) -> list[_Work]:
        """Delete what is chosen of each; returns what is left of all."""
        paths = [path for work in works for path in choose(work)]
        gone: set[str] = set()
        for start in range(0, len(paths), DELETES_AT_ONCE):
            if self._closed:
                break
            chunk = paths[start : start + DELETES_AT_ONCE]
            failed = self._delete(chunk)
            gone.update(path for path in chunk if path not in failed)
            if len(failed) == len(chunk):
                break  # the store is away, or refuses: the rest would only wait for it as well
        self.deleted += len(gone)
        return [work.without(gone) for work in works]

    def _delete(self, paths: list[str]) -> Collection[str]:
        """Returns what could not be deleted."""
        try:
            self._may_delete()
            failed = self._storage.delete_many(paths)
        except Fenced as error:
            logger.debug("%s is another leader's to delete: %s", self._storage.url_of(paths[0]), error.message)
            return paths
        except PenstockError as error:
            logger.warning("cannot delete %d objects, trying again later: %s", len(paths), error.message)
            return paths
        if failed:
            example = next(iter(failed.values()))
            logger.warning(
                "cannot delete %d objects, trying again later; one of them: %s", len(failed), example.message
            )
        return failed


def _first(work: _Work) -> tuple[str, ...]:
    return work.first


def _then(work: _Work) -> tuple[str, ...]:
    return () if work.first else work.then


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
            named |= set(objects_of(storage.read_manifest(checkpoint_id)))
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
            paths = objects_of(storage.read_manifest(checkpoint_id))
        except StorageError:
            continue
        found.append((checkpoint_id, [path for path in paths if not is_needed(path)]))
    return found
