"""The CheckpointCoordinator: one checkpoint at a time, from its trigger to the actions that its completion allows.

The JobMaster's thread calls the coordinator, which never blocks. The coordinator receives the time, acknowledgements
and barriers, and returns requests and events. Long work (storing a manifest, copying a savepoint, deleting) runs in an
executor. The results come back through a queue and become events at the next `tick`. In tests the executor runs work
immediately or on request.

    coordinator.begin(recovery, job, now)            # after recovery.begin() and the commits of its snapshot
    loop, once per epoch:
        request = coordinator.next_trigger(now)      # hand it to the epoch
        … the epoch runs; call trigger_due(now) and tick(now) during it, because it may not end …
        coordinator.on_barrier(request.checkpoint_id, source_states)
        for ack in acks: coordinator.on_ack(ack, now)
        for event in coordinator.tick(now): …        # commit, notify, fail over
        coordinator.on_committed(checkpoint_id)      # when the commits of that event are done
    coordinator.end_attempt(reason, now)             # failover, rescale
    coordinator.shutdown("FINISHED")

docs/checkpoint-protocol.md defines the rules. A change here can easily break two of them:

- A checkpoint is ready only when every subtask has answered every *earlier* checkpoint. Otherwise a commit could be
  lost.
- The files of a checkpoint with an unknown outcome are kept.

All methods are thread-safe, so that REST threads can trigger savepoints and read states.
"""

from __future__ import annotations

import logging
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.checkpoint.coordinator.attempt import Attempt
from penstock.checkpoint.coordinator.cleaner import Cleaner
from penstock.checkpoint.coordinator.outcomes import CheckpointOutcomes
from penstock.checkpoint.coordinator.schedule import Schedule
from penstock.checkpoint.coordinator.termination import ShutdownReport, delete_checkpoints
from penstock.checkpoint.coordinator.triggers import TriggerSituation, TriggerState
from penstock.checkpoint.events import (
    Ack,
    CheckpointAborted,
    JobDescription,
    SavepointCompleted,
    SavepointFailed,
    SavepointRequest,
    SavepointStatus,
    SnapshotRequest,
)
from penstock.checkpoint.files.codec import NamedFile, source_files, staged_files
from penstock.common.errors import EpochFailed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.checkpoint.coordinator.settings import TerminalState
    from penstock.checkpoint.files.manifest import Manifest, SourceState
    from penstock.checkpoint.recovery.takeover import Recovery

logger = logging.getLogger(__name__)


class CheckpointCoordinator(CheckpointOutcomes):
    """The coordinator of one job. The module's docstring describes its use."""

    # --- attempts -------------------------------------------------------------------------------------------------

    def begin(self, recovery: Recovery, job: JobDescription, now: int) -> None:
        """Start an attempt from a recovery. Call this after `recovery.begin()` and the commits of its snapshot."""
        with self._lock:
            restored = recovery.snapshot.manifest if recovery.snapshot is not None else None
            self._settle_drained(restored, recovery.epoch)
            cleaner = Cleaner(self.storage, self._executor, recovery.leadership.check)
            self._attempt = Attempt(recovery, job, cleaner, self.settings.retained)
            if self._started_from is None:
                self._started_from = recovery.commits
            self._schedule = Schedule(self.settings.interval_ms, self.settings.min_pause_ms, now)
            self._failures_in_a_row = 0
            self._ledger.clear()
            self._record_unconfirmed_commits()
            if recovery.snapshot is not None:
                manifest = recovery.snapshot.manifest
                self.history.restored(
                    manifest.checkpoint_id, now, recovery.snapshot.url, is_savepoint=recovery.snapshot.is_savepoint
                )

    def end_attempt(self, reason: str, now: int) -> dict[str, list[Any]]:
        """End the attempt and give up its work in progress. Events that were not yet taken are dropped.

        The checkpoint and the savepoints in progress fail (see the next `tick`). Return the pre-committed and
        unconfirmed committables by uid. The manifest of the next recovery names those that must be committed. The
        others will never be committed.
        """
        with self._lock:
            self._take_copied(now, ends=True)
            self.history.set_trigger_state(TriggerState.NO_ATTEMPT, now)
            attempt, self._attempt = self._attempt, None
            self._events = [event for event in self._events if isinstance(event, SavepointCompleted | SavepointFailed)]
            if attempt is None:
                return {}
            self._ended, self._promised = attempt, self._ledger.promised
            attempt.cleaner.close()
            requests = tuple(self._requests)
            if attempt.pending is not None:
                self.history.failed(attempt.pending.id, now, reason)
                requests = (*attempt.pending.requests, *requests)
                if attempt.pending.is_storing:
                    self._withdraw(attempt.pending, is_sure=False)
                self._fail_savepoint(attempt.pending.savepoint, EpochFailed(reason))
            if requests:
                id = attempt.pending.id if attempt.pending is not None else 0
                self._events.append(CheckpointAborted(id, reason, requests))
            for savepoint, checkpoint_id in self._savepoints.cancel_all():
                if checkpoint_id is not None:
                    self.history.failed(checkpoint_id, now, reason)
                self._fail_savepoint(savepoint, EpochFailed(reason))
            self._requests = []
            unconfirmed = self._ledger.unconfirmed
            self._ledger.clear()
            self._record_unconfirmed_commits()
            return unconfirmed

    # --- triggers -------------------------------------------------------------------------------------------------

    def trigger_due(self, now: int) -> None:
        """Start the checkpoint that is due, if any. If the current epoch cannot take it, the next epoch takes it.

        The timeout of the checkpoint starts now. If the current epoch does not end, the checkpoint expires, as after
        its barrier was sent.
        """
        with self._lock:
            attempt = self._attempt
            if self._record_trigger_state(now) is not TriggerState.DUE or attempt is None:
                return
            is_requested = self._savepoints.is_waiting or bool(self._requests)
            savepoint = self._savepoints.next()
            is_final = savepoint is not None and savepoint.is_final
            self._start(attempt, savepoint, now, counts=not is_requested, is_final=is_final)

    def next_trigger(self, now: int) -> SnapshotRequest | None:
        """Return the request for the next epoch: for a snapshot that is due, or that was triggered during the last
        epoch.
        """
        with self._lock:
            self.trigger_due(now)
            pending = self._attempt.pending if self._attempt is not None else None
            if pending is None or pending.is_handed_out:
                return None
            pending.is_handed_out = True
            return pending.request

    def final_checkpoint(self, now: int) -> SnapshotRequest | None:
        """Return the request for the snapshot after the last record of a bounded job.

        Return None while another checkpoint is in progress, and for a while after a failed one (`final_checkpoint_at`).
        A triggered checkpoint that no subtask knows yet becomes the final checkpoint. A new final checkpoint also
        serves a waiting savepoint. No other checkpoint is triggered unless the final checkpoint fails. This failure
        counts like the failure of a periodic checkpoint.
        """
        with self._lock:
            attempt = self._attempt
            if attempt is None or now < self._schedule.may_retry_at():
                return None
            if attempt.may_trigger:
                self._start(attempt, self._savepoints.next(), now, counts=True, is_final=True)
            elif not attempt.make_final():
                return None
            return self.next_trigger(now)

    def _start(
        self, attempt: Attempt, savepoint: SavepointRequest | None, now: int, *, counts: bool, is_final: bool
    ) -> None:
        requests, self._requests = tuple(self._requests), []
        offset = self.history.wall_offset_ms()
        request = attempt.start(savepoint, requests, now, counts=counts, is_final=is_final, wall_offset_ms=offset)
        self._schedule = self._schedule.triggered(now)
        self.history.triggered(request, attempt.job)

    def next_action_at(self) -> int | None:
        """Return when a trigger or the timeout of the checkpoint in progress is due (ms).

        Return None if nothing is due, or if a commit must be confirmed first.
        """
        with self._lock:
            attempt = self._attempt
            if attempt is None or attempt.is_fenced:
                return None
            if attempt.pending is not None:
                pending = attempt.pending
                return pending.request.timestamp + (self.settings.timeout_ms if pending.is_handed_out else 0)
            if self._savepoints.is_waiting:
                return self._schedule.last_trigger
            waits = attempt.is_stopping or self._ledger.uncommitted >= self.settings.max_uncommitted
            times = [at for at in (self._schedule.due_at(),) if at is not None and not waits]
            if self._requests:
                times.append(max(self._schedule.last_trigger, self._schedule.may_retry_at()))
            return min(times, default=None)

    def final_checkpoint_at(self) -> int:
        """Return when `final_checkpoint` may be triggered (ms), if no other checkpoint is in progress."""
        with self._lock:
            return self._schedule.may_retry_at()

    def serves(self, request_id: str) -> bool:
        """Return whether the checkpoint in progress serves this request for a savepoint or a checkpoint."""
        with self._lock:
            pending = self._attempt.pending if self._attempt is not None else None
            if pending is None:
                return False
            is_savepoint = pending.savepoint is not None and pending.savepoint.request_id == request_id
            return is_savepoint or request_id in pending.requests

    @property
    def is_in_progress(self) -> bool:
        """Whether a triggered checkpoint is neither complete nor abandoned. Epochs must then continue, even without input."""
        with self._lock:
            return self._attempt is not None and self._attempt.pending is not None

    @property
    def is_storing(self) -> bool:
        """Whether every subtask has answered the checkpoint in progress and its manifest is being stored."""
        with self._lock:
            pending = self._attempt.pending if self._attempt is not None else None
            return pending is not None and pending.has_background_work

    @property
    def is_copying(self) -> bool:
        """Whether the files of a savepoint are being copied. A job that stops after the savepoint waits for this."""
        with self._lock:
            return self._savepoints.is_copying

    def check_savepoint_directory(self, target_directory: str | None) -> None:
        """Check that the savepoint has a directory.

        Raises:
            InvalidJob: no directory is given and none is configured.
        """
        self._savepoints.check_target(target_directory)

    def trigger_savepoint(
        self, target_directory: str | None = None, *, is_final: bool = False, drain: bool = False, request_id: str = ""
    ) -> str:
        """Request a savepoint and return the request's id for `savepoint_status`. If `is_final` is set, the job stops
        after the savepoint.

        Raises:
            InvalidJob: no directory is given and none is configured.
        """
        with self._lock:
            return self._savepoints.ask(target_directory, is_final=is_final, drain=drain, request_id=request_id)

    def trigger_checkpoint(self, request_id: str = "") -> str:
        """Request a checkpoint and return the request's id. Later, `CheckpointCompleted.requests` or
        `CheckpointAborted.requests` contains the id.
        """
        with self._lock:
            id = request_id or uuid.uuid4().hex
            self._requests.append(id)
            return id

    def savepoint_status(self, request_id: str) -> SavepointStatus | None:
        with self._lock:
            return self._savepoints.status(request_id)

    # --- answers --------------------------------------------------------------------------------------------------

    def on_barrier(self, checkpoint_id: int, sources: dict[str, SourceState]) -> None:
        """Take the positions of the sources at the barrier, by uid. Call this after the end of the epoch that took the
        snapshot.
        """
        with self._lock:
            pending = self._pending(checkpoint_id)
            if pending is not None and self._attempt is not None:
                paths = [file.path for file in source_files(sources)]
                self._attempt.completed.registry.register(pending.holder, paths)
                pending.sources = dict(sources)

    def on_ack(self, ack: Ack, now: int) -> None:
        """Take a subtask's answer, which may be late. An answer with `error` declines and abandons the checkpoint."""
        with self._lock:
            attempt = self._attempt
            if attempt is None:
                return
            pending = self._pending(ack.checkpoint_id)
            if pending is None:
                if attempt.take_late_ack(ack):
                    self._register_committables(attempt, ack)
                return
            key = (ack.uid, ack.subtask)
            if not pending.is_expected(key):
                logger.warning("ignored an unexpected acknowledgement of %s for checkpoint %d", key, ack.checkpoint_id)
                return
            pending.answered.add(key)
            self._register_committables(attempt, ack)
            problem = ack.error or attempt.take_files(pending, ack)
            if problem:
                self._abandon(attempt, f"{ack.uid} ({ack.subtask}) declined: {problem}", now, code=ack.error_code)
                return
            pending.acks[key] = ack
            self.history.acknowledged(ack, attempt.job, now)

    def _record_trigger_state(self, now: int) -> TriggerState:
        """Record and return why the next checkpoint is, or is not, triggered."""
        attempt = self._attempt
        state = TriggerSituation(
            now,
            has_attempt=attempt is not None,
            is_fenced=attempt is not None and attempt.is_fenced,
            is_stopping=attempt is not None and attempt.is_stopping,
            is_in_progress=attempt is not None and attempt.pending is not None,
            savepoint_waits=self._savepoints.is_waiting,
            is_requested=bool(self._requests),
            may_retry_at=self._schedule.may_retry_at(),
            due_at=self._schedule.due_at(),
            uncommitted=self._ledger.uncommitted,
            max_uncommitted=self.settings.max_uncommitted,
        ).decide()
        if self.history.set_trigger_state(state, now) and state is TriggerState.WAITING_FOR_COMMITS:
            logger.info(
                "a checkpoint is due and waits: sinks have not committed %d complete checkpoints yet "
                "(execution.checkpointing.max-uncommitted-checkpoints is %d)",
                self._ledger.uncommitted,
                self.settings.max_uncommitted,
            )
        return state

    def _register_committables(self, attempt: Attempt, ack: Ack) -> None:
        """Hold the files of committables until their commit is confirmed, even if this checkpoint fails."""
        self._ledger.add(ack.checkpoint_id, ack.uid, list(ack.committables))
        for file in staged_files(ack.committables):
            attempt.completed.registry.register(_commit_of(file), [file.path])

    def on_failed(self, checkpoint_id: int, reason: str, now: int, *, was_taken: bool = True) -> None:
        """Abandon a snapshot that failed as a whole. If `was_taken` is False, no subtask has seen the request or will answer."""
        with self._lock:
            attempt = self._attempt
            if attempt is not None and self._pending(checkpoint_id) is not None:
                self._abandon(attempt, reason, now, will_ack=was_taken)

    def on_committed(self, checkpoint_id: int) -> None:
        """Record that the commits of this checkpoint, or of the restored checkpoint, are done."""
        with self._lock:
            committed = self._ledger.confirm(checkpoint_id)
            self._promised.pop(checkpoint_id, None)
            self._record_unconfirmed_commits()
            if self._attempt is not None:
                for file in staged_files(committed):
                    garbage = self._attempt.completed.registry.release(_commit_of(file))
                    self._attempt.cleaner.discard_files(garbage)

    # --- files that are not written by subtasks -------------------------------------------------------------------

    def expect_files(self, prefix: str) -> None:
        """Protect the files of this attempt whose paths have this prefix. The writer later calls `hold_files` for the
        files.
        """
        with self._lock:
            if self._attempt is not None:
                self._attempt.completed.registry.expect(prefix)

    def hold_files(self, holder: str, paths: Iterable[str]) -> None:
        """Keep these files of `shared/` until `release_files` or the end of the attempt. Checkpoints hold files independently."""
        with self._lock:
            if self._attempt is not None:
                self._attempt.completed.registry.register(holder, paths)

    def release_files(self, holder: str) -> None:
        with self._lock:
            if self._attempt is not None:
                self._attempt.cleaner.discard_files(self._attempt.completed.registry.release(holder))

    # --- reading and the end --------------------------------------------------------------------------------------

    @property
    def latest(self) -> Manifest | None:
        """Return the newest complete checkpoint, from which this job would be restored. None means that the job would
        restart from the same snapshot as this attempt.
        """
        with self._lock:
            return self._attempt.completed.newest if self._attempt is not None else None

    @property
    def retained(self) -> list[Manifest]:
        """Return the retained checkpoints, oldest first."""
        with self._lock:
            return self._attempt.completed.manifests if self._attempt is not None else []

    def shutdown(self, state: TerminalState, now: int = 0) -> ShutdownReport:
        """End the job and keep or delete its checkpoints. The method blocks while it deletes, and never deletes savepoints.

        Before the call, wait until `is_copying` is False, and confirm the commits of the last checkpoint. If commits
        are not confirmed, all checkpoints are kept.
        """
        with self._lock:
            unconfirmed = self.end_attempt(f"the job has ended: {state}", now)
            attempt = self._ended
        if attempt is None:
            return ShutdownReport(kept=True, reason="the job never ran under this JobManager")
        return replace(self._keep_or_delete(attempt, state), unconfirmed=unconfirmed)

    def _keep_or_delete(self, attempt: Attempt, state: TerminalState) -> ShutdownReport:
        if attempt.is_fenced:
            return ShutdownReport(kept=True, reason="another JobManager has taken over")
        kept = [manifest.commits for manifest in attempt.completed.manifests]
        needed = None if state == "SUSPENDED" or attempt.has_doubts else self._named_by(*kept)
        if self.settings.keeps_checkpoints(state):
            return ShutdownReport(kept=True, reason=f"retained: {self.settings.retention}, {state}", needed=needed)
        promised = sum(map(len, self._promised.values()))
        if promised:
            reason = f"{promised} sink commits were not confirmed"
            return ShutdownReport(kept=True, reason=reason, needed=needed)
        report = delete_checkpoints(self.storage, attempt.recovery.leadership, attempt.next_id, self._executor)
        return report if report.kept else replace(report, needed=self._named_by())

    def _named_by(self, *checkpoints: dict[str, list[Any]]) -> dict[str, list[Any]]:
        """Return the committables of these checkpoints and of the savepoints, by uid.

        The savepoints are those of this JobManager and of the previous JobManager. The snapshot from which this
        JobManager started names the unfinished committables of the previous JobManager.
        """
        named: dict[str, list[Any]] = {}
        for commits in (*checkpoints, self._savepoints.commits, self._started_from or {}):
            for uid, items in commits.items():
                named.setdefault(uid, []).extend(items)
        return named


def _commit_of(file: NamedFile) -> str:
    """Return the name of the holder that keeps a file until the commit that needs the file is confirmed."""
    return f"commit-{file.path}"


__all__ = ["CheckpointCoordinator", "ShutdownReport"]
