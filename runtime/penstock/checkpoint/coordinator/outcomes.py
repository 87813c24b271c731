"""Outcomes of checkpoints and savepoints: timeouts, the results of background work, and the events that follow.

This half of the CheckpointCoordinator decides when a checkpoint is complete, abandoned or in doubt (rules in
docs/checkpoint-protocol.md). The other half (`coordinator`) takes triggers and answers.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from penstock import __version__
from penstock.checkpoint.coordinator.commits import CommitLedger
from penstock.checkpoint.coordinator.publisher import ManifestPublisher
from penstock.checkpoint.coordinator.schedule import Schedule
from penstock.checkpoint.coordinator.statistics import CheckpointHistory
from penstock.checkpoint.events import (
    CheckpointAborted,
    CheckpointCompleted,
    Event,
    JobMustFail,
    SavepointCompleted,
    SavepointFailed,
    SavepointRequest,
)
from penstock.checkpoint.files.layout import checkpoint_folder
from penstock.checkpoint.leadership.fencing import PublishOutcome
from penstock.checkpoint.savepoint.drain_notes import delete_note, settle_notes
from penstock.checkpoint.savepoint.exports import Copied, SavepointExports
from penstock.checkpoint.savepoint.savepoints import dispose
from penstock.common.errors import (
    EpochFailed,
    Fenced,
    FinalCheckpointRefused,
    PenstockError,
    StateTypeError,
    StorageError,
    StorageRefused,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from penstock.checkpoint.coordinator.attempt import Attempt
    from penstock.checkpoint.coordinator.pending import PendingCheckpoint
    from penstock.checkpoint.coordinator.publisher import Stored
    from penstock.checkpoint.coordinator.settings import CheckpointSettings
    from penstock.checkpoint.files.manifest import Manifest
    from penstock.checkpoint.files.storage import CheckpointStorage


MAX_IN_DOUBT = 16
"""Maximum number of manifests in doubt. When this number is reached, the attempt ends. The base of the next attempt
then decides which manifests count.
"""

logger = logging.getLogger(__name__)


class CheckpointOutcomes:
    """Base of the coordinator; thread-safe."""

    def __init__(
        self,
        storage: CheckpointStorage,
        settings: CheckpointSettings,
        executor: Executor,  # several threads, so that a manifest need not wait for a savepoint's copies
        *,
        ledger: CommitLedger | None = None,
    ) -> None:
        self.storage = storage
        self.settings = settings
        self.history = CheckpointHistory(settings.history_size)
        self._executor = executor
        self._ledger = ledger if ledger is not None else CommitLedger()
        self._lock = threading.RLock()
        self._schedule = Schedule(settings.interval_ms, settings.min_pause_ms)
        self._attempt: Attempt | None = None
        self._ended: Attempt | None = None
        """The attempt that ended last."""
        self._promised: dict[int, list[Any]] = {}
        """Unconfirmed committables that the ended attempt had handed out, by the checkpoint that allowed their commit."""
        self._started_from: dict[str, list[Any]] | None = None
        """Committables of the snapshot from which the first attempt started."""
        self._savepoints = SavepointExports(storage, settings.savepoint_directory, executor)
        self._publisher = ManifestPublisher(storage, executor)
        self._events: list[Event] = []
        self._requests: list[str] = []
        self._failures_in_a_row = 0
        self._final_refusals = 0
        """Number of attempts without a complete checkpoint that ended because storage refused the final checkpoint."""

    def tick(self, now: int) -> list[Event]:
        """Process timeouts and the results of background work, and return the events. Call this after each epoch and while idle."""
        with self._lock:
            for stored in self._publisher.take():
                self._on_stored(stored, now)
            self._savepoints.expire(now, self.settings.timeout_ms)
            self._take_copied(now)
            attempt = self._attempt
            if attempt is not None:
                pending = attempt.pending
                if pending is not None and not pending.has_background_work:
                    if pending.is_ready and not attempt.owed:
                        self._store(attempt, pending, now)
                    elif now - pending.request.timestamp >= self.settings.timeout_ms:
                        message = self._timeout_message(attempt, pending)
                        self._abandon(attempt, message, now, will_ack=pending.is_handed_out)
                attempt.cleaner.start()
            events, self._events = self._events, []
            return events

    def _timeout_message(self, attempt: Attempt, pending: PendingCheckpoint) -> str:
        message = f"not complete after {self.settings.timeout_ms} ms: {pending.describe_missing()}"
        if pending.is_ready and attempt.owed:
            earlier = ", ".join(map(str, sorted(attempt.owed)))
            message += f"; not every subtask has acknowledged earlier checkpoints ({earlier})"
        return message

    def _store(self, attempt: Attempt, pending: PendingCheckpoint, now: int) -> None:
        manifest = pending.manifest(attempt.recovery.epoch, now, self._ledger.for_manifest(pending.id), __version__)
        if pending.savepoint is not None and pending.request.drain:
            # No attempt may start from a drained state. So the manifest is stored last, when no other part of the stop
            # can fail.
            pending.drained = manifest
            self._savepoints.copy(pending.savepoint, manifest, attempt.completed.registry, now)
            return
        self._publish(attempt, pending, manifest)

    def _publish(self, attempt: Attempt, pending: PendingCheckpoint, manifest: Manifest) -> None:
        pending.is_storing = True
        self._publisher.publish(attempt.recovery.leadership, manifest)

    def _on_stored(self, stored: Stored, now: int) -> None:
        attempt = self._attempt
        if attempt is None or stored.leadership is not attempt.recovery.leadership:
            return  # the attempt is over, and the recovery after it has decided this outcome
        pending = attempt.pending
        assert pending is not None
        assert pending.id == stored.manifest.checkpoint_id
        if stored.outcome is PublishOutcome.COMPLETE:
            self._complete(attempt, pending, stored.manifest, now)
        elif stored.outcome is PublishOutcome.NUMBER_TAKEN:
            self._retry_with_next_number(attempt, pending, now)
        elif isinstance(stored.error, Fenced):
            self._fenced(attempt, pending, stored.error, now)
        else:
            assert stored.error is not None
            self._not_stored(attempt, stored.manifest, stored.error, now)

    def _not_stored(self, attempt: Attempt, manifest: Manifest, error: PenstockError, now: int) -> None:
        if not (isinstance(error, StorageError) and error.outcome_unknown):
            self._abandon(attempt, f"its manifest is not stored: {error.message}", now, code=error.code)
            return
        attempt.completed.add_in_doubt(manifest)
        self._abandon(attempt, f"it is unknown whether its manifest is stored: {error.message}", now, keep_files=True)
        if attempt.completed.doubts >= MAX_IN_DOUBT:
            self._events.append(JobMustFail(_too_many_in_doubt(attempt.completed.doubts, error)))

    def _fenced(self, attempt: Attempt, pending: PendingCheckpoint, error: Fenced, now: int) -> None:
        """Stop, and change nothing in storage. The successor decides whether this checkpoint counts."""
        attempt.is_fenced = True
        attempt.pending = None
        attempt.cleaner.close()
        self.history.failed(pending.id, now, str(error))
        self._fail_savepoint(pending.savepoint, error)
        self._events.append(JobMustFail(error))

    def _complete(self, attempt: Attempt, pending: PendingCheckpoint, manifest: Manifest, now: int) -> None:
        attempt.pending = None
        is_first = not attempt.completed.has_own
        for subsumed_id, garbage in attempt.completed.add(manifest):
            attempt.cleaner.discard_checkpoint(subsumed_id, garbage)
            self.history.discarded(subsumed_id)
        self._failures_in_a_row = self._final_refusals = 0
        self._schedule = self._schedule.succeeded(now)
        self._events.append(
            CheckpointCompleted(
                pending.id,
                manifest,
                self._ledger.hand_out(pending.id),
                is_savepoint=pending.savepoint is not None,
                is_final=pending.request.is_final,
                requests=pending.requests,
            )
        )
        self._record_unconfirmed_commits()
        if pending.savepoint is None:
            self.history.completed(pending.id, now, self.storage.url_of(checkpoint_folder(pending.id)))
        elif pending.exported:
            self._executor.submit(self._in_background, lambda: delete_note(self.storage, manifest))
            self.history.completed(pending.id, now, pending.exported)
            self._events.append(SavepointCompleted(pending.savepoint.request_id, pending.id, pending.exported, True))
        else:
            self._savepoints.copy(pending.savepoint, manifest, attempt.completed.registry, now)
        if is_first:
            attempt.cleaner.find_leftovers(attempt.recovery, pending.id, attempt.completed.registry)

    def _retry_with_next_number(self, attempt: Attempt, pending: PendingCheckpoint, now: int) -> None:
        """Take the next number immediately, because a late write of a superseded leader has the current number. This is
        not a failure.
        """
        reason = f"the number {pending.id} was taken by a manifest of an earlier leader that arrived late"
        savepoint, requests = pending.savepoint, pending.requests
        pending.savepoint, pending.requests = None, ()
        self._abandon(attempt, reason, now, counts=False)
        if savepoint is not None:
            self._savepoints.requeue(savepoint)
        self._requests = [*requests, *self._requests]
        self._schedule = self._schedule.urgent()

    def _abandon(
        self,
        attempt: Attempt,
        reason: str,
        now: int,
        *,
        keep_files: bool = False,
        will_ack: bool = True,
        counts: bool = True,
        code: str = "",
    ) -> None:
        pending = attempt.abandon(keep_files=keep_files, will_ack=will_ack)
        self._withdraw(pending, is_sure=not keep_files)
        self._schedule = self._schedule.failed(now) if counts else self._schedule.ended(now)
        self.history.failed(pending.id, now, reason)
        self._events.append(CheckpointAborted(pending.id, reason, pending.requests))
        error = StorageError(f"checkpoint {pending.id} failed: {reason}", remedy="see the JobManager's log; try again")
        self._fail_savepoint(pending.savepoint, error)
        if counts and pending.counts:
            self._count_failure(pending, reason, code)

    def _count_failure(self, pending: PendingCheckpoint, reason: str, code: str) -> None:
        self._failures_in_a_row += 1
        if self._failures_in_a_row <= self.settings.tolerable_failures:
            return
        message = (
            f"{self._failures_in_a_row} checkpoints failed in a row, {self.settings.tolerable_failures} are tolerated; "
            f"the last one, {pending.id}: {reason}"
        )
        if code == StateTypeError.code:  # a restart would find the same value
            self._events.append(JobMustFail(StateTypeError(message)))
            return
        self._final_refusals += code == StorageRefused.code and pending.request.is_final
        if self._final_refusals > 1:  # the previous attempt failed in the same way, so the next one would fail too
            remedy = (
                "grant the access that the message names (put, get, list and delete in the checkpoint directory), then start the "
                "job again"
            )
            self._events.append(JobMustFail(FinalCheckpointRefused(message, remedy=remedy)))
            return
        remedy = (
            "the job restarts from its last complete checkpoint. Raise execution.checkpointing.tolerable-failed-checkpoints "
            "to tolerate such failures"
        )
        self._events.append(JobMustFail(EpochFailed(message, remedy=remedy)))

    def _record_unconfirmed_commits(self) -> None:
        self.history.commits_left(self._ledger.uncommitted, sum(map(len, self._ledger.promised.values())))

    def _withdraw(self, pending: PendingCheckpoint, *, is_sure: bool) -> None:
        """Dispose of the savepoint of a failed stop with `--drain`, because the output that it names will be removed.

        If the checkpoint's manifest may be stored, keep the savepoint. The next attempt then decides (`drain_notes`).
        """
        if pending.exported and is_sure:
            url, drained = pending.exported, pending.drained
            assert drained is not None

            def work() -> None:
                dispose(url, stores=self.storage.stores)
                delete_note(self.storage, drained)

            self._executor.submit(self._in_background, work)

    def _settle_drained(self, restored: Manifest | None, epoch: int) -> None:
        """Settle the drained savepoints in doubt at the start of an attempt. They come from this JobManager or a dead
        JobManager.
        """
        self._executor.submit(settle_notes, self.storage, restored, epoch)

    @staticmethod
    def _in_background(work: Callable[[], None]) -> None:
        try:
            work()
        except PenstockError as error:  # the next attempt tries again
            logger.warning("files of a stop with --drain cannot be deleted: %s", error)

    def _take_copied(self, now: int, *, ends: bool = False) -> None:
        for copied in self._savepoints.take_copied():
            pending = self._attempt.pending if self._attempt is not None else None
            if self._attempt is not None and pending is not None and pending.savepoint is copied.request:
                self._on_drained(self._attempt, pending, copied, now, ends=ends)
            else:
                self._on_copied(copied, now)

    def _on_drained(
        self, attempt: Attempt, pending: PendingCheckpoint, copied: Copied, now: int, *, ends: bool
    ) -> None:
        assert pending.drained is not None
        attempt.cleaner.discard_files(copied.garbage)
        if copied.error is not None:
            self._abandon(attempt, f"its savepoint cannot be written: {copied.error.message}", now, counts=False)
            return
        pending.exported = copied.url
        if ends:
            self._withdraw(pending, is_sure=True)
        else:
            self._publish(attempt, pending, pending.drained)

    def _on_copied(self, copied: Copied, now: int) -> None:
        request = copied.request
        if self._attempt is not None:
            self._attempt.cleaner.discard_files(copied.garbage)
        if copied.error is None:
            self.history.completed(copied.checkpoint_id, now, copied.url)
            self._events.append(
                SavepointCompleted(request.request_id, copied.checkpoint_id, copied.url, request.is_final)
            )
            return
        if self._attempt is not None:
            self._attempt.is_stopping = False
        self.history.failed(copied.checkpoint_id, now, str(copied.error))
        self._fail_savepoint(request, copied.error)

    def _fail_savepoint(self, request: SavepointRequest | None, error: PenstockError) -> None:
        if request is not None:
            self._savepoints.fail(request, error)
            self._events.append(SavepointFailed(request.request_id, error, request.is_final))

    def _pending(self, checkpoint_id: int) -> PendingCheckpoint | None:
        pending = self._attempt.pending if self._attempt is not None else None
        return pending if pending is not None and pending.id == checkpoint_id else None


def _too_many_in_doubt(count: int, error: PenstockError) -> EpochFailed:
    return EpochFailed(
        f"it is unknown whether the manifests of {count} checkpoints are stored. The last one: {error.message}",
        remedy="the job restarts from its newest checkpoint. Check why the store does not answer put requests",
    )
