"""Background deletion of objects that are no longer needed, with retries.

A manifest is deleted before the files that only it names. So a crash in between never leaves a manifest whose files are
missing.

One round takes all queued work and deletes the manifests in as few requests as the store allows (1,000 objects each on
S3). Then it deletes the files of the manifests that are gone. No caller waits for the cleaner. A later search for
orphans finds all objects that the cleaner has not deleted.
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
from penstock.checkpoint.store.object_store import MAX_DELETES, ObjectMissing, relative_url
from penstock.common.errors import Fenced, PenstockError, SnapshotNotFound, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from concurrent.futures import Executor

    from penstock.checkpoint.files.registry import SharedStateRegistry
    from penstock.checkpoint.files.storage import CheckpointStorage
    from penstock.checkpoint.recovery.takeover import Recovery

logger = logging.getLogger(__name__)

CLOCK_MARGIN = 2.0
"""Seconds by which an object must be older than the newest manifest. S3 lists times in whole seconds."""
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
"""Longest pause in seconds before a failed deletion is tried again. Each pause is twice the previous pause, up to this
limit.
"""


@dataclass(frozen=True)
class _Work:
    """Paths to delete. The paths in `then` are deleted only when all in `first` are gone."""

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
    """The deletion queue of one job. Thread-safe. `may_delete` raises when this process must no longer act."""

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
        """Number of objects still to be deleted."""
        with self._lock:
            return sum(map(len, self._queue))

    def discard_files(self, paths: Iterable[str]) -> None:
        """Queue files of `shared/` that the registry has released."""
        self._add(_Work(tuple(paths)))

    def discard_checkpoint(self, checkpoint_id: int, garbage: Iterable[str]) -> None:
        """Queue the manifest of a subsumed checkpoint, and after the manifest the files that only this manifest named."""
        self._add(_Work((f"{checkpoint_folder(checkpoint_id)}/{METADATA}",), tuple(garbage)))

    def discard_in_order(self, first: Iterable[str], then: Iterable[str]) -> None:
        """Queue the paths. The paths in `then` are deleted only when all paths in `first` are gone."""
        self._add(_Work(tuple(first), tuple(then)))

    def find_leftovers(self, recovery: Recovery, newest_checkpoint_id: int, registry: SharedStateRegistry) -> None:
        """Queue the files that dead leaders and subtasks left behind. This runs once, in the background."""

        def find() -> None:
            try:
                for checkpoint_id, files in void_checkpoints(self._storage, recovery.void_ids, registry.is_needed):
                    self.discard_checkpoint(checkpoint_id, files)
                self.discard_files(find_orphans(self._storage, newest_checkpoint_id, registry.is_needed))
                self.discard_files(obsolete_leader_files(self._storage, recovery.epoch, recovery.obsolete_epochs))
            except (ObjectMissing, Fenced) as gone:
                logger.debug("leftovers are not deleted, because another leader manages them now: %s", gone)
            except PenstockError as error:
                logger.warning("leftovers of earlier attempts could not be deleted yet: %s", error)

        try:
            self._executor.submit(find)
        except RuntimeError:
            pass  # the pool was shut down: the next leader finds the leftovers

    def start(self) -> None:
        """Start one round in the background. Call this regularly, with each tick.

        A failed deletion is tried again after a pause that grows from one second to a minute.
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
        """Start no new round. The orphan clean-up of the next leader finds the queued objects."""
        with self._lock:
            self._closed = True

    def drain_now(self) -> int:
        """Delete the queued objects in this thread. Return the number of objects that could not be deleted."""
        with self._lock:
            self._running = True
        self._drain()
        return self.pending

    def _add(self, work: _Work) -> None:
        if len(work):
            with self._lock:
                self._queue.append(work)

    def _drain(self) -> None:
        """Run one round: delete all queued objects, with as many in one request as the store takes."""
        try:
            with self._lock:
                works = list(self._queue)
                self._queue.clear()
            remaining = works
            try:
                for choose in (_first, _then):
                    remaining = self._delete_chosen(remaining, choose)
            finally:
                remaining = [work for work in remaining if len(work)]
                with self._lock:
                    self._queue.extend(remaining)
                    self._failures = self._failures + 1 if remaining else 0
                    pause = min(FIRST_PAUSE * 2.0 ** min(self._failures - 1, 30), LONGEST_PAUSE)
                    self._retry_at = self._clock() + pause if remaining else -math.inf
        finally:
            with self._lock:
                self._running = False

    def _delete_chosen(self, works: list[_Work], choose: Callable[[_Work], tuple[str, ...]]) -> list[_Work]:
        """Delete the chosen paths of each work. Return the remaining paths of all works."""
        paths = [path for work in works for path in choose(work)]
        gone: set[str] = set()
        for start in range(0, len(paths), MAX_DELETES):
            if self._closed:
                break
            chunk = paths[start : start + MAX_DELETES]
            failed = self._delete(chunk)
            gone.update(path for path in chunk if path not in failed)
            if len(failed) == len(chunk):
                break  # the store is unavailable or refuses requests, so the other chunks would fail too
        self.deleted += len(gone)
        return [work.without(gone) for work in works]

    def _delete(self, paths: list[str]) -> Collection[str]:
        """Delete objects and return the paths that could not be deleted."""
        try:
            self._may_delete()
            failed = self._storage.delete_many(paths)
        except Fenced as error:
            logger.debug(
                "%s is not deleted here, because another leader manages it now: %s",
                self._storage.url_of(paths[0]),
                error.message,
            )
            return paths
        except PenstockError as error:
            logger.warning("cannot delete %d objects; a later attempt follows: %s", len(paths), error.message)
            return paths
        if failed:
            example = next(iter(failed.values()))
            logger.warning(
                "cannot delete %d objects; a later attempt follows. One of them: %s", len(failed), example.message
            )
        return failed


def _first(work: _Work) -> tuple[str, ...]:
    return work.first


def _then(work: _Work) -> tuple[str, ...]:
    return () if work.first else work.then


def find_orphans(storage: CheckpointStorage, newest_checkpoint_id: int, is_needed: Callable[[str], bool]) -> list[str]:
    """Return the paths under `shared/` that no manifest in the folder names and that are older than the newest checkpoint.

    Void manifests also protect their files here, because a void manifest must be deleted before its files. A manifest that
    disappears after the listing was subsumed, by this leader or by its successor, and protects nothing.

    Raises:
        StorageError: the store does not respond. The result is unknown.
        ObjectMissing: the newest checkpoint is gone, so a successor is active.
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
    """Return the paths of the claims before this leader's claim, and of the bases that no retained manifest needs.

    The newest claim and the newest base are not returned, so they are kept.
    """
    claims = [claim_path(claim) for claim in list_leader_folder(storage).claims if claim < epoch]
    return [*claims, *(base_path(base) for base in obsolete_bases if base < epoch)]


def void_checkpoints(
    storage: CheckpointStorage, void_ids: Iterable[int], is_needed: Callable[[str], bool]
) -> list[tuple[int, list[str]]]:
    """Return each void checkpoint's number and the files that no other manifest needs."""
    found = []
    for checkpoint_id in void_ids:
        try:
            paths = objects_of(storage.read_manifest(checkpoint_id))
        except StorageError:
            continue
        found.append((checkpoint_id, [path for path in paths if not is_needed(path)]))
    return found
