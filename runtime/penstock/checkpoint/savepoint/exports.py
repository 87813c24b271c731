"""Requested savepoints: those that wait for their checkpoint, those that are being copied, and the results.

A savepoint is a checkpoint that is also exported (docs/checkpoint-protocol.md, 5). The coordinator takes the
checkpoint. A background thread copies the files, which the registry holds during the copy. Callers hold the
coordinator's lock.
"""

from __future__ import annotations

import queue
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.checkpoint.events import SavepointRequest, SavepointStatus
from penstock.checkpoint.files.codec import objects_of
from penstock.checkpoint.savepoint.drain_notes import write_note
from penstock.checkpoint.savepoint.savepoints import SavepointCancelled, check_target, write_savepoint
from penstock.common.errors import PenstockError, StorageError

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from penstock.checkpoint.files.manifest import Manifest
    from penstock.checkpoint.files.registry import SharedStateRegistry
    from penstock.checkpoint.files.storage import CheckpointStorage

_REMEMBERED = 1000
"""Number of statuses that are kept for clients that poll."""


@dataclass(frozen=True)
class Copied:
    """A finished copy: `url` or `error`. `garbage`: files that are no longer needed."""

    request: SavepointRequest
    checkpoint_id: int
    url: str = ""
    error: PenstockError | None = None
    garbage: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Copying:
    request: SavepointRequest
    checkpoint_id: int
    registry: SharedStateRegistry
    since: int


class SavepointExports:
    """The savepoints of one job. The module's docstring describes them."""

    def __init__(self, storage: CheckpointStorage, default_directory: str | None, executor: Executor) -> None:
        self._storage = storage
        self._default_directory = default_directory
        self._executor = executor
        self._waiting: list[SavepointRequest] = []
        self._copying: dict[str, _Copying] = {}
        self._done: queue.SimpleQueue[Copied] = queue.SimpleQueue()
        self._statuses: dict[str, SavepointStatus] = {}
        self.commits: dict[str, list[Any]] = {}
        """Committables that the newest savepoint names, by uid. They include the unfinished committables of older
        savepoints.
        """

    def check_target(self, target_directory: str | None) -> str:
        """Return the folder of a savepoint.

        Raises:
            InvalidJob: no directory is given and none is configured.
        """
        return check_target(target_directory, self._default_directory)

    def ask(self, target_directory: str | None, *, is_final: bool, drain: bool, request_id: str) -> str:
        """Add a request for a savepoint.

        Raises:
            InvalidJob: no directory is given and none is configured.
        """
        target = self.check_target(target_directory)
        request = SavepointRequest(request_id or uuid.uuid4().hex, target, is_final, drain)
        self._waiting.append(request)
        self._statuses[request.request_id] = SavepointStatus(
            request.request_id, "IN_PROGRESS", target_directory=target, is_final=is_final
        )
        while len(self._statuses) > _REMEMBERED:
            del self._statuses[next(iter(self._statuses))]
        return request.request_id

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def is_copying(self) -> bool:
        return bool(self._copying)

    def next(self) -> SavepointRequest | None:
        """Remove and return the request that has waited longest. Its savepoint is taken now."""
        return self._waiting.pop(0) if self._waiting else None

    def requeue(self, request: SavepointRequest) -> None:
        """Put a request back to the front of the queue, because its checkpoint must be taken again. Its status does not change."""
        self._waiting.insert(0, request)

    def copy(self, request: SavepointRequest, manifest: Manifest, registry: SharedStateRegistry, now: int) -> None:
        """Start the copy of a checkpoint whose files are all durable."""
        registry.register(_holder(request), objects_of(manifest))
        self._copying[request.request_id] = _Copying(request, manifest.checkpoint_id, registry, now)
        self.commits = (
            manifest.commits
        )  # also for a failed or cancelled copy, because the savepoint may still be complete
        self._executor.submit(self._copy_in_background, request, manifest)

    def _copy_in_background(self, request: SavepointRequest, manifest: Manifest) -> None:
        id = manifest.checkpoint_id

        def note(folder: str) -> None:
            if request.drain:
                write_note(self._storage, manifest, folder)

        try:
            url = write_savepoint(
                manifest,
                self._storage.url,
                request.target_directory,
                self._storage.stores,
                is_cancelled=lambda: request.is_cancelled,
                on_folder=note,
            )
            self._done.put(Copied(request, id, url))
        except SavepointCancelled:
            return
        except PenstockError as error:
            self._done.put(Copied(request, id, error=error))
        except Exception as error:
            failure = StorageError(f"the savepoint cannot be written to {request.target_directory}: {error!r}")
            self._done.put(Copied(request, id, error=failure))

    def expire(self, now: int, timeout_ms: int) -> None:
        """Cancel copies that take too long."""
        for copying in self._copying.values():
            if now - copying.since >= timeout_ms and not copying.request.is_cancelled:
                copying.request.is_cancelled = True
                error = StorageError(
                    f"the savepoint is not copied to {copying.request.target_directory} after {timeout_ms} ms",
                    remedy="raise execution.checkpointing.timeout, or check why the store is slow",
                )
                self._done.put(Copied(copying.request, copying.checkpoint_id, error=error))

    def take_copied(self) -> list[Copied]:
        """Return the copies that have ended since the last call, and set their statuses."""
        ended = []
        while not self._done.empty():
            copied = self._done.get()
            copying = self._copying.pop(copied.request.request_id, None)
            if copying is None:
                continue  # cancelled when it was nearly done
            ended.append(replace(copied, garbage=tuple(copying.registry.release(_holder(copying.request)))))
            if copied.error is None:
                self._set_status(copying.request, "COMPLETED", location=copied.url)
            else:
                self.fail(copying.request, copied.error)
        return ended

    def cancel_all(self) -> list[tuple[SavepointRequest, int | None]]:
        """Remove and return all savepoints after a failover or the end of the job.

        A savepoint that is being copied comes with the number of its checkpoint. A waiting savepoint comes with None.

        The caller marks all these savepoints as failed.
        """
        copying = [(copying.request, copying.checkpoint_id) for copying in self._copying.values()]
        cancelled: list[tuple[SavepointRequest, int | None]] = [
            *copying,
            *((request, None) for request in self._waiting),
        ]
        for request, _ in cancelled:
            request.is_cancelled = True
        self._copying, self._waiting = {}, []
        return cancelled

    def fail(self, request: SavepointRequest, error: PenstockError) -> None:
        self._set_status(request, "FAILED", failure=str(error))

    def status(self, request_id: str) -> SavepointStatus | None:
        return self._statuses.get(request_id)

    def _set_status(self, request: SavepointRequest, status: str, *, location: str = "", failure: str = "") -> None:
        self._statuses[request.request_id] = SavepointStatus(
            request.request_id, status, location or None, failure or None, request.target_directory, request.is_final
        )


def _holder(request: SavepointRequest) -> str:
    return f"savepoint-{request.request_id}"
