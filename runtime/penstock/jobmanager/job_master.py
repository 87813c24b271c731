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
from typing import Any

from penstock.checkpoint.manifest import Manifest
from penstock.common.errors import EpochFailed, Fenced, NotEnoughSlots, PenstockError, RecoverableError
from penstock.common.job_status import JobStatus
from penstock.graph.job_graph import JobGraph
from penstock.graph.program import Program
from penstock.graph.stream_graph import JobGraphBuilder
from penstock.jobmanager.checkpoints import JobCheckpoints
from penstock.jobmanager.job_metrics import JobMetrics
from penstock.jobmanager.job_history import Failure, JobHistory, Rescale
from penstock.jobmanager.requests import Operation
from penstock.jobmanager.runner import Attempt, Runner
from penstock.jobmanager.settings import JobSettings
from penstock.metrics.store import MetricStore
from penstock.jobmanager.sinks import SinkCommits
from penstock.jobmanager.source_coordinator import SourceCoordinator
from penstock.taskmanager.operator import Clock
from penstock.taskmanager.protocol import EpochCommand, LevelAck, RestoreCommand, SnapshotCommand, TaskFailure
from penstock.taskmanager.worker import TaskSettings, encode_payload

IDLE_EPOCH_MS = 10_000
"""Even a job with nothing to do runs an epoch now and then: Spark ends Python workers that were idle for a minute."""

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
    restore_latest: bool = False
    """Start from the newest complete checkpoint of this job id, if there is one."""
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
        self.checkpoints = JobCheckpoints(job_id, program.name, settings, clock)
        self.commits = SinkCommits(settings.object_store_options)
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
        self._restore: Manifest | None = None
        self._stopping: Operation | None = None
        self._rescaling: Operation | None = None

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

    def wait(self, timeout_s: float | None = None) -> JobStatus:
        self._done.wait(timeout_s)
        return self.history.status

    @property
    def is_done(self) -> bool:
        return self._done.is_set()

    # --- the job ----------------------------------------------------------------------------------------------

    def run(self) -> None:
        """The thread's body: attempts until the job ends."""
        status = JobStatus.FAILED
        try:
            status = self._run_attempts()
        except _Stopped as stopped:
            status = stopped.status
        except BaseException as error:
            self.error = error
            self._record_failure(error)
        finally:
            self._shutdown(status)

    def _run_attempts(self) -> JobStatus:
        self.history.move(JobStatus.INITIALIZING, self._now())
        self.checkpoints.open()
        self._restore = self.checkpoints.initial_restore(self.options)
        while True:
            try:
                return self._run_attempt()
            except _Rescaled:
                continue
            except (_Stopped, Fenced):
                raise
            except Exception as error:
                self._fail_over(error)

    def _fail_over(self, error: Exception) -> None:
        self._record_failure(error)
        code = error.failure.code if isinstance(error, JobFailed) else getattr(error, "code", "")
        if code in _FATAL:
            raise error
        delay = self._restart.on_failure(self._now())
        if delay is None:
            raise error
        if self._rescaling is not None:
            self._rescaling.fail(f"the job failed while it was rescaled: {error}")
            self._rescaling = None
        self.checkpoints.on_failover(str(error))
        self.history.move(JobStatus.RESTARTING, self._now())
        self.history.restarts += 1
        deadline = time.monotonic() + delay / 1000
        while (left := deadline - time.monotonic()) > 0:
            self._wake.wait(min(left, 0.2))
            self._wake.clear()
            self._handle_while_down()
        self._restore = self.checkpoints.latest()

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
            for source in self._sources.values():
                source.close()
            self.checkpoints.close(status)
            self.commits.close()
        except Exception as error:  # the job's outcome stands; what could not be tidied up is recorded
            self._record_failure(error)
        self.history.move(status, self._now())
        if self._stopping is not None and not self._stopping.is_done:
            if status in (JobStatus.FINISHED, JobStatus.CANCELED):
                self._stopping.complete(location=self._stopping.location)
            else:
                self._stopping.fail(f"the job ended as {status.value}")
        while not self._requests.empty():
            self._requests.get().fail(f"the job ended as {status.value}")
        self._done.set()

    # --- one attempt ------------------------------------------------------------------------------------------

    def _run_attempt(self) -> JobStatus:
        self._place()
        self.attempt += 1
        graph = self._build_graph()
        self.graph = graph
        restore = self._restore
        plans = self.checkpoints.plan(graph, restore, self.options.allow_non_restored)
        self.commits.begin_attempt(graph, restore, self.attempt)
        self._begin_sources(graph, restore)
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
            ),
        )
        self.runner.start(Attempt(self.job_id, self.attempt, payload, graph.slots, graph.levels))
        self.metrics.begin_attempt(graph, self.attempt)
        self.checkpoints.begin_attempt(graph)
        self._completed, self._aborted, self._next_timer = [], [], None
        return self._epochs(graph, plans)

    def _place(self) -> None:
        """Settle on a parallelism for which there are slots; wait if need be."""
        started = time.monotonic()
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
            if self.history.status is not JobStatus.CREATED and waited < 0.2:
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
            limit=self.parallelism if self.parallelism < getattr(self, "wanted_parallelism", 0) else None,
            chaining=self.settings.chaining,
            job_parameters=program.global_job_parameters,
            auto_watermark_interval_ms=self.settings.auto_watermark_interval_ms,
            require_uids=self.settings.require_uids,
        ).build()

    def _begin_sources(self, graph: JobGraph, restore: Manifest | None) -> None:
        for node in graph.operators:
            if node.source is not None:
                coordinator = self._sources.get(node.uid)
                if coordinator is None:
                    coordinator = self._sources[node.uid] = SourceCoordinator(node.uid, node.source)
                coordinator.start_attempt(node.parallelism, None if restore is None else restore.sources.get(node.uid))

    def _epochs(self, graph: JobGraph, plans: list[RestoreCommand]) -> JobStatus:
        self.epoch = 0
        snapshot: SnapshotCommand | None = None
        while True:
            self._handle_requests()
            finish = self._all_exhausted() and self.epoch > 0
            if snapshot is None:
                snapshot = self.checkpoints.next_snapshot(self._now(), final=finish)
            now = self._now()
            for source in self._sources.values():
                source.discover(now)
            commands = self._commands(graph, snapshot, finish=finish)
            if self.epoch == 0:
                for command, plan in zip(commands, plans, strict=True):
                    command.is_first = True
                    command.restore = plan
            started = time.monotonic()
            acks = self.runner.run_epoch(commands)
            duration_ms = (time.monotonic() - started) * 1e3
            self._take_in(graph, acks, duration_ms)
            self.checkpoints.on_epoch_acks(acks, self._source_states() if snapshot is not None else None, self.commits)
            if self.epoch == 0:
                self._running()
            self.epoch += 1
            snapshot = None
            self._poll_checkpoints()
            if finish:
                return self._finish(acks)
            self._after_barrier()
            if not self._all_exhausted():
                self._pace()

    def _running(self) -> None:
        self.history.move(JobStatus.RUNNING, self._now())
        if self._rescaling is not None:
            operation, self._rescaling = self._rescaling, None
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

    def _commands(self, graph: JobGraph, snapshot: SnapshotCommand | None, *, finish: bool) -> list[EpochCommand]:
        assignments = {uid: source.take_assignments() for uid, source in self._sources.items()}
        no_more = [uid for uid, source in self._sources.items() if source.no_more_splits]
        completed, self._completed = self._completed, []
        aborted, self._aborted = self._aborted, []
        stopping = self._stopping is not None and self._stopping.arguments.get("barrier_only", False)
        return [
            EpochCommand(
                attempt=self.attempt,
                epoch=self.epoch,
                assignments={uid: splits[slot] for uid, splits in assignments.items() if slot in splits},
                finished_discovery=no_more,
                max_ms=0 if finish or stopping else self._read_ms(),
                max_records=self.settings.epoch_max_records,
                snapshot=snapshot,
                completed=completed,
                aborted=aborted,
                drain=self._is_draining(),
                finish=finish,
                processing_time=self._manual_time(),
            )
            for slot in range(graph.slots)
        ]

    def _manual_time(self) -> int | None:
        return self.clock.now_ms() if hasattr(self.clock, "set") else None

    def _read_ms(self) -> int:
        """How long the sources read: the target, but not past the next checkpoint."""
        target = self.settings.epoch_target_ms
        due = self.checkpoints.next_due(self._now())
        return max(1, target if due is None else min(target, due))

    def _take_in(self, graph: JobGraph, acks: list[LevelAck], duration_ms: float) -> None:
        failed = [ack for ack in acks if ack.failure is not None]
        if failed:
            # The first level's failure is the cause; what deeper levels say follows from it.
            first = min(failed, key=lambda ack: (ack.level, ack.slot))
            assert first.failure is not None
            raise JobFailed(first.failure, first.host)
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
                self.checkpoints.hold_results(uid, values)
        self._next_timer = min(timers, default=None)
        self.metrics.on_epoch(self.epoch, acks, duration_ms, self._lag())

    def _lag(self) -> int | None:
        lags = [source.lag for source in self._sources.values()]
        known = [lag for lag in lags if lag is not None]
        return sum(known) if known else None

    def _source_states(self) -> dict[str, Any]:
        return {uid: source.snapshot() for uid, source in self._sources.items()}

    def _all_exhausted(self) -> bool:
        return self._is_draining() or all(source.exhausted for source in self._sources.values())

    def _is_draining(self) -> bool:
        return self._stopping is not None and bool(self._stopping.arguments.get("drain"))

    # --- the end of an epoch ----------------------------------------------------------------------------------

    def _poll_checkpoints(self) -> None:
        """Checkpoints that were completed or given up since the last epoch."""
        outcome = self.checkpoints.poll(self._now(), self.commits)
        self._completed += outcome.completed
        self._aborted += outcome.aborted
        for uid, values in outcome.results:
            if self.options.sink.on_results is not None:
                self.options.sink.on_results(uid, values)
        self.commits.raise_failure()

    def _after_barrier(self) -> None:
        """Requests that waited for a snapshot: stop and rescale."""
        stopping = self._stopping
        if stopping is not None and stopping.arguments.get("snapshot") is not None:
            snapshot: Operation = stopping.arguments["snapshot"]
            if snapshot.is_done:
                self._end_stop(stopping, snapshot)
        rescaling = self._rescaling
        if rescaling is not None and rescaling.arguments.get("snapshot") is not None:
            snapshot = rescaling.arguments["snapshot"]
            if snapshot.is_done:
                self._end_rescale(rescaling, snapshot)
        if rescaling is None and stopping is None:
            self._grow_back()

    def _grow_back(self) -> None:
        """Adaptive: slots have come back, so return to the parallelism the job wants."""
        if self.parallelism < self.wanted_parallelism and self.settings.scheduler == "adaptive":
            available = self.runner.available_slots()
            if available > self.parallelism:
                self._begin_rescale(
                    Operation("rescale", {"parallelism": min(available, self.wanted_parallelism), "trigger": "slots"})
                )

    def _finish(self, acks: list[LevelAck]) -> JobStatus:
        """The last epoch has run: its snapshot must be complete and its sinks committed before the job is FINISHED."""
        outcome = self.checkpoints.finish(self._now(), self.commits)
        for uid, values in outcome.results:
            if self.options.sink.on_results is not None:
                self.options.sink.on_results(uid, values)
        self.commits.drain()
        if self._stopping is not None:
            self._stopping.location = outcome.location
        return JobStatus.FINISHED

    def _pace(self) -> None:
        """Wait until there is something to do: input, a timer, a checkpoint, a request."""
        now = self._now()
        if self.checkpoints.in_progress or any(source.had_input for source in self._sources.values()):
            self._wake.clear()
            return
        times = [now + self.settings.epoch_target_ms]
        for source in self._sources.values():
            at = source.next_record_at()
            if at is not None:
                times.append(at)
        if self._next_timer is not None:
            times.append(self._next_timer)
        due = self.checkpoints.next_due(now)
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
            except (_Stopped, _Rescaled):
                raise
            except PenstockError as error:
                operation.fail(str(error))

    def _handle(self, operation: Operation) -> None:
        match operation.kind:
            case "cancel":
                self._stopping = operation
                self.history.move(JobStatus.CANCELLING, self._now())
                raise _Stopped(JobStatus.CANCELED)
            case "savepoint" | "checkpoint":
                self.checkpoints.request(operation)
            case "stop":
                self._begin_stop(operation)
            case "rescale":
                self._begin_rescale(operation)
            case other:
                operation.fail(f"unknown request {other!r}")

    def _handle_while_down(self) -> None:
        """Between attempts there are no tasks: cancelling works, a new parallelism is noted, the rest must wait."""
        while not self._requests.empty():
            operation = self._requests.get()
            if operation.kind == "cancel":
                self._handle(operation)
            elif operation.kind == "rescale":
                self.wanted_parallelism = int(operation.arguments["parallelism"])
                operation.complete(result=self.wanted_parallelism)
            else:
                operation.fail(f"the job is {self.history.status.value}; try again when it is RUNNING")

    def _begin_stop(self, operation: Operation) -> None:
        if self._stopping is not None:
            operation.fail("the job is already stopping")
            return
        self._stopping = operation
        if operation.arguments.get("drain"):
            self.checkpoints.final_savepoint(operation.arguments.get("directory", ""))
            return
        snapshot = Operation("savepoint", {"directory": operation.arguments.get("directory", "")})
        operation.arguments["snapshot"] = snapshot
        self.checkpoints.request(snapshot)
        operation.arguments["barrier_only"] = True

    def _end_stop(self, operation: Operation, snapshot: Operation) -> None:
        if snapshot.failure is not None:
            self._stopping = None
            operation.fail(f"the savepoint failed, the job goes on: {snapshot.failure}")
            return
        self.commits.drain()
        operation.location = snapshot.location
        cancel = operation.arguments.get("cancel", False)
        raise _Stopped(JobStatus.CANCELED if cancel else JobStatus.FINISHED)

    def _begin_rescale(self, operation: Operation) -> None:
        parallelism = int(operation.arguments["parallelism"])
        if self._rescaling is not None:
            operation.fail("the job is being rescaled already")
            return
        if not 1 <= parallelism <= self.graph.max_parallelism:
            operation.fail(f"parallelism {parallelism} is not in 1..{self.graph.max_parallelism} (the max parallelism)")
            return
        if parallelism == self.parallelism:
            self.wanted_parallelism = parallelism
            operation.complete(result=parallelism)
            return
        needed = parallelism
        available = self.runner.available_slots()
        if available < needed and self.settings.scheduler != "adaptive":
            operation.fail(f"parallelism {parallelism} needs {needed} slots, the cluster has {available}")
            return
        operation.arguments |= {"old": self.parallelism, "started": self._now()}
        snapshot = Operation("checkpoint", {})
        operation.arguments["snapshot"] = snapshot
        self._rescaling = operation
        self.checkpoints.request(snapshot)

    def _end_rescale(self, operation: Operation, snapshot: Operation) -> None:
        if snapshot.failure is not None:
            self._rescaling = None
            operation.fail(f"the snapshot failed, the job goes on unchanged: {snapshot.failure}")
            return
        # Records processed after the barrier belong to no checkpoint: the new attempt reads them again.
        if operation.arguments.get("trigger") != "slots":
            self.wanted_parallelism = int(operation.arguments["parallelism"])
        self._restore = self.checkpoints.latest()
        raise _Rescaled

    def _now(self) -> int:
        return self.clock.now_ms()


__all__ = ["EpochFailed", "JobFailed", "JobMaster", "JobMasterOptions", "RecoverableError", "ResultSink"]
