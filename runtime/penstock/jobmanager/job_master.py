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

import logging
import queue
import threading
import time
import traceback
from dataclasses import dataclass, field

from penstock.checkpoint.events import CheckpointCompleted
from penstock.checkpoint.manifest import SourceState
from penstock.common.errors import Fenced, NotEnoughSlots, PenstockError
from penstock.common.job_status import JobStatus
from penstock.connectors.sink import CommitEnvironment
from penstock.connectors.source import EnumeratorContext
from penstock.graph.job_graph import JobGraph
from penstock.graph.program import Program
from penstock.graph.stream_graph import JobGraphBuilder
from penstock.jobmanager.checkpoints import JobCheckpoints
from penstock.jobmanager.epoch_loop import EpochLoop, JobFailed, JobParts, Rescaled, ResultSink, answer
from penstock.jobmanager.held_results import HeldResults
from penstock.jobmanager.job_history import Failure, JobHistory, Rescale
from penstock.jobmanager.job_metrics import JobMetrics
from penstock.jobmanager.requests import Operation
from penstock.jobmanager.runner import Attempt, Runner
from penstock.jobmanager.settings import JobSettings
from penstock.jobmanager.sinks import SinkCommits
from penstock.jobmanager.source_coordinator import SourceCoordinator
from penstock.metrics.store import MetricStore
from penstock.taskmanager.operator import Clock
from penstock.taskmanager.worker import TaskSettings, encode_payload

logger = logging.getLogger(__name__)

_FATAL = frozenset(
    {
        "INVALID_JOB",
        "KEYED_STATE_NOT_AVAILABLE",
        "STATE_NAME_CONFLICT",
        "STATE_TYPE",
        "STATE_SCHEMA_INCOMPATIBLE",
        "RESTORE_REFUSED",
        "SNAPSHOT_NOT_FOUND",
        "SNAPSHOT_TORN",
        "CORRUPT_STATE_FILE",
        "STATE_FORMAT_UNSUPPORTED",
        "CONDITIONAL_WRITES_UNSUPPORTED",
    }
)
"""Codes of failures that another attempt would meet again."""


class _Stopped(Exception):
    """Leave the job for good with a status."""

    def __init__(self, status: JobStatus) -> None:
        self.status = status
        super().__init__(status.value)


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
    keep_result: bool = False
    """Note how the job ended beside its checkpoints, and never run one that has ended (`job_result`)."""


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
        self.parts = JobParts(
            settings=settings,
            clock=clock,
            metrics=JobMetrics(job_id, program.name),
            checkpoints=JobCheckpoints(job_id, settings, self.options.restore_path),
            commits=SinkCommits(job_id, settings.object_store_options),
            results=HeldResults(settings.checkpointing),
            sink=self.options.sink,
        )
        self.attempt = 0
        self.error: BaseException | None = None
        self._requests: queue.SimpleQueue[Operation] = queue.SimpleQueue()
        self._restart = settings.restart_strategy()
        self._thread: threading.Thread | None = None
        self._done = threading.Event()
        self._insisting: threading.Thread | None = None

    @property
    def metrics(self) -> JobMetrics:
        return self.parts.metrics

    @property
    def checkpoints(self) -> JobCheckpoints:
        return self.parts.checkpoints

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
        elif operation.kind == "rescale" and self.runner.available_slots() < int(operation.arguments["parallelism"]):
            threading.Thread(target=self._request_with_slots, args=(operation,), daemon=True).start()
        else:
            self._enqueue(operation)
        return operation

    def _request_with_slots(self, operation: Operation) -> None:
        """A local cluster starts the workers that a rescale needs, while the job runs on."""
        parallelism = int(operation.arguments["parallelism"])
        try:
            if parallelism <= self.graph.max_parallelism:
                self.runner.ensure_slots(parallelism)
        except PenstockError as error:
            operation.fail(str(error))
            return
        self._enqueue(operation)

    def _enqueue(self, operation: Operation) -> None:
        if self._done.is_set():
            operation.fail(f"job {self.job_id} is {self.history.status.value}")
            return
        self._requests.put(operation)
        self.parts.wake.set()
        self.runner.request_barrier()
        if operation.kind == "cancel":
            self._insist()

    def suspend(self) -> None:
        """Leave the job as it is, with its checkpoints: another JobManager will go on."""
        self._requests.put(Operation("suspend"))
        self.parts.wake.set()
        self._insist()

    def _insist(self) -> None:
        """A user's function that never returns must not keep its job alive: end the epoch, and its Python workers."""

        def run() -> None:
            patience_ms = self.settings.cancellation_timeout_ms
            while not self._done.wait(patience_ms / 1000):
                patience_ms = self.settings.cancellation_interval_ms
                try:
                    self.runner.cancel()
                except Exception as error:  # the cluster is going down as well
                    logger.info("job %s could not be ended by force: %s", self.job_id, error)

        if self._insisting is None:
            self._insisting = threading.Thread(target=run, name="penstock-cancel", daemon=True)
            self._insisting.start()

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
            self.open()
            while True:
                try:
                    status = self._run_attempt()
                    break
                except Rescaled:
                    self.begin_rescaled_attempt()
                except (_Stopped, Fenced):
                    raise
                except Exception as error:
                    if self._insisting is not None:
                        self._handle_while_down()
                    self._wait_to_restart(self.fail_over(error))
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
            self.shutdown(status)

    def open(self) -> None:
        """Before the first attempt: look at the checkpoint storage."""
        self.history.move(JobStatus.INITIALIZING, self._now())
        ended = self.checkpoints.result() if self.options.keep_result else None
        if ended is not None:
            raise _Stopped(ended)
        self.checkpoints.open(fresh=self.options.fresh)

    def begin_rescaled_attempt(self) -> None:
        """After `Rescaled`: note the new parallelism for the attempt to come."""
        operation = self.parts.exclusive
        assert operation is not None
        self._set_wanted(operation)
        operation.arguments["restarted"] = True
        self._end_attempt("rescaled")
        self.history.move(JobStatus.INITIALIZING, self._now())

    def fail_over(self, error: Exception) -> int:
        """The attempt has failed: end it, and say how long to wait for the next one (ms).

        Raises:
            The error itself, when there is to be no other attempt.
        """
        if isinstance(error, JobFailed) and error.failure.code in ("CORRUPT_STATE_FILE", "SNAPSHOT_TORN"):
            others = ", ".join(self.checkpoints.earlier())
            told = f". Earlier checkpoints of this job: {others or 'none'}"
            error.failure.remedy += told
            error.failure.message += told
        self._record_failure(error)
        code = error.failure.code if isinstance(error, JobFailed) else getattr(error, "code", "")
        # A job that has never had its slots is not started again and again: it waited for them long enough.
        is_fatal = code in _FATAL or (isinstance(error, NotEnoughSlots) and self.attempt == 0)
        delay = None if is_fatal else self._restart.on_failure(self._now())
        if delay is None:
            raise error
        failure = self.history.failures[-1]
        logger.warning(
            "job %r failed and restarts in %d ms: %s: %s\n%s",
            self.program.name,
            delay,
            failure.name,
            failure.message,
            failure.traceback,
        )
        if self.parts.exclusive is not None:
            self.parts.exclusive.fail(f"the job failed meanwhile: {error}")
            self.parts.exclusive = None
        self.lose_attempt(str(error))
        return delay

    def lose_attempt(self, reason: str) -> None:
        """The state in the tasks is void; the next attempt starts from the last completed checkpoint."""
        self._end_attempt(reason)
        self.history.move(JobStatus.RESTARTING, self._now())
        self.history.restarts += 1

    def _wait_to_restart(self, delay_ms: int) -> None:
        deadline = time.monotonic() + delay_ms / 1000
        while (left := deadline - time.monotonic()) > 0:
            self.parts.wake.wait(min(left, 0.2))
            self.parts.wake.clear()
            self._handle_while_down()

    def _end_attempt(self, reason: str) -> None:
        for event in self.checkpoints.end_attempt(reason, self._now()):
            answer(event, self.parts.waiting)
        self.parts.results.drop()

    def _record_failure(self, error: BaseException) -> None:
        if isinstance(error, JobFailed):
            failure = error.failure
            entry = Failure(
                self._now(),
                failure.kind,
                failure.message,
                failure.traceback,
                failure.name,
                failure.location,
                error.host,
            )
        else:
            text = "".join(traceback.format_exception(error))
            entry = Failure(self._now(), type(error).__name__, str(error), text)
        self.history.failures.append(entry)
        self.history.event(entry.timestamp, f"{entry.name}: {entry.message.splitlines()[0] if entry.message else ''}")

    def shutdown(self, status: JobStatus) -> None:
        """The job is over, or left to another JobManager: let go of everything."""
        try:
            self.runner.end_attempt()
            for source in self.parts.sources.values():
                source.close()
            self._settle_commits(status)
            if self.options.keep_result and status in (JobStatus.FINISHED, JobStatus.CANCELED):
                self.checkpoints.keep_result(status, self._now())
            self.checkpoints.close(status, self._now())
        except Exception as error:  # the job's outcome stands; what could not be tidied up is recorded
            self._record_failure(error)
        try:
            self.runner.close()
        except Exception as error:  # the cluster has gone before
            logger.info("the runner of job %s was not closed: %s", self.job_id, error)
        self.metrics.forget_task_managers()
        self.history.move(status, self._now())
        stopping = self.parts.exclusive
        if stopping is not None and not stopping.is_done:
            if stopping.kind in ("cancel", "stop") and status in (JobStatus.FINISHED, JobStatus.CANCELED):
                stopping.complete(location=stopping.location)
            else:
                stopping.fail(f"the job ended as {status.value}")
        for operation in self.parts.waiting.values():
            if not operation.is_done:
                operation.fail(f"the job ended as {status.value}")
        self._done.set()
        while not self._requests.empty():
            self._requests.get().fail(f"the job ended as {status.value}")

    def _settle_commits(self, status: JobStatus) -> None:
        """Completed checkpoints have promised their commits: carry them out, so that the checkpoints may go."""
        coordinator = self.checkpoints.coordinator
        if status in (JobStatus.FINISHED, JobStatus.CANCELED):
            for event in coordinator.tick(self._now()):
                if isinstance(event, CheckpointCompleted):
                    self.parts.commits.commit(event.checkpoint_id, event.commits)
                answer(event, self.parts.waiting)
        for checkpoint_id in self.parts.commits.close():
            coordinator.on_committed(checkpoint_id)

    # --- one attempt ------------------------------------------------------------------------------------------

    def _run_attempt(self) -> JobStatus:
        loop = self.begin_attempt()
        while True:
            status = self.step(loop)
            if status is not None:
                return status
            if not loop.exhausted:
                loop.pace()

    def begin_attempt(self) -> EpochLoop:
        """Find slots, find what to start from, put the job on the runner. `step` then runs its epochs."""
        self.runner.end_attempt()
        self._place()
        graph = self.graph = self._build_graph()
        recovery = self.checkpoints.take_over()
        # The leader epoch: no attempt of any JobManager of this job ever has the same number.
        self.attempt = recovery.epoch
        plans = self.checkpoints.plan(graph, recovery, self.options.allow_non_restored)
        recovery.begin()
        referenced = self.checkpoints.referenced(recovery)
        restored_root = recovery.snapshot.base_url if recovery.snapshot is not None else ""
        self.parts.commits.begin_attempt(
            graph,
            recovery.commits,
            referenced,
            self.attempt,
            self._commit_environment(),
            self._commit_environment(restored_root),
        )
        self.parts.commits.abort(self.checkpoints.take_unconfirmed(), referenced)
        self.checkpoints.begin_attempt(recovery, graph, self._now())
        self._begin_sources(graph, self.checkpoints.source_states(), restored_root)
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
        return EpochLoop(self.parts, self.runner, graph, self.attempt, plans)

    def step(self, loop: EpochLoop) -> JobStatus | None:
        """Carry out what was asked for and run one epoch; the job's final status if it was the last.

        Raises:
            Rescaled: `begin_rescaled_attempt`, then another attempt. Whatever the epoch failed with otherwise.
        """
        self._handle_requests()
        status = loop.step()
        if loop.epoch == 1 and self.history.status is not JobStatus.RUNNING:
            self._running()
        if status is None:
            self._grow_back()
        return status

    def _running(self) -> None:
        """The first epoch of an attempt has run: state is restored, records flow."""
        self.history.move(JobStatus.RUNNING, self._now())
        operation = self.parts.exclusive
        if operation is not None and operation.kind == "rescale" and "restarted" in operation.arguments:
            self.parts.exclusive = None
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

    def _grow_back(self) -> None:
        """Adaptive: slots have come back, so return to the parallelism the job wants."""
        if (
            self.parts.exclusive is None
            and self.parallelism < self.wanted_parallelism
            and self.settings.scheduler == "adaptive"
        ):
            available = self.runner.available_slots()
            if available > self.parallelism:
                self._begin_rescale(
                    Operation("rescale", {"parallelism": min(available, self.wanted_parallelism), "trigger": "slots"})
                )

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
            self.parts.wake.wait(0.1)
            self.parts.wake.clear()

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
            object_store_options=self.settings.object_store_options,
        ).build()

    def _commit_environment(self, root: str = "") -> CommitEnvironment:
        return CommitEnvironment(self.checkpoints.storage.reader(root or None), self.runner.spark)

    def _begin_sources(self, graph: JobGraph, states: dict[str, SourceState], restored_root: str) -> None:
        for node in graph.operators:
            if node.source is not None:
                coordinator = self.parts.sources.get(node.uid)
                if coordinator is None:
                    coordinator = self.parts.sources[node.uid] = SourceCoordinator(
                        node.uid,
                        node.source,
                        self.settings.object_store_options,
                        name=node.name,
                        location=node.user_location,
                        alignment=getattr(node.operator, "alignment", None),
                    )
                storage, holds = self.checkpoints.storage, self.checkpoints.coordinator
                context = EnumeratorContext(node.uid, storage, holds, self.runner.spark)
                coordinator.start_attempt(node.parallelism, states.get(node.uid), context, restored_root)

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
                self.parts.exclusive = operation
                self.history.move(JobStatus.CANCELLING, self._now())
                raise _Stopped(JobStatus.CANCELED)
            case "suspend":
                raise _Stopped(JobStatus.SUSPENDED)
            case "savepoint":
                coordinator.trigger_savepoint(operation.arguments.get("directory") or None, request_id=operation.id)
                self.parts.waiting[operation.id] = operation
            case "checkpoint":
                coordinator.trigger_checkpoint(operation.id)
                self.parts.waiting[operation.id] = operation
            case "stop":
                if self.parts.exclusive is not None:
                    operation.fail(f"a {self.parts.exclusive.kind} is in progress")
                    return
                coordinator.trigger_savepoint(
                    operation.arguments.get("directory") or None,
                    is_final=True,
                    drain=bool(operation.arguments.get("drain")),
                    request_id=operation.id,
                )
                self.parts.exclusive = operation
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
                refusal = self._refuse_rescale(int(operation.arguments["parallelism"]))
                if refusal is not None:
                    operation.fail(refusal)
                    continue
                self._set_wanted(operation)
                operation.complete(result=self.wanted_parallelism)
            else:
                operation.fail(f"the job is {self.history.status.value}; try again when it is RUNNING")

    def _set_wanted(self, operation: Operation) -> None:
        if operation.arguments.get("trigger") != "slots":
            self.wanted_parallelism = int(operation.arguments["parallelism"])

    def _begin_rescale(self, operation: Operation) -> None:
        parallelism = int(operation.arguments["parallelism"])
        if self.parts.exclusive is not None:
            operation.fail(f"a {self.parts.exclusive.kind} is in progress")
            return
        if parallelism == self.parallelism:
            self._set_wanted(operation)
            operation.complete(result=parallelism)
            return
        refusal = self._refuse_rescale(parallelism)
        if refusal is not None:
            operation.fail(refusal)
            return
        operation.arguments |= {"old": self.parallelism, "started": self._now()}
        self.parts.exclusive = operation
        self.checkpoints.coordinator.trigger_checkpoint(operation.id)

    def _refuse_rescale(self, parallelism: int) -> str | None:
        """Why the job cannot run with this parallelism; None: it can."""
        if not 1 <= parallelism <= self.graph.max_parallelism:
            return f"parallelism {parallelism} is not in 1..{self.graph.max_parallelism} (the max parallelism)"
        available = self.runner.available_slots()
        if available < parallelism and parallelism > self.parallelism and self.settings.scheduler != "adaptive":
            return (
                f"parallelism {parallelism} needs {parallelism} slots, the cluster has {available}: add workers, or set "
                "jobmanager.scheduler to adaptive"
            )
        return None

    def _now(self) -> int:
        return self.clock.now_ms()
