"""The JobMaster: the loop of epochs of one job, and everything that may interrupt it.

One thread owns the job. It plans an epoch (split assignments, bounds, a snapshot when the coordinator wants one), has the
runner carry it out, and takes in the acks: source positions, state handles, pending commits, metrics, failures. Between
two epochs no record is in flight, so that is where everything else happens: savepoints, rescaling, stopping, moving to
other slots. Requests from other threads wait in a queue until then.

An *attempt* is one execution from a restore to the next failure, rescale or end. A failed epoch voids the attempt: the
state it left in the workers is never used again; the restart strategy decides on another, which restores the last
completed checkpoint, rewinds the sources to its positions and commits its pending sink pieces once more (commit is
idempotent; what no manifest names is discarded).
"""

from __future__ import annotations

import queue
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.checkpoint.events import (
    CheckpointAborted,
    CheckpointCompleted,
    Event,
    JobMustFail,
    SavepointCompleted,
    SavepointFailed,
    SnapshotRequest,
)
from penstock.checkpoint.manifest import SourceState
from penstock.common.errors import Fenced, NotEnoughSlots, PenstockError
from penstock.common.job_status import JobStatus
from penstock.graph.job_graph import JobGraph
from penstock.graph.program import Program
from penstock.graph.stream_graph import JobGraphBuilder
from penstock.jobmanager.checkpoints import JobCheckpoints
from penstock.jobmanager.held_results import HeldResults
from penstock.jobmanager.job_metrics import JobMetrics
from penstock.jobmanager.job_history import Failure, JobHistory, Rescale
from penstock.jobmanager.requests import Operation
from penstock.jobmanager.runner import Attempt, Runner
from penstock.jobmanager.settings import JobSettings
from penstock.metrics.store import MetricStore
from penstock.jobmanager.sinks import SinkCommits
from penstock.jobmanager.source_coordinator import SourceCoordinator
from penstock.taskmanager.operator import Clock
from penstock.taskmanager.protocol import EpochCommand, LevelAck, RestoreCommand, SnapshotCommand, SnapshotAck, TaskFailure
from penstock.taskmanager.worker import TaskSettings, encode_payload

STREAM_EPOCH_MS = 1_000
"""Pipelined runner: a barrier at least that often, for positions, metrics and printed lines."""
STREAM_POLL_MS = 50
"""Pipelined runner: while a checkpoint uploads, barriers bring its acks."""

_FATAL = frozenset(
    {
        "INVALID_JOB",
        "KEYED_STATE_NOT_AVAILABLE",
        "STATE_NAME_CONFLICT",
        "STATE_TYPE",
        "STATE_SCHEMA_INCOMPATIBLE",
        "RESTORE_REFUSED",
    }
)
"""Codes of failures that another attempt would meet again."""


class JobFailed(Exception):
    """A task reported a failure."""

    def __init__(self, failure: TaskFailure, host: str = "") -> None:
        self.failure = failure
        self.host = host
        super().__init__(failure.message)


class _Rescaled(Exception):
    """Leave the attempt in order to start another at once; nothing failed."""


class _Stopped(Exception):
    """Leave the job for good with a status."""

    def __init__(self, status: JobStatus) -> None:
        self.status = status
        super().__init__(status.value)


@dataclass
class ResultSink:
    """Where values of `execute_and_collect` and printed lines go."""

    on_results: Callable[[str, list[bytes]], None] | None = None
    on_line: Callable[[str], None] | None = None


@dataclass
class JobMasterOptions:
    restore_path: str = ""
    """Savepoint or checkpoint of the first start."""
    fresh: bool = False
    """Refuse to start if this job id has checkpoints: a stateful job must not start empty by accident."""
    allow_non_restored: bool | list[str] = False
    parallelism: int | None = None
    slot_timeout_s: float = 300.0
    stabilization_s: float = 3.0
    """How long the adaptive scheduler waits for lost slots before it goes on with fewer."""
    sink: ResultSink = field(default_factory=ResultSink)


class JobMaster:
    """Runs one job. `start()` begins; `wait()` returns the final status.

    Args:
        program: what the user's program built.
        job_id: 32 hex digits.
        clock: the machine's, or a manual one.

    Making one builds the job graph and refuses what can be refused (`InvalidJob`); `attach` gives it a runner.
    """

    def __init__(
        self,
        program: Program,
        job_id: str,
        settings: JobSettings,
        clock: Clock,
        options: JobMasterOptions | None = None,
    ) -> None:
        self.program = program
        self.job_id = job_id
        self.runner: Runner
        self.settings = settings
        self.clock = clock
        self.options = options or JobMasterOptions()
        self.history = JobHistory()
        self.parallelism = self.options.parallelism or program.parallelism
        self.wanted_parallelism = self.parallelism
        self.graph: JobGraph = self._build_graph()
        self.metrics = JobMetrics(job_id, program.name)
        self.checkpoints = JobCheckpoints(job_id, settings, self.options.restore_path)
        self.commits = SinkCommits(job_id, settings.object_store_options)
        self.results = HeldResults(settings.checkpointing)
        self.attempt = 0
        self.epoch = 0
        self.error: BaseException | None = None
        self._sources: dict[str, SourceCoordinator] = {}
        self._requests: queue.SimpleQueue[Operation] = queue.SimpleQueue()
        self._restart = settings.restart_strategy()
        self._thread: threading.Thread | None = None
        self._done = threading.Event()
        self._wake = threading.Event()
        self._completed: list[int] = []
        self._aborted: list[int] = []
        self._next_timer: int | None = None
        self._exclusive: Operation | None = None
        """A stop or a rescale in progress: its snapshot is the last thing the attempt does."""
        self._waiting: dict[str, Operation] = {}
        """Savepoints and checkpoints that were asked for, by request id."""

    # --- from other threads -----------------------------------------------------------------------------------

    def attach(self, runner: Runner, store: MetricStore | None = None) -> JobMaster:
        """The started cluster to run on, and where metrics are kept."""
        self.runner = runner
        if store is not None:
            self.metrics.store = store
        return self

    def start(self) -> None:
        self._thread = threading.Thread(target=self.run, name=f"job-{self.job_id[:8]}", daemon=True)
        self._thread.start()

    def request(self, operation: Operation) -> Operation:
        """Queue a request; refused at once when the job has ended."""
        if self.history.status.is_globally_terminal_state() or self._done.is_set():
            operation.fail(f"job {self.job_id} is {self.history.status.value}")
            return operation
        self._requests.put(operation)
        self._wake.set()
        self.runner.request_barrier()
        return operation

    def suspend(self) -> None:
        """Leave the job as it is, with its checkpoints: another JobManager will go on."""
        self._requests.put(Operation("suspend"))
        self._wake.set()

    def wait(self, timeout_s: float | None = None) -> JobStatus:
        self._done.wait(timeout_s)
        return self.history.status

    @property
    def is_done(self) -> bool:
        return self._done.is_set()

    @property
    def restart_strategy(self) -> str:
        """In words."""
        return self._restart.describe()

    # --- the job ----------------------------------------------------------------------------------------------

    def run(self) -> None:
        """The thread's body: attempts until the job ends."""
        status = JobStatus.FAILED
        try:
            self.history.move(JobStatus.INITIALIZING, self._now())
            self.checkpoints.open(fresh=self.options.fresh)
            while True:
                try:
                    status = self._run_attempt()
                    break
                except _Rescaled:
                    self._end_attempt("rescaled")
                except (_Stopped, Fenced):
                    raise
                except Exception as error:
                    self._fail_over(error)
        except _Stopped as stopped:
            status = stopped.status
        except Fenced as error:
            self.error = error
            status = JobStatus.SUSPENDED
            self._record_failure(error)
        except BaseException as error:
            self.error = error
            self._record_failure(error)
        finally:
            self._shutdown(status)

    def _fail_over(self, error: Exception) -> None:
        self._record_failure(error)
        code = error.failure.code if isinstance(error, JobFailed) else getattr(error, "code", "")
        delay = None if code in _FATAL else self._restart.on_failure(self._now())
        if delay is None:
            raise error
        if self._exclusive is not None:
            self._exclusive.fail(f"the job failed meanwhile: {error}")
            self._exclusive = None
        self._end_attempt(str(error))
        self.history.move(JobStatus.RESTARTING, self._now())
        self.history.restarts += 1
        deadline = time.monotonic() + delay / 1000
        while (left := deadline - time.monotonic()) > 0:
            self._wake.wait(min(left, 0.2))
            self._wake.clear()
            self._handle_while_down()

    def _end_attempt(self, reason: str) -> None:
        for event in self.checkpoints.end_attempt(reason, self._now()):
            self._on_event(event)
        self.results.drop()

    def _record_failure(self, error: BaseException) -> None:
        if isinstance(error, JobFailed):
            failure = error.failure
            entry = Failure(
                self._now(), failure.kind, failure.message, failure.traceback, failure.name, failure.location, error.host
            )
        else:
            text = "".join(traceback.format_exception(error))
            entry = Failure(self._now(), type(error).__name__, str(error), text)
        self.history.failures.append(entry)
        self.history.event(entry.timestamp, f"{entry.name}: {entry.message.splitlines()[0] if entry.message else ''}")

    def _shutdown(self, status: JobStatus) -> None:
        try:
            self.runner.end_attempt()
            for source in self._sources.values():
                source.close()
            self.commits.close()
            self.checkpoints.close(status, self._now())
        except Exception as error:  # the job's outcome stands; what could not be tidied up is recorded
            self._record_failure(error)
        self.history.move(status, self._now())
        stopping = self._exclusive
        if stopping is not None and not stopping.is_done:
            if stopping.kind in ("cancel", "stop") and status in (JobStatus.FINISHED, JobStatus.CANCELED):
                stopping.complete(location=stopping.location)
            else:
                stopping.fail(f"the job ended as {status.value}")
        for operation in self._waiting.values():
            if not operation.is_done:
                operation.fail(f"the job ended as {status.value}")
        self._done.set()
        while not self._requests.empty():
            self._requests.get().fail(f"the job ended as {status.value}")

    # --- one attempt ------------------------------------------------------------------------------------------

    def _run_attempt(self) -> JobStatus:
        self.runner.end_attempt()
        self._place()
        self.attempt += 1
        graph = self.graph = self._build_graph()
        recovery = self.checkpoints.take_over()
        plans = self.checkpoints.plan(graph, recovery, self.options.allow_non_restored)
        recovery.begin()
        self.commits.begin_attempt(graph, recovery.commits, self.checkpoints.referenced(recovery))
        self.checkpoints.begin_attempt(recovery, graph, self._now())
        self._begin_sources(graph, self.checkpoints.source_states())
        settings = self.settings
        payload = encode_payload(
            graph,
            TaskSettings(
                job_id=self.job_id,
                job_name=graph.name,
                attempt=self.attempt,
                backend=settings.backend,
                backend_options=settings.backend_options,
                object_store_options=settings.object_store_options,
                work_dir=settings.work_dir,
                collect_lines=self.options.sink.on_line is not None,
                **self.runner.task_settings,
            ),
        )
        self.runner.start(Attempt(self.job_id, self.attempt, payload, graph.slots, graph.levels))
        self.metrics.begin_attempt(graph, self.attempt)
        self._completed, self._aborted, self._next_timer = [], [], None
        return self._epochs(graph, plans)

    def _place(self) -> None:
        """Settle on a parallelism for which there are slots; wait if need be."""
        started = time.monotonic()
        told = False
        while True:
            self._handle_while_down()
            self.parallelism = self.wanted_parallelism
            needed = self._build_graph().slots
            available = self.runner.available_slots()
            if available >= needed:
                return
            waited = time.monotonic() - started
            adaptive = self.settings.scheduler == "adaptive"
            if adaptive and available >= 1 and waited >= self.options.stabilization_s:
                self.parallelism = available
                self.history.event(self._now(), f"{available} of {needed} slots: going on with parallelism {available}")
                return
            if waited >= self.options.slot_timeout_s:
                raise NotEnoughSlots(
                    f"job {self.program.name!r} needs {needed} slots, the cluster has {available}, "
                    f"after waiting {int(waited)} s",
                    remedy="add workers or slots per worker, lower the parallelism, or set jobmanager.scheduler: adaptive",
                )
            if not told:
                told = True
                self.history.event(self._now(), f"waiting for slots: {available} of {needed}")
            self._wake.wait(0.1)
            self._wake.clear()

    def _build_graph(self) -> JobGraph:
        program = self.program
        return JobGraphBuilder(
            program.transformations,
            name=program.name,
            parallelism=self.parallelism,
            max_parallelism=program.max_parallelism,
            limit=self.parallelism if self.parallelism < self.wanted_parallelism else None,
            chaining=self.settings.chaining,
            job_parameters=program.global_job_parameters,
            auto_watermark_interval_ms=self.settings.auto_watermark_interval_ms,
            require_uids=self.settings.require_uids,
        ).build()

    def _begin_sources(self, graph: JobGraph, states: dict[str, SourceState]) -> None:
        for node in graph.operators:
            if node.source is not None:
                coordinator = self._sources.get(node.uid)
                if coordinator is None:
                    coordinator = self._sources[node.uid] = SourceCoordinator(node.uid, node.source)
                coordinator.start_attempt(node.parallelism, states.get(node.uid))

    def _epochs(self, graph: JobGraph, plans: list[RestoreCommand]) -> JobStatus:
        self.epoch = 0
        while True:
            self._handle_requests()
            finish = self.epoch > 0 and all(source.exhausted for source in self._sources.values())
            request = self._next_request(finish=finish)
            if finish and request is None:
                self._settle_events()
                continue
            exclusive = request is not None and (finish or self._exclusive is not None)
            self._run_epoch(graph, plans, request, exclusive=exclusive, finish=finish)
            self._handle_events()
            if exclusive:
                status = self._settle(request)
                if status is not None:
                    return status
            self._grow_back()
            if not all(source.exhausted for source in self._sources.values()):
                self._pace()

    def _next_request(self, *, finish: bool) -> SnapshotRequest | None:
        if finish:
            return self.checkpoints.coordinator.final_checkpoint(self._now())
        return self.checkpoints.coordinator.next_trigger(self._now())

    def _run_epoch(
        self,
        graph: JobGraph,
        plans: list[RestoreCommand],
        request: SnapshotRequest | None,
        *,
        exclusive: bool,
        finish: bool,
    ) -> None:
        now = self._now()
        for source in self._sources.values():
            source.discover(now)
        commands = self._commands(graph, request, exclusive=exclusive, finish=finish)
        if self.epoch == 0:
            for command, plan in zip(commands, plans, strict=True):
                command.is_first = True
                command.restore = plan
        started = time.monotonic()
        try:
            acks = self.runner.run_epoch(commands)
            self._raise_failure(acks)
        except Exception:
            if request is not None:
                self.checkpoints.coordinator.on_failed(request.checkpoint_id, "the epoch failed", self._now())
            raise
        self._take_in(acks, (time.monotonic() - started) * 1e3)
        if request is not None:
            self.results.barrier(request.checkpoint_id)
            self.checkpoints.coordinator.on_barrier(
                request.checkpoint_id, {uid: source.snapshot() for uid, source in self._sources.items()}
            )
        self._take_in_snapshots([snapshot for ack in acks for snapshot in ack.snapshots])
        self._release(self.results.end_of_epoch())
        if self.epoch == 0:
            self._running()
        self.epoch += 1

    def _running(self) -> None:
        self.history.move(JobStatus.RUNNING, self._now())
        operation = self._exclusive
        if operation is not None and operation.kind == "rescale":
            self._exclusive = None
            self.history.rescales.append(
                Rescale(
                    timestamp=self._now(),
                    old_parallelism=operation.arguments["old"],
                    new_parallelism=self.parallelism,
                    trigger=operation.arguments.get("trigger", "request"),
                    duration_ms=self._now() - operation.arguments["started"],
                )
            )
            operation.complete(result=self.parallelism)

    def _commands(
        self, graph: JobGraph, request: SnapshotRequest | None, *, exclusive: bool, finish: bool
    ) -> list[EpochCommand]:
        assignments = {uid: source.take_assignments() for uid, source in self._sources.items()}
        no_more = [uid for uid, source in self._sources.items() if source.no_more_splits]
        completed, self._completed = self._completed, []
        aborted, self._aborted = self._aborted, []
        drain = request is not None and request.drain
        snapshot = None
        if request is not None:
            snapshot = SnapshotCommand(request.checkpoint_id, self.checkpoints.url, synchronous=exclusive)
        return [
            EpochCommand(
                attempt=self.attempt,
                epoch=self.epoch,
                assignments={uid: splits[slot] for uid, splits in assignments.items() if slot in splits},
                finished_discovery=no_more,
                max_ms=0 if exclusive else self._read_ms(),
                max_records=self.settings.epoch_max_records,
                snapshot=snapshot,
                completed=completed,
                aborted=aborted,
                drain=drain,
                finish=finish or drain,
                processing_time=self.clock.now_ms() if hasattr(self.clock, "set") else None,
            )
            for slot in range(graph.slots)
        ]

    def _read_ms(self) -> int:
        """How long the sources read: the target, but not past the next checkpoint."""
        target = self.settings.epoch_target_ms
        due = self.checkpoints.next_due(self._now())
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
        for ack in acks:
            for uid, progress in ack.sources.items():
                self._sources[uid].on_progress(ack.slot, progress)
            if ack.next_processing_timer is not None:
                timers.append(ack.next_processing_timer)
            for line in ack.lines:
                if self.options.sink.on_line is not None:
                    self.options.sink.on_line(line)
            for uid, values in ack.results.items():
                self.results.hold(uid, values)
        self._next_timer = min(timers, default=None)
        self.metrics.on_epoch(self.epoch, acks, duration_ms, self._lag())

    def _take_in_snapshots(self, snapshots: list[SnapshotAck]) -> None:
        for snapshot in snapshots:
            self.checkpoints.coordinator.on_ack(snapshot, self._now())

    def _lag(self) -> int | None:
        known = [lag for lag in (source.lag for source in self._sources.values()) if lag is not None]
        return sum(known) if known else None

    # --- what the coordinator says ----------------------------------------------------------------------------

    def _handle_events(self) -> list[Event]:
        for checkpoint_id in self.commits.take_confirmed():
            self.checkpoints.coordinator.on_committed(checkpoint_id)
        events = self.checkpoints.coordinator.tick(self._now())
        for event in events:
            self._on_event(event)
        return events

    def _on_event(self, event: Event) -> None:
        match event:
            case CheckpointCompleted():
                self._completed.append(event.checkpoint_id)
                self.commits.commit(event.checkpoint_id, event.commits)
                self._release(self.results.completed(event.checkpoint_id))
                for request_id in event.requests:
                    if request_id in self._waiting:
                        location = self.checkpoints.location(event.checkpoint_id)
                        self._waiting.pop(request_id).complete(location=location, result=event.checkpoint_id)
            case CheckpointAborted():
                self._aborted.append(event.checkpoint_id)
                for request_id in event.requests:
                    if request_id in self._waiting:
                        self._waiting.pop(request_id).fail(event.reason)
            case SavepointCompleted():
                if event.request_id in self._waiting:
                    self._waiting.pop(event.request_id).complete(location=event.url)
            case SavepointFailed():
                if event.request_id in self._waiting:
                    self._waiting.pop(event.request_id).fail(str(event.error))
            case JobMustFail():
                raise event.error

    def _release(self, results: list[tuple[str, list[bytes]]]) -> None:
        for uid, values in results:
            if self.options.sink.on_results is not None:
                self.options.sink.on_results(uid, values)

    def _settle_events(self) -> list[Event]:
        """Wait a moment for the coordinator's background work."""
        time.sleep(0.002)
        return self._handle_events()

    def _settle(self, request: SnapshotRequest | None) -> JobStatus | None:
        """The attempt stands still after an exclusive snapshot until its outcome is known; None: the job goes on."""
        assert request is not None
        operation = self._exclusive
        while True:
            for event in self._settle_events():
                match event:
                    case CheckpointCompleted(checkpoint_id=done) if done == request.checkpoint_id:
                        if operation is not None and operation.kind == "rescale":
                            self._set_wanted(operation)
                            raise _Rescaled
                        if operation is None and not self.checkpoints.coordinator.is_copying:
                            return self._ended(JobStatus.FINISHED)
                    case SavepointCompleted(is_final=True):
                        if operation is not None:
                            operation.location = event.url
                            if operation.arguments.get("cancel"):
                                return self._ended(JobStatus.CANCELED)
                        return self._ended(JobStatus.FINISHED)
                    case SavepointFailed(is_final=True):
                        if operation is not None:
                            operation.fail(f"the savepoint failed, the job goes on: {event.error}")
                        self._exclusive = None
                        return None
                    case CheckpointAborted(checkpoint_id=done) if done == request.checkpoint_id:
                        if operation is None:
                            return None  # the final checkpoint is tried again
                        if operation.kind == "rescale":
                            operation.fail(f"the snapshot failed, the job goes on unchanged: {event.reason}")
                            self._exclusive = None
                            return None

    def _ended(self, status: JobStatus) -> JobStatus:
        """Everything the last snapshot promised must be visible before the job is over."""
        self.commits.drain()
        self._handle_events()
        return status

    def _grow_back(self) -> None:
        """Adaptive: slots have come back, so return to the parallelism the job wants."""
        if (
            self._exclusive is None
            and self.parallelism < self.wanted_parallelism
            and self.settings.scheduler == "adaptive"
        ):
            available = self.runner.available_slots()
            if available > self.parallelism:
                self._begin_rescale(
                    Operation("rescale", {"parallelism": min(available, self.wanted_parallelism), "trigger": "slots"})
                )

    def _pace(self) -> None:
        """Wait until there is something to do: input, a timer, a checkpoint, a request."""
        now = self._now()
        in_progress = self.checkpoints.coordinator.is_in_progress
        if self.runner.streaming:
            times = [now + (STREAM_POLL_MS if in_progress else STREAM_EPOCH_MS)]
        elif in_progress:
            times = [now + 5]
        elif any(source.had_input for source in self._sources.values()):
            self._wake.clear()
            return
        else:
            times = [now + self.settings.epoch_target_ms]
        if not self.runner.streaming:
            times += [at for source in self._sources.values() if (at := source.next_record_at()) is not None]
            if self._next_timer is not None:
                times.append(self._next_timer)
        times += [at for source in self._sources.values() if (at := source.next_discovery()) is not None]
        due = None if in_progress else self.checkpoints.next_due(now)
        if due is not None:
            times.append(now + due)
        self._wake.wait(max(0.0, (min(times) - now) / 1000))
        self._wake.clear()

    # --- requests ---------------------------------------------------------------------------------------------

    def _handle_requests(self) -> None:
        while not self._requests.empty():
            operation = self._requests.get()
            try:
                self._handle(operation)
            except PenstockError as error:
                operation.fail(str(error))

    def _handle(self, operation: Operation) -> None:
        coordinator = self.checkpoints.coordinator
        match operation.kind:
            case "cancel":
                self._exclusive = operation
                self.history.move(JobStatus.CANCELLING, self._now())
                raise _Stopped(JobStatus.CANCELED)
            case "suspend":
                raise _Stopped(JobStatus.SUSPENDED)
            case "savepoint":
                coordinator.trigger_savepoint(operation.arguments.get("directory") or None, request_id=operation.id)
                self._waiting[operation.id] = operation
            case "checkpoint":
                coordinator.trigger_checkpoint(operation.id)
                self._waiting[operation.id] = operation
            case "stop":
                if self._exclusive is not None:
                    operation.fail(f"a {self._exclusive.kind} is in progress")
                    return
                coordinator.trigger_savepoint(
                    operation.arguments.get("directory") or None,
                    is_final=True,
                    drain=bool(operation.arguments.get("drain")),
                    request_id=operation.id,
                )
                self._exclusive = operation
            case "rescale":
                self._begin_rescale(operation)
            case other:
                operation.fail(f"unknown request {other!r}")

    def _handle_while_down(self) -> None:
        """Between attempts there are no tasks: cancelling works, a new parallelism is noted, the rest must wait."""
        while not self._requests.empty():
            operation = self._requests.get()
            if operation.kind in ("cancel", "suspend"):
                self._handle(operation)
            elif operation.kind == "rescale":
                self._set_wanted(operation)
                operation.complete(result=self.wanted_parallelism)
            else:
                operation.fail(f"the job is {self.history.status.value}; try again when it is RUNNING")

    def _set_wanted(self, operation: Operation) -> None:
        if operation.arguments.get("trigger") != "slots":
            self.wanted_parallelism = int(operation.arguments["parallelism"])

    def _begin_rescale(self, operation: Operation) -> None:
        parallelism = int(operation.arguments["parallelism"])
        if self._exclusive is not None:
            operation.fail(f"a {self._exclusive.kind} is in progress")
            return
        if not 1 <= parallelism <= self.graph.max_parallelism:
            operation.fail(f"parallelism {parallelism} is not in 1..{self.graph.max_parallelism} (the max parallelism)")
            return
        if parallelism == self.parallelism:
            self._set_wanted(operation)
            operation.complete(result=parallelism)
            return
        available = self.runner.available_slots()
        if available < parallelism and self.settings.scheduler != "adaptive":
            operation.fail(f"parallelism {parallelism} needs {parallelism} slots, the cluster has {available}")
            return
        operation.arguments |= {"old": self.parallelism, "started": self._now()}
        self._exclusive = operation
        self.checkpoints.coordinator.trigger_checkpoint(operation.id)

    def _now(self) -> int:
        return self.clock.now_ms()
