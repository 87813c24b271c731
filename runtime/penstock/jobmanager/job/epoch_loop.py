"""The epochs of one attempt: plan an epoch, run it, process the acknowledgements, and handle the coordinator's events.

All interruptions of a job happen between two epochs, because no record is in flight then. `step` runs one epoch, or handles events while
the attempt waits after its last snapshot. It raises `Stopped` if the job must end, and `AttemptRestarted` if another attempt must start.
`attempt_end` decides about both. If the attempt fails, `step` raises the error. `pace` waits until the next step has work to do.
"""

from __future__ import annotations

import logging
import time

from penstock.checkpoint.events import (
    CheckpointAborted,
    CheckpointCompleted,
    Event,
    SavepointCompleted,
    SavepointFailed,
    SnapshotRequest,
)
from penstock.common.errors import EpochFailed
from penstock.graph.job_graph import JobGraph
from penstock.jobmanager.coordinators.source_coordinator import SourceCoordinator
from penstock.jobmanager.coordinators.watermark_alignment import limits
from penstock.jobmanager.failover.failures import JobFailed, hanging
from penstock.jobmanager.job.ending import events
from penstock.jobmanager.job.ending.state import Cause, Stage
from penstock.jobmanager.job.epoch_budget import EpochBudget, busy_s
from penstock.jobmanager.job.job_parts import JobParts
from penstock.jobmanager.job.job_requests import JobRequests
from penstock.jobmanager.runners.runner import Runner
from penstock.taskmanager.protocol import EpochCommand, LevelAck, RestoreCommand, SnapshotAck, SnapshotCommand

logger = logging.getLogger(__name__)

STREAM_EPOCH_MS = 1_000
"""Pipelined runner: maximum interval of barriers in ms, for positions, metrics and printed lines."""
ROUND_MS = 50
"""Pipelined runner: maximum interval of barriers in ms while an iteration may send records back."""
STANDSTILL_S = 0.002
"""Interval in seconds of checks of the last snapshot, its savepoint and its commits."""
MAX_REMAINING_WORK_EPOCHS = 5
"""Batched runner: factor by which epochs are longer while tasks process remaining records after the end of their input. Longer epochs need
fewer Spark jobs, and no task waits for the output of these tasks.
"""
NEWS_S = 0.02
"""Pipelined runner: interval in seconds of checks for the tasks' reports while a checkpoint uploads."""


class EpochLoop:
    """Epochs of one attempt.

    Args:
        parts: parts of the job.
        requests: requests of the job, with the state machine that ends the attempt.
        runner: runner, which is started for the attempt.
        plans: state that each slot restores in its first epoch.
    """

    def __init__(
        self,
        parts: JobParts,
        requests: JobRequests,
        runner: Runner,
        graph: JobGraph,
        attempt: int,
        plans: list[RestoreCommand],
    ) -> None:
        self.epoch = 0
        self._parts = parts
        self._requests = requests
        self._runner = runner
        self._graph = graph
        self._attempt = attempt
        self._plans = plans
        self._completed: list[int] = []
        self._aborted: list[int] = []
        self._committed: list[int] = []
        self._budget = EpochBudget(parts.settings.epoch_max_records, graph.levels)
        self.emits_watermarks = False
        """Whether the next epoch emits periodic watermarks before their time (for tests on a manual clock)."""
        self._next_timer: int | None = None
        self._has_remaining_work = False
        """Whether a task still processes remaining records because its input has ended."""
        self._loop_is_active = False
        """Whether an iteration contains records, or may soon contain some."""
        self._began_at = 0
        """Start of the running epoch, in ms."""
        self._sleeps_until = 0.0
        """End of the pause on the monotonic clock, in seconds. Batched runner: the pause prevents a trickle of input from using the cluster
        all the time.
        """

    @property
    def exhausted(self) -> bool:
        """Return whether every source was read to its end and tasks have processed the remaining records."""
        return not self._has_remaining_work and all(source.exhausted for source in self._parts.sources.values())

    def step(self) -> None:
        """Run one epoch, or no epoch while the attempt waits after its last snapshot.

        Raises:
            Stopped, AttemptRestarted: the attempt is over.
        """
        if self.epoch > 0 and self.exhausted and not self._requests.state.input_ended:
            self._requests.feed(events.InputEnded())
        self._requests.settle()
        if self._requests.state.is_paused or self._only_waits_for_storage:
            self._wait_for_outcome()
        else:
            request = self._next_request()
            is_last = self._is_last(request)
            if is_last and request is not None:
                self._requests.feed(events.LastSnapshotSent(request.checkpoint_id))
            self._run_epoch(request, is_last=is_last)
            if request is not None:
                self._requests.feed(events.BarrierReached(request.checkpoint_id))
            self._handle_events()
        self._requests.settle()

    @property
    def _only_waits_for_storage(self) -> bool:
        """Return whether the input has ended, and only a manifest that is being stored delays the trigger of the last snapshot.

        An epoch of the batched runner is a Spark job, which would have no effect without input.
        """
        return not self._runner.streaming and self.exhausted and self._parts.checkpoints.coordinator.is_storing

    def _wait_for_outcome(self) -> None:
        """Wait for the outcome of a snapshot. No record may be read after the last snapshot, because it would have to be read again."""
        self._sleep(STANDSTILL_S)
        self._requests.take()
        self._handle_events()
        if self._requests.state.stage is Stage.COMMITTING and self._parts.commits.is_idle:
            self._notify_end()
            self._requests.feed(events.CommitsDone())

    def _notify_end(self) -> None:
        """Notify the tasks that their last snapshot is complete and committed. Functions may then commit, and sources acknowledge messages
        to queues.

        Raises:
            JobFailed, EpochFailed: the notification at the end of the input failed. The next attempt reaches the end of the input again and
                repeats the notification. A failure in a stop is only logged, because a restore of its savepoint can do the missing work.
        """
        self._handle_events()
        if not (self._completed or self._committed):
            return
        self._began_at = self._now()
        last = EpochCommand(self._attempt, self.epoch, max_ms=0, only_notifies=True)
        last.completed, last.aborted, last.committed = self._completed, self._aborted, self._committed
        self._completed, self._aborted, self._committed = [], [], []
        self.epoch += 1
        try:
            self._raise_failure(self._runner.run_epoch([last] * self._graph.slots, self._check_end_timeout))
        except (JobFailed, EpochFailed) as error:
            if self._is_ended_by_input:
                raise
            logger.warning("tasks could not be notified that their last snapshot is complete: %s", error)

    @property
    def _is_ended_by_input(self) -> bool:
        ending = self._requests.state.ending
        return ending is not None and ending.cause is Cause.INPUT

    def _check_end_timeout(self) -> None:
        """Check the time limit of the notification. The limit is the checkpoint timeout at the end of the input, and the
        cancellation timeout in a stop.
        """
        self._requests.take()
        settings = self._parts.settings
        took = self._now() - self._began_at
        if took > (settings.checkpoint_timeout_ms if self._is_ended_by_input else settings.cancellation_timeout_ms):
            raise self._hanging(EpochFailed(f"tasks have not acknowledged their last snapshot for {took} ms"))

    def _next_request(self) -> SnapshotRequest | None:
        """Return the next snapshot to take. The last snapshot of a bounded job is triggered when no other checkpoint is in progress."""
        coordinator, state = self._parts.checkpoints.coordinator, self._requests.state
        ends = state.stage is Stage.SNAPSHOT and state.ending is not None and state.ending.cause is Cause.INPUT
        request = coordinator.final_checkpoint(self._now()) if ends else None
        return request if request is not None else coordinator.next_trigger(self._now())

    def _is_last(self, request: SnapshotRequest | None) -> bool:
        state = self._requests.state
        if request is None or state.stage is not Stage.SNAPSHOT or state.ending is None:
            return False
        if state.ending.cause is Cause.INPUT:
            return request.is_final
        return self._parts.checkpoints.coordinator.serves(state.ending.id)

    def _run_epoch(self, request: SnapshotRequest | None, *, is_last: bool) -> None:
        now = self._now()
        for source in self._parts.sources.values():
            source.discover(now)
        state = self._requests.state
        finish = is_last and state.ending is not None and state.ending.cause is Cause.INPUT
        commands = self._commands(request, exclusive=is_last or not state.reads, finish=finish)
        if self.epoch == 0:
            for command, plan in zip(commands, self._plans, strict=True):
                command.is_first = True
                command.restore = plan
        started, self._began_at = time.monotonic(), now
        try:
            acks = self._runner.run_epoch(commands, self._watch)
            self._raise_failure(acks)
        except Exception:
            if request is not None:
                self._parts.checkpoints.coordinator.on_failed(request.checkpoint_id, "its epoch failed", self._now())
            raise
        took = time.monotonic() - started
        self._sleeps_until = started + min(2 * took, self._parts.settings.epoch_target_ms / 1e3)
        self._apply_acks(acks, took * 1e3)
        if finish and any(source.loop_id and source.has_splits for source in self._parts.sources.values()):
            raise EpochFailed("an iteration still had records when the job was to end. The job processes them first")
        self._budget.on_epoch(
            self._max_read(acks), took_s=took, busy_s=took if self._runner.streaming else busy_s(acks)
        )
        if request is not None:
            self._parts.results.barrier(request.checkpoint_id)
            self._parts.checkpoints.coordinator.on_barrier(
                request.checkpoint_id, {uid: source.snapshot() for uid, source in self._parts.sources.items()}
            )
        self._apply_snapshots([snapshot for ack in acks for snapshot in ack.snapshots])
        self._release(self._parts.results.end_of_epoch())
        self.epoch += 1

    def _watch(self) -> None:
        """Handle events during an epoch: checkpoints become due or expire, and too many failures end the attempt.

        The first epoch, which restores state, takes no checkpoints.
        """
        self._requests.take()
        if self.epoch > 0:
            self._parts.checkpoints.coordinator.trigger_due(self._now())
        else:
            self._parts.steps.check(self._runner.whereabouts(), self._runner.unanswered)
        try:
            self._handle_events()
        except EpochFailed as error:
            error.message += self._unanswered()
            raise self._hanging(error) from None
        self._requests.settle_lost()

    def _hanging(self, error: EpochFailed) -> Exception:
        """Return the failure of the task that blocks the epoch if it has reported its location, else the given error."""
        whereabouts = self._runner.whereabouts()
        stuck = min(((level, slot) for slot, level in whereabouts), default=None)
        if stuck is None:
            return error
        level, slot = stuck
        return hanging(whereabouts[slot, level], slot, level, error.message)

    def _unanswered(self) -> str:
        """Describe the tasks that block the epoch. The level nearest to the sources is the cause, because later levels wait for this level."""
        took = self._now() - self._began_at
        if took < self._parts.settings.checkpoint_timeout_ms // 2:
            return ""  # the checkpoint expired for another reason
        missing = self._runner.unanswered()
        level = min((level for _, level in missing), default=-1)
        names = ", ".join(repr(stage.name) for stage in self._graph.stages_on(level)) or "a task"
        slots = ", ".join(str(slot) for slot, at in missing if at == level) or "?"
        return f"; epoch {self.epoch} has run for {took} ms: {names} has not finished the epoch in slot {slots}"

    def _commands(self, request: SnapshotRequest | None, *, exclusive: bool, finish: bool) -> list[EpochCommand]:
        assignments = {uid: source.take_assignments() for uid, source in self._parts.sources.items()}
        ended = [uid for uid, source in self._parts.sources.items() if source.ends_without_splits]
        aligned = limits(a for source in self._parts.sources.values() if (a := source.aligned()) is not None)
        completed, self._completed = self._completed, []
        aborted, self._aborted = self._aborted, []
        committed, self._committed = self._committed, []
        drain = request is not None and request.drain
        snapshot = None
        if request is not None:
            snapshot = SnapshotCommand(request.checkpoint_id, self._parts.checkpoints.url, synchronous=exclusive)
        max_ms = 0 if exclusive else self._read_ms()
        # Nothing is read after the last barrier of an attempt, so alignment costs nothing and repeats nothing.
        aligns = exclusive or finish or not self.epoch or self._parts.settings.aligns(batch=self._graph.is_batch)
        max_records = self._max_records()
        max_bytes = 0 if self._runner.streaming else self._parts.settings.epoch_max_bytes
        processing_time = self._parts.clock.now_ms() if hasattr(self._parts.clock, "set") else None
        emits_watermarks, self.emits_watermarks = self.emits_watermarks, False
        return [
            EpochCommand(
                attempt=self._attempt,
                epoch=self.epoch,
                assignments={uid: splits[slot] for uid, splits in assignments.items() if slot in splits},
                aligned=aligned,
                ended=ended,
                max_ms=max_ms,
                max_records=max_records,
                max_bytes=max_bytes,
                snapshot=snapshot,
                completed=completed,
                aborted=aborted,
                committed=committed,
                drain=drain,
                finish=finish or drain,
                aligns=aligns or drain,
                processing_time=processing_time,
                emits_watermarks=emits_watermarks,
            )
            for slot in range(self._graph.slots)
        ]

    def _max_records(self) -> int:
        """Return the maximum number of records of a source subtask until the next barrier. 0 means no limit."""
        return 0 if self._runner.streaming and not self._budget.is_bound else self._budget.records

    def _read_ms(self) -> int:
        """Return the time in ms in which sources read and tasks process remaining records: the target, or less if a checkpoint is due."""
        target = self._parts.settings.epoch_target_ms
        if self._has_remaining_work:
            target *= MAX_REMAINING_WORK_EPOCHS
        due = self._parts.checkpoints.next_due(self._now())
        return max(1, target if due is None else min(target, due))

    @staticmethod
    def _raise_failure(acks: list[LevelAck]) -> None:
        failed = [ack for ack in acks if ack.failure is not None]
        if failed:
            # The failure of the first level is the cause. Failures of later levels follow from it.
            first = min(failed, key=lambda ack: (ack.level, ack.slot))
            assert first.failure is not None
            raise JobFailed(first.failure, first.host)

    def _apply_acks(self, acks: list[LevelAck], duration_ms: float) -> None:
        timers = []
        now = self._now()
        loops = {source.loop_id: source for source in self._parts.sources.values() if source.loop_id}
        for ack in acks:
            for uid, progress in ack.sources.items():
                self._parts.sources[uid].on_progress(ack.slot, progress)
            if ack.next_processing_timer is not None:
                timers.append(ack.next_processing_timer)
            for line in ack.lines:
                if self._parts.sink.on_line is not None:
                    self._parts.sink.on_line(line)
            for uid, values in ack.results.items():
                if uid in loops:
                    loops[uid].feed(values, now)
                else:
                    self._parts.results.add(uid, values)
        self._next_timer = min(timers, default=None)
        self._has_remaining_work = any(ack.has_remaining_work for ack in acks)
        if loops:
            holds_records = self._has_remaining_work or any(ack.holds_records for ack in acks)
            self._loop_is_active = holds_records or any(source.had_input for source in self._parts.sources.values())
            if not holds_records:
                self._end_loops(list(loops.values()))
        self._parts.metrics.on_epoch(self.epoch, acks, duration_ms, self._lag())

    def _end_loops(self, loops: list[SourceCoordinator]) -> None:
        """End the iterations if no iteration contains records, and no other source has more records."""
        others = (source for source in self._parts.sources.values() if not source.loop_id)
        if all(source.exhausted for source in others) and not any(loop.has_splits for loop in loops):
            for loop in loops:
                loop.end_loop()

    def _max_read(self, acks: list[LevelAck]) -> int:
        """Return the number of records of the source subtask that read the most."""
        stages = self._graph.stages
        read = (v.records_in for ack in acks for id, v in ack.vertices.items() if stages[id].level == 0)
        return max(read, default=0)

    def _apply_snapshots(self, snapshots: list[SnapshotAck]) -> None:
        for snapshot in snapshots:
            self._parts.checkpoints.coordinator.on_ack(snapshot, self._now())

    def _lag(self) -> int | None:
        known = [lag for lag in (source.lag for source in self._parts.sources.values()) if lag is not None]
        return sum(known) if known else None

    # --- events of the coordinator ------------------------------------------------------------------------------

    def _handle_events(self) -> None:
        for checkpoint_id in self._parts.commits.take_confirmed():
            self._parts.checkpoints.coordinator.on_committed(checkpoint_id)
            self._committed.append(checkpoint_id)
        coordinator_events = self._parts.checkpoints.coordinator.tick(self._now())
        for event in coordinator_events:
            self._on_event(event)
        self._requests.handle_coordinator_events(coordinator_events)

    def _on_event(self, event: Event) -> None:
        match event:
            case CheckpointCompleted():
                logger.info("checkpoint %d is complete", event.checkpoint_id)
                self._completed.append(event.checkpoint_id)
                self._parts.commits.commit(event.checkpoint_id, event.commits)
                self._release(self._parts.results.completed(event.checkpoint_id))
            case CheckpointAborted():
                logger.warning("checkpoint %d failed: %s", event.checkpoint_id, event.reason)
                self._aborted.append(event.checkpoint_id)
            case SavepointCompleted():
                logger.info("savepoint %s is complete", event.url)
            case SavepointFailed():
                logger.warning("a savepoint failed, and the job continues: %s", event.error)

    def _release(self, results: list[tuple[str, list[bytes]]]) -> None:
        for uid, values in results:
            if self._parts.sink.on_results is not None:
                self._parts.sink.on_results(uid, values)

    @property
    def had_input(self) -> bool:
        """Return whether the last epoch has read records."""
        return any(source.had_input for source in self._parts.sources.values())

    @property
    def is_settled(self) -> bool:
        """Return whether another epoch at the same time and without new input would change nothing."""
        return not (
            self.epoch == 0
            or self._completed
            or self._aborted
            or not self._requests.state.is_idle
            or self._parts.checkpoints.coordinator.is_in_progress
            or self.had_input
            or any(source.was_fed for source in self._parts.sources.values())
            or self._has_remaining_work
            or self.exhausted
        )

    def next_due(self) -> int | None:
        """Return when the next work without new input is due (monotonic ms): a timer, a record, a discovery or a checkpoint."""
        times = [] if self._next_timer is None else [self._monotonic(self._next_timer)]
        for source in self._parts.sources.values():
            record, discovery = source.next_record_at(), source.next_discovery()
            times += [] if record is None else [self._monotonic(record)]
            times += [] if discovery is None else [discovery]
        due = self._parts.checkpoints.next_due(self._now())
        if due is not None:
            times.append(self._now() + due)
        return min(times, default=None)

    def pace(self) -> None:
        """Wait until there is work to do: input, a timer, a checkpoint or a request.

        After a batched epoch that is shorter than the target, pause for the duration of the epoch, at most until the target has passed.
        """
        if self._requests.state.is_paused:
            return
        now = self._now()
        in_progress = self._parts.checkpoints.coordinator.is_in_progress
        if self.exhausted:
            left_ms = 2 if in_progress else self._parts.checkpoints.coordinator.final_checkpoint_at() - now
            self._sleep(min(max(left_ms, 0), STREAM_EPOCH_MS) / 1000)
            return
        if self._runner.streaming:
            times = [now + (ROUND_MS if self._loop_is_active else STREAM_EPOCH_MS)]
        elif in_progress:
            times = [now + 5]
        elif self._has_remaining_work or any(source.had_input for source in self._parts.sources.values()):
            times = [now]
        else:
            times = [now + self._parts.settings.epoch_target_ms]
        if not self._runner.streaming:
            records = (source.next_record_at() for source in self._parts.sources.values())
            times += [self._monotonic(at) for at in records if at is not None]
            if self._next_timer is not None:
                times.append(self._monotonic(self._next_timer))
        times += [at for source in self._parts.sources.values() if (at := source.next_discovery()) is not None]
        seconds = (min(times) - now) / 1000
        if not self._runner.streaming:
            seconds = max(seconds, self._sleeps_until - time.monotonic())
        due = None if in_progress else self._parts.checkpoints.next_due(now)
        if due is not None:
            seconds = min(seconds, due / 1000)
        self._sleep(max(0.0, seconds))

    def _sleep(self, seconds: float) -> None:
        """Wait for this time. A request ends the wait, and the end of a checkpoint in progress ends it too."""
        uploads = self._runner.streaming and self._parts.checkpoints.coordinator.is_in_progress
        if not uploads:
            self._parts.wake.wait(seconds)
        until = time.monotonic() + seconds
        while (
            uploads
            and (remaining_s := until - time.monotonic()) > 0
            and not self._parts.wake.wait(min(remaining_s, NEWS_S))
        ):
            self._apply_snapshots(self._runner.take_news())
            self._handle_events()
            uploads = self._parts.checkpoints.coordinator.is_in_progress
        self._parts.wake.clear()

    def _now(self) -> int:
        """Return the time of the monotonic clock in ms. Nothing here may depend on changes of the wall clock."""
        return self._parts.clock.monotonic_ms()

    def _monotonic(self, moment_ms: int) -> int:
        """Convert a processing time in ms since the epoch to the monotonic clock."""
        return moment_ms - self._parts.clock.now_ms() + self._now()
