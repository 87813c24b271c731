"""The CheckpointCoordinator: one checkpoint at a time, from the trigger to what may be done because it is complete.

It is driven by the JobMaster's thread and never blocks: it is given the time, acks and barriers, and answers with requests
and events. What takes long (storing a manifest, copying a savepoint, deleting) runs in the executor it is given; outcomes
come back through a queue and become events at the next `tick`. In tests the executor runs things at once or by hand.

    coordinator.begin(recovery, job, now)            # after recovery.begin() and the commits of its snapshot
    loop, once per epoch:
        request = coordinator.next_trigger(now)      # hand it to the epoch
        … the epoch runs; meanwhile trigger_due(now) and tick(now): time passes also for an epoch that does not end …
        coordinator.on_barrier(request.checkpoint_id, source_states)
        for ack in acks: coordinator.on_ack(ack, now)
        for event in coordinator.tick(now): …        # commit, notify, fail over
        coordinator.on_committed(checkpoint_id)      # when the commits of that event are done
    coordinator.end_attempt(reason, now)             # failover, rescale
    coordinator.shutdown("FINISHED")

The rules it keeps are those of docs/checkpoint-protocol.md; the two that are easily broken by a change here: a checkpoint is
ready only when every *earlier* one was answered by every subtask (I7), and after an unknown outcome the files stay (3.3).

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
    """See the head of the module."""

    # --- attempts -------------------------------------------------------------------------------------------------

    def begin(self, recovery: Recovery, job: JobDescription, now: int) -> None:
        """An attempt starts from what was recovered; `recovery.begin()` and the commits of its snapshot are done."""
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
            self._note_commits_left()
            if recovery.snapshot is not None:
                manifest = recovery.snapshot.manifest
                self.history.restored(
                    manifest.checkpoint_id, now, recovery.snapshot.url, is_savepoint=recovery.snapshot.is_savepoint
                )

    def end_attempt(self, reason: str, now: int) -> dict[str, list[Any]]:
        """The attempt is over; what was in progress is given up. Events of it that were not taken yet are dropped.

        The checkpoint and the savepoints in progress fail (see the next `tick`). Returns what was pre-committed and not
        confirmed, by uid: the next recovery's manifest says what of it must be committed; the rest will never be.
        """
        with self._lock:
            self._take_copied(now, ends=True)
            self.history.trigger_is(TriggerState.NO_ATTEMPT, now)
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
            self._note_commits_left()
            return unconfirmed

    # --- triggers -------------------------------------------------------------------------------------------------

    def trigger_due(self, now: int) -> None:
        """Start the checkpoint that is due, if one is; also while an epoch runs that cannot take it any more.

        Its time counts from here on: if the epoch that runs does not end, it expires like one whose barrier is on its way.
        """
        with self._lock:
            attempt = self._attempt
            if self._note_trigger(now) is not TriggerState.DUE or attempt is None:
                return
            is_asked_for = self._savepoints.is_waiting or bool(self._requests)
            savepoint = self._savepoints.next()
            is_final = savepoint is not None and savepoint.is_final
            self._start(attempt, savepoint, now, counts=not is_asked_for, is_final=is_final)

    def next_trigger(self, now: int) -> SnapshotRequest | None:
        """The snapshot that the next epoch shall take, if one is due or was triggered while the last one ran."""
        with self._lock:
            self.trigger_due(now)
            pending = self._attempt.pending if self._attempt is not None else None
            if pending is None or pending.is_handed_out:
                return None
            pending.is_handed_out = True
            return pending.request

    def final_checkpoint(self, now: int) -> SnapshotRequest | None:
        """The snapshot after the last record of a bounded job.

        None while another checkpoint is in progress, and for a while after one that failed (`final_checkpoint_at`). A checkpoint
        that was triggered and of which no subtask knows yet becomes the final one; a savepoint that is waiting is served by it.
        Nothing is triggered after it unless it fails; it counts as a periodic one then.
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
        request = attempt.start(savepoint, requests, now, counts=counts, is_final=is_final)
        self._schedule = self._schedule.triggered(now)
        self.history.triggered(request, attempt.job)

    def next_action_at(self) -> int | None:
        """When something is due (ms): a trigger, or the timeout of the checkpoint in progress.

        None: nothing is, or nothing before a commit is confirmed.
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
            waits = attempt.is_stopping or self._ledger.uncommitted >= self.settings.most_uncommitted
            times = [at for at in (self._schedule.due_at(),) if at is not None and not waits]
            if self._requests:
                times.append(max(self._schedule.last_trigger, self._schedule.may_retry_at()))
            return min(times, default=None)

    def final_checkpoint_at(self) -> int:
        """When `final_checkpoint` may be triggered (ms), as long as no other one is in progress."""
        with self._lock:
            return self._schedule.may_retry_at()

    def serves(self, request_id: str) -> bool:
        """The checkpoint in progress is what this request, for a savepoint or a checkpoint, asked for."""
        with self._lock:
            pending = self._attempt.pending if self._attempt is not None else None
            if pending is None:
                return False
            is_savepoint = pending.savepoint is not None and pending.savepoint.request_id == request_id
            return is_savepoint or request_id in pending.requests

    @property
    def is_in_progress(self) -> bool:
        """A checkpoint was triggered and is neither complete nor abandoned: epochs must go on, even without input."""
        with self._lock:
            return self._attempt is not None and self._attempt.pending is not None

    @property
    def is_storing(self) -> bool:
        """Every subtask has answered for the checkpoint in progress, and its manifest is being stored."""
        with self._lock:
            pending = self._attempt.pending if self._attempt is not None else None
            return pending is not None and pending.is_at_work

    @property
    def is_copying(self) -> bool:
        """A savepoint's files are being copied; a job that stops after it waits for this."""
        with self._lock:
            return self._savepoints.is_copying

    def check_savepoint_directory(self, target_directory: str | None) -> None:
        """
        Raises:
            InvalidJob: no directory is given and none is configured.
        """
        self._savepoints.check_target(target_directory)

    def trigger_savepoint(
        self, target_directory: str | None = None, *, is_final: bool = False, drain: bool = False, request_id: str = ""
    ) -> str:
        """Ask for a savepoint; returns the request's id for `savepoint_status`. `is_final`: the job stops after it.

        Raises:
            InvalidJob: no directory is given and none is configured.
        """
        with self._lock:
            return self._savepoints.ask(target_directory, is_final=is_final, drain=drain, request_id=request_id)

    def trigger_checkpoint(self, request_id: str = "") -> str:
        """Ask for a checkpoint now; its id comes back in `CheckpointCompleted.requests` or `CheckpointAborted.requests`."""
        with self._lock:
            id = request_id or uuid.uuid4().hex
            self._requests.append(id)
            return id

    def savepoint_status(self, request_id: str) -> SavepointStatus | None:
        with self._lock:
            return self._savepoints.status(request_id)

    # --- answers --------------------------------------------------------------------------------------------------

    def on_barrier(self, checkpoint_id: int, sources: dict[str, SourceState]) -> None:
        """The epoch that took the snapshot has ended; the positions the sources stood at, by uid."""
        with self._lock:
            pending = self._pending(checkpoint_id)
            if pending is not None and self._attempt is not None:
                paths = [file.path for file in source_files(sources)]
                self._attempt.completed.registry.register(pending.holder, paths)
                pending.sources = dict(sources)

    def on_ack(self, ack: Ack, now: int) -> None:
        """A subtask's answer, also a late one. With `error` it is a decline: the checkpoint is abandoned."""
        with self._lock:
            attempt = self._attempt
            if attempt is None:
                return
            pending = self._pending(ack.checkpoint_id)
            if pending is None:
                if attempt.take_late_answer(ack):
                    self._note_commits(attempt, ack)
                return
            key = (ack.uid, ack.subtask)
            if not pending.is_expected(key):
                logger.warning("unexpected answer of %s for checkpoint %d is ignored", key, ack.checkpoint_id)
                return
            pending.answered.add(key)
            self._note_commits(attempt, ack)
            problem = ack.error or attempt.take_files(pending, ack)
            if problem:
                self._abandon(attempt, f"{ack.uid} ({ack.subtask}) declined: {problem}", now, code=ack.error_code)
                return
            pending.acks[key] = ack
            self.history.acknowledged(ack, attempt.job, now)

    def _note_trigger(self, now: int) -> TriggerState:
        """Why the next checkpoint is triggered, or not; kept for whoever asks."""
        attempt = self._attempt
        state = TriggerSituation(
            now,
            has_attempt=attempt is not None,
            is_fenced=attempt is not None and attempt.is_fenced,
            is_stopping=attempt is not None and attempt.is_stopping,
            is_in_progress=attempt is not None and attempt.pending is not None,
            savepoint_waits=self._savepoints.is_waiting,
            is_asked_for=bool(self._requests),
            may_retry_at=self._schedule.may_retry_at(),
            due_at=self._schedule.due_at(),
            uncommitted=self._ledger.uncommitted,
            most_uncommitted=self.settings.most_uncommitted,
        ).judge()
        if self.history.trigger_is(state, now) and state is TriggerState.WAITING_FOR_COMMITS:
            logger.info(
                "a checkpoint is due and waits: the commits of %d complete ones are not carried out yet "
                "(execution.checkpointing.max-uncommitted-checkpoints is %d)",
                self._ledger.uncommitted,
                self.settings.most_uncommitted,
            )
        return state

    def _note_commits(self, attempt: Attempt, ack: Ack) -> None:
        """Files of committables are needed until their commit is confirmed, whatever becomes of this checkpoint."""
        self._ledger.add(ack.checkpoint_id, ack.uid, list(ack.committables))
        for file in staged_files(ack.committables):
            attempt.completed.registry.register(_commit_of(file), [file.path])

    def on_failed(self, checkpoint_id: int, reason: str, now: int, *, was_taken: bool = True) -> None:
        """The snapshot failed as a whole. `was_taken` False: no subtask ever saw the request, none will answer."""
        with self._lock:
            attempt = self._attempt
            if attempt is not None and self._pending(checkpoint_id) is not None:
                self._abandon(attempt, reason, now, will_answer=was_taken)

    def on_committed(self, checkpoint_id: int) -> None:
        """The commits that came with this checkpoint (or with the restored one) have been carried out."""
        with self._lock:
            committed = self._ledger.confirm(checkpoint_id)
            self._promised.pop(checkpoint_id, None)
            self._note_commits_left()
            if self._attempt is not None:
                for file in staged_files(committed):
                    garbage = self._attempt.completed.registry.release(_commit_of(file))
                    self._attempt.cleaner.discard_files(garbage)

    # --- files of others than the subtasks ------------------------------------------------------------------------

    def expect_files(self, prefix: str) -> None:
        """Files of this attempt with such names are being written: leave them alone until they are held."""
        with self._lock:
            if self._attempt is not None:
                self._attempt.completed.registry.expect(prefix)

    def hold_files(self, holder: str, paths: Iterable[str]) -> None:
        """Keep these files of `shared/` until `release_files`, or the end of the attempt; checkpoints count on their own."""
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
        """The newest complete checkpoint this job would be restored from; None: what the attempt started from."""
        with self._lock:
            return self._attempt.completed.newest if self._attempt is not None else None

    @property
    def retained(self) -> list[Manifest]:
        """Oldest first."""
        with self._lock:
            return self._attempt.completed.manifests if self._attempt is not None else []

    def shutdown(self, state: TerminalState, now: int = 0) -> ShutdownReport:
        """The job has ended: keep or delete its checkpoints. Blocks while it deletes; savepoints are never touched.

        Before, wait until `is_copying` is False, and confirm the commits of the last checkpoint; else everything is kept.
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
            reason = f"{promised} commits of sinks were not confirmed"
            return ShutdownReport(kept=True, reason=reason, needed=needed)
        report = delete_checkpoints(self.storage, attempt.recovery.leadership, attempt.next_id, self._executor)
        return report if report.kept else replace(report, needed=self._named_by())

    def _named_by(self, *checkpoints: dict[str, list[Any]]) -> dict[str, list[Any]]:
        """Committables of these and of the savepoints, by uid.

        Savepoints are those taken here, and what the JobManager before took: of that it is known that whatever is still
        unfinished was so when this one took over.
        """
        named: dict[str, list[Any]] = {}
        for commits in (*checkpoints, self._savepoints.commits, self._started_from or {}):
            for uid, items in commits.items():
                named.setdefault(uid, []).extend(items)
        return named


def _commit_of(file: NamedFile) -> str:
    """Holder of a file until the commit it is for is confirmed."""
    return f"commit-{file.path}"


__all__ = ["CheckpointCoordinator", "ShutdownReport"]
