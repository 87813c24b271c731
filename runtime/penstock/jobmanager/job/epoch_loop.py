"""The epochs of one attempt: plan one, have it run, take in the acks, see what the coordinator says.

Everything a job can be interrupted for happens between two epochs, because no record is in flight there. `step` runs one
epoch, or takes in what goes on while the attempt stands still after its last snapshot; it raises `Stopped` when the job is to
end, `BegunAnew` when another attempt should start, and whatever made the attempt fail. Which of it, `attempt_end` says. `pace`
waits until the next step has something to do.
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
from penstock.jobmanager.job.epoch_budget import EpochBudget
from penstock.jobmanager.job.job_parts import JobParts
from penstock.jobmanager.job.job_requests import JobRequests
from penstock.jobmanager.runners.runner import Runner
from penstock.taskmanager.protocol import EpochCommand, LevelAck, RestoreCommand, SnapshotAck, SnapshotCommand

logger = logging.getLogger(__name__)

STREAM_EPOCH_MS = 1_000
"""Pipelined runner: a barrier at least that often, for positions, metrics and printed lines."""
ROUND_MS = 50
"""Pipelined runner: as `STREAM_EPOCH_MS`, while there is something that may go round in an iteration."""
STANDSTILL_S = 0.002
"""Between two looks at how far the last snapshot, its savepoint and its commits have come."""
WORK_OFF_EPOCHS = 5
"""Batched runner: tasks that work off what they hold take so much more time than sources. Nobody waits for what they read, and each
epoch is a Spark job."""
NEWS_S = 0.02
"""Pipelined runner: while a checkpoint uploads, what the tasks have told of it is looked at so often."""


class EpochLoop:
    """One attempt.

    Args:
        parts: of the job.
        requests: of the job, with what ends the attempt.
        runner: has been started for the attempt.
        plans: what each slot restores in its first epoch.
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
        self._next_timer: int | None = None
        self._works_off = False
        """A task still has something to do because its input has ended."""
        self._goes_round = False
        """In an iteration, or it may soon."""
        self._began_at = 0
        """When the epoch that runs was begun, ms."""
        self._rests_until = 0.0
        """On the monotonic clock, s. Batched runner: a trickle of input must not keep the cluster busy all the time."""

    @property
    def exhausted(self) -> bool:
        """Every source was read to its end, and what tasks do because of that is done."""
        return not self._works_off and all(source.exhausted for source in self._parts.sources.values())

    def step(self) -> None:
        """Run one epoch, or none while the attempt stands still.

        Raises:
            Stopped, BegunAnew: the attempt is over.
        """
        if self.epoch > 0 and self.exhausted and not self._requests.state.input_ended:
            self._requests.feed(events.InputEnded())
        self._requests.settle()
        if self._requests.state.stands_still or self._only_waits_for_storage:
            self._stand_still()
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
        """The input has ended, and what keeps the last snapshot from being triggered is a manifest on its way to storage.

        An epoch of the batched runner is a Spark job; one without input would do nothing for it.
        """
        return not self._runner.streaming and self.exhausted and self._parts.checkpoints.coordinator.is_storing

    def _stand_still(self) -> None:
        """Until the outcome of a snapshot is known. After the last one nothing may be read: it would have to be read again."""
        self._rest(STANDSTILL_S)
        self._requests.take()
        self._handle_events()
        if self._requests.state.stage is Stage.COMMITTING and self._parts.commits.is_idle:
            self._tell_of_the_end()
            self._requests.feed(events.CommitsDone())

    def _tell_of_the_end(self) -> None:
        """Tell the tasks that their last snapshot is complete and committed: functions may commit by that themselves, and queues are
        told what was read.

        Raises:
            JobFailed, EpochFailed: at the end of the input; the next attempt comes to its end once more, and tells again. A stop has
                its savepoint, and whoever restores it can do what was not done.
        """
        self._handle_events()
        if not (self._completed or self._committed):
            return
        self._began_at = self._now()
        last = EpochCommand(self._attempt, self.epoch, max_ms=0, tells=True)
        last.completed, last.aborted, last.committed = self._completed, self._aborted, self._committed
        self._completed, self._aborted, self._committed = [], [], []
        self.epoch += 1
        try:
            self._raise_failure(self._runner.run_epoch([last] * self._graph.slots, self._watch_the_end))
        except (JobFailed, EpochFailed) as error:
            if self._input_ends_it:
                raise
            logger.warning("tasks were not told that their last snapshot is complete: %s", error)

    @property
    def _input_ends_it(self) -> bool:
        ending = self._requests.state.ending
        return ending is not None and ending.cause is Cause.INPUT

    def _watch_the_end(self) -> None:
        """Who commits when it is told, at the end of the input, has as much time as in any other epoch; a stop is not kept waiting."""
        self._requests.take()
        settings = self._parts.settings
        took = self._now() - self._began_at
        if took > (settings.checkpoint_timeout_ms if self._input_ends_it else settings.cancellation_timeout_ms):
            raise self._hanging(
                EpochFailed(f"tasks that were told of their last snapshot have not answered for {took} ms")
            )

    def _next_request(self) -> SnapshotRequest | None:
        """The last snapshot of a bounded job is triggered as soon as no other checkpoint is in progress."""
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
                self._parts.checkpoints.coordinator.on_failed(request.checkpoint_id, "the epoch failed", self._now())
            raise
        took = time.monotonic() - started
        self._rests_until = started + min(2 * took, self._parts.settings.epoch_target_ms / 1e3)
        self._take_in(acks, took * 1e3)
        if finish and any(source.loop_id and source.has_splits for source in self._parts.sources.values()):
            raise EpochFailed("rows went round in an iteration while the job came to its end: they are worked on first")
        self._budget.on_epoch(
            self._most_read(acks), took_s=took, busy_s=took if self._runner.streaming else _busy_s(acks)
        )
        if request is not None:
            self._parts.results.barrier(request.checkpoint_id)
            self._parts.checkpoints.coordinator.on_barrier(
                request.checkpoint_id, {uid: source.snapshot() for uid, source in self._parts.sources.items()}
            )
        self._take_in_snapshots([snapshot for ack in acks for snapshot in ack.snapshots])
        self._release(self._parts.results.end_of_epoch())
        self.epoch += 1

    def _watch(self) -> None:
        """Time passes also for an epoch that does not end: checkpoints fall due, expire, and are more than is tolerated.

        Not for the first one, in which state is restored: until the job runs it takes no checkpoints.
        """
        self._requests.take()
        if self.epoch > 0:
            self._parts.checkpoints.coordinator.trigger_due(self._now())
        else:
            self._parts.steps.look(self._runner.whereabouts(), self._runner.unanswered)
        try:
            self._handle_events()
        except EpochFailed as error:
            error.message += self._unanswered()
            raise self._hanging(error) from None
        self._requests.settle_lost()

    def _hanging(self, error: EpochFailed) -> Exception:
        """The failure of the task that keeps the epoch from ending, if it has said where it is."""
        whereabouts = self._runner.whereabouts()
        stuck = min(((level, slot) for slot, level in whereabouts), default=None)
        if stuck is None:
            return error
        level, slot = stuck
        return hanging(whereabouts[slot, level], slot, level, error.message)

    def _unanswered(self) -> str:
        """Who keeps the epoch from ending: the level nearest to the sources; those behind it only wait for it."""
        took = self._now() - self._began_at
        if took < self._parts.settings.checkpoint_timeout_ms // 2:
            return ""  # the checkpoint expired for another reason
        missing = self._runner.unanswered()
        level = min((level for _, level in missing), default=-1)
        names = ", ".join(repr(stage.name) for stage in self._graph.stages_on(level)) or "a task"
        slots = ", ".join(str(slot) for slot, at in missing if at == level) or "?"
        return f"; epoch {self.epoch} has run for {took} ms: {names} has not come to its end in slot {slots}"

    def _commands(self, request: SnapshotRequest | None, *, exclusive: bool, finish: bool) -> list[EpochCommand]:
        assignments = {uid: source.take_assignments() for uid, source in self._parts.sources.items()}
        no_more = [uid for uid, source in self._parts.sources.items() if source.no_more_splits]
        aligned = limits(a for source in self._parts.sources.values() if (a := source.aligned()) is not None)
        completed, self._completed = self._completed, []
        aborted, self._aborted = self._aborted, []
        committed, self._committed = self._committed, []
        drain = request is not None and request.drain
        snapshot = None
        if request is not None:
            snapshot = SnapshotCommand(request.checkpoint_id, self._parts.checkpoints.url, synchronous=exclusive)
        max_ms = 0 if exclusive else self._read_ms()
        # Behind the last barrier of an attempt nothing is read, so waiting costs nothing and repeats nothing.
        aligns = exclusive or finish or not self.epoch or self._parts.settings.aligns(batch=self._graph.is_batch)
        max_records = self._max_records()
        max_bytes = 0 if self._runner.streaming else self._parts.settings.epoch_max_bytes
        processing_time = self._parts.clock.now_ms() if hasattr(self._parts.clock, "set") else None
        return [
            EpochCommand(
                attempt=self._attempt,
                epoch=self.epoch,
                assignments={uid: splits[slot] for uid, splits in assignments.items() if slot in splits},
                aligned=aligned,
                finished_discovery=no_more,
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
            )
            for slot in range(self._graph.slots)
        ]

    def _max_records(self) -> int:
        """Of a source subtask, until the next barrier; 0 = without bound."""
        return 0 if self._runner.streaming and not self._budget.is_bound else self._budget.records

    def _read_ms(self) -> int:
        """How long the sources read, and what they have ended is worked off: the target, but not past the next checkpoint."""
        target = self._parts.settings.epoch_target_ms
        if self._works_off:
            target *= WORK_OFF_EPOCHS
        due = self._parts.checkpoints.next_due(self._now())
        return max(1, target if due is None else min(target, due))

    @staticmethod
    def _raise_failure(acks: list[LevelAck]) -> None:
        failed = [ack for ack in acks if ack.failure is not None]
        if failed:
            # The first level's failure is the cause; what deeper levels say follows from it.
            first = min(failed, key=lambda ack: (ack.level, ack.slot))
            assert first.failure is not None
            raise JobFailed(first.failure, first.host)

    def _take_in(self, acks: list[LevelAck], duration_ms: float) -> None:
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
                    self._parts.results.hold(uid, values)
        self._next_timer = min(timers, default=None)
        self._works_off = any(ack.works_off for ack in acks)
        if loops:
            holds_records = self._works_off or any(ack.holds_records for ack in acks)
            self._goes_round = holds_records or any(source.had_input for source in self._parts.sources.values())
            if not holds_records:
                self._end_loops(list(loops.values()))
        self._parts.metrics.on_epoch(self.epoch, acks, duration_ms, self._lag())

    def _end_loops(self, loops: list[SourceCoordinator]) -> None:
        """What goes round comes to its end when nothing does, in no loop, and no other source has anything."""
        others = (source for source in self._parts.sources.values() if not source.loop_id)
        if all(source.exhausted for source in others) and not any(loop.has_splits for loop in loops):
            for loop in loops:
                loop.end_loop()

    def _most_read(self, acks: list[LevelAck]) -> int:
        """Records of the source subtask that read the most."""
        stages = self._graph.stages
        read = (v.records_in for ack in acks for id, v in ack.vertices.items() if stages[id].level == 0)
        return max(read, default=0)

    def _take_in_snapshots(self, snapshots: list[SnapshotAck]) -> None:
        for snapshot in snapshots:
            self._parts.checkpoints.coordinator.on_ack(snapshot, self._now())

    def _lag(self) -> int | None:
        known = [lag for lag in (source.lag for source in self._parts.sources.values()) if lag is not None]
        return sum(known) if known else None

    # --- what the coordinator says ----------------------------------------------------------------------------

    def _handle_events(self) -> None:
        for checkpoint_id in self._parts.commits.take_confirmed():
            self._parts.checkpoints.coordinator.on_committed(checkpoint_id)
            self._committed.append(checkpoint_id)
        told = self._parts.checkpoints.coordinator.tick(self._now())
        for event in told:
            self._on_event(event)
        self._requests.take_in(told)

    def _on_event(self, event: Event) -> None:
        match event:
            case CheckpointCompleted():
                logger.info("checkpoint %d is complete", event.checkpoint_id)
                self._completed.append(event.checkpoint_id)
                self._parts.commits.commit(event.checkpoint_id, event.commits)
                self._release(self._parts.results.completed(event.checkpoint_id))
            case CheckpointAborted():
                logger.warning("checkpoint %d is given up: %s", event.checkpoint_id, event.reason)
                self._aborted.append(event.checkpoint_id)
            case SavepointCompleted():
                logger.info("savepoint %s is complete", event.url)
            case SavepointFailed():
                logger.warning("a savepoint failed, the job goes on: %s", event.error)

    def _release(self, results: list[tuple[str, list[bytes]]]) -> None:
        for uid, values in results:
            if self._parts.sink.on_results is not None:
                self._parts.sink.on_results(uid, values)

    @property
    def is_settled(self) -> bool:
        """Nothing is left to do: another epoch at the same time and without new input would change nothing."""
        return not (
            self.epoch == 0
            or self._completed
            or self._aborted
            or not self._requests.state.is_idle
            or self._parts.checkpoints.coordinator.is_in_progress
            or any(source.had_input or source.was_fed for source in self._parts.sources.values())
            or self._works_off
            or self.exhausted
        )

    def next_due(self) -> int | None:
        """When there is something to do even without new input (ms): a timer, a record, a discovery, a checkpoint."""
        times = [] if self._next_timer is None else [self._next_timer]
        for source in self._parts.sources.values():
            times += [at for at in (source.next_record_at(), source.next_discovery()) if at is not None]
        due = self._parts.checkpoints.next_due(self._now())
        if due is not None:
            times.append(self._now() + due)
        return min(times, default=None)

    def pace(self) -> None:
        """Wait until there is something to do: input, a timer, a checkpoint, a request.

        Batched epochs that are shorter than the target rest for as long as they took, at most until the target is over.
        """
        if self._requests.state.stands_still:
            return
        now = self._now()
        in_progress = self._parts.checkpoints.coordinator.is_in_progress
        if self.exhausted:
            left_ms = 2 if in_progress else self._parts.checkpoints.coordinator.final_checkpoint_at() - now
            self._rest(min(max(left_ms, 0), STREAM_EPOCH_MS) / 1000)
            return
        if self._runner.streaming:
            times = [now + (ROUND_MS if self._goes_round else STREAM_EPOCH_MS)]
        elif in_progress:
            times = [now + 5]
        elif self._works_off or any(source.had_input for source in self._parts.sources.values()):
            times = [now]
        else:
            times = [now + self._parts.settings.epoch_target_ms]
        if not self._runner.streaming:
            times += [at for source in self._parts.sources.values() if (at := source.next_record_at()) is not None]
            if self._next_timer is not None:
                times.append(self._next_timer)
        times += [at for source in self._parts.sources.values() if (at := source.next_discovery()) is not None]
        seconds = (min(times) - now) / 1000
        if not self._runner.streaming:
            seconds = max(seconds, self._rests_until - time.monotonic())
        due = None if in_progress else self._parts.checkpoints.next_due(now)
        if due is not None:
            seconds = min(seconds, due / 1000)
        self._rest(max(0.0, seconds))

    def _rest(self, seconds: float) -> None:
        """Until that long is over, somebody asks for something, or a checkpoint in progress is none any more."""
        uploads = self._runner.streaming and self._parts.checkpoints.coordinator.is_in_progress
        if not uploads:
            self._parts.wake.wait(seconds)
        until = time.monotonic() + seconds
        while uploads and (left := until - time.monotonic()) > 0 and not self._parts.wake.wait(min(left, NEWS_S)):
            self._take_in_snapshots(self._runner.take_news())
            self._handle_events()
            uploads = self._parts.checkpoints.coordinator.is_in_progress
        self._parts.wake.clear()

    def _now(self) -> int:
        return self._parts.clock.now_ms()


def _busy_s(acks: list[LevelAck]) -> float:
    """What the slowest task of each level spent on records; with the batched runner levels run one after the other."""
    by_level: dict[int, float] = {}
    for ack in acks:
        busy_ms = sum(vertex.busy_ms for vertex in ack.vertices.values())
        by_level[ack.level] = max(by_level.get(ack.level, 0.0), busy_ms)
    return sum(by_level.values()) / 1e3
