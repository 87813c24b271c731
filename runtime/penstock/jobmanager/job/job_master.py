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
import threading
import time
from collections.abc import Callable

from penstock.checkpoint.coordinator.termination import ShutdownReport
from penstock.checkpoint.events import CheckpointCompleted, JobMustFail
from penstock.checkpoint.files.manifest import SourceState
from penstock.common.errors import Fenced, StorageError
from penstock.common.job_status import JobStatus
from penstock.common.logs.redaction import is_secret
from penstock.connectors.sink import CommitEnvironment
from penstock.connectors.source import EnumeratorContext
from penstock.functions.operator_context import Clock
from penstock.graph import operations
from penstock.graph.job_graph import JobGraph
from penstock.graph.program import Program
from penstock.jobmanager.coordinators.sink_commits import SinkCommits
from penstock.jobmanager.coordinators.source_coordinator import SourceCoordinator
from penstock.jobmanager.failover.failures import JobFailed, entry_of, is_fatal, offer_instead
from penstock.jobmanager.job.checkpoints import JobCheckpoints
from penstock.jobmanager.job.ending import events
from penstock.jobmanager.job.ending.state import Stage
from penstock.jobmanager.job.epoch_loop import EpochLoop
from penstock.jobmanager.job.held_results import HeldResults
from penstock.jobmanager.job.job_history import JobHistory
from penstock.jobmanager.job.job_metrics import JobMetrics
from penstock.jobmanager.job.job_parts import JobMasterOptions, JobParts
from penstock.jobmanager.job.job_requests import BegunAnew, JobRequests, Stopped
from penstock.jobmanager.job.job_result import ResultRecord, keep_trying
from penstock.jobmanager.job.requests import Operation
from penstock.jobmanager.job.scheduler import JobScheduler
from penstock.jobmanager.job.settings import JobSettings
from penstock.jobmanager.job.start_steps import (
    BEGINNING_SOURCES,
    COMMITTING,
    FIRST_EPOCH,
    PLANNING,
    SENDING,
    STANDING_BY,
    TAKING_OVER,
    WAITING,
    StartSteps,
)
from penstock.jobmanager.runners.runner import Attempt, Runner
from penstock.metrics.store import MetricStore
from penstock.rest.facts import JobStart, Rescale
from penstock.taskmanager.worker import TaskSettings, encode_payload

RELEASE_LOOK_S = 0.25
"""Between two looks for the word that lets a job go which was started ahead of time."""

logger = logging.getLogger(__name__)


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
        self.scheduler = JobScheduler(program, settings, self.options)
        self.parts = JobParts(
            settings=settings,
            clock=clock,
            metrics=JobMetrics(job_id, program.name),
            checkpoints=JobCheckpoints(job_id, settings, self.options.restore_path),
            commits=SinkCommits(job_id, settings.object_store_options, settings.commit_timeout_s),
            results=HeldResults(settings.checkpointing),
            sink=self.options.sink,
            steps=StartSteps(
                lambda step: self._tell(f"{self.history.status.value}: {step}"), settings.first_epoch_timeout_s
            ),
        )
        self.attempt = 0
        self.error: BaseException | None = None
        self._restart = settings.restart_strategy()
        self._thread: threading.Thread | None = None
        self._done = threading.Event()
        self._decided = threading.Event()
        self.on_ended: Callable[[JobMaster], None] = lambda job: None
        """Called by the job's thread when all is over, before anybody who waits goes on."""
        self.is_accepted = False
        """Nothing speaks against a start: storage can be used, and what is to be restored fits. Then the job runs."""
        self._requests = JobRequests(job_id, self.parts, self.scheduler, self.history, self._done)

    @property
    def metrics(self) -> JobMetrics:
        return self.parts.metrics

    @property
    def checkpoints(self) -> JobCheckpoints:
        return self.parts.checkpoints

    @property
    def graph(self) -> JobGraph:
        """Of the attempt that runs."""
        return self.scheduler.graph

    @property
    def parallelism(self) -> int:
        """Of the attempt that runs."""
        return self.scheduler.parallelism

    # --- from other threads -----------------------------------------------------------------------------------

    def attach(self, runner: Runner, store: MetricStore | None = None) -> JobMaster:
        """The started cluster to run on, and where metrics are kept."""
        self.runner = self._requests.runner = runner
        if store is not None:
            self.metrics.store = store
        return self

    def start(self) -> None:
        self._thread = threading.Thread(target=self.run, name=f"job-{self.job_id[:8]}", daemon=True)
        self._thread.start()

    def request(self, operation: Operation) -> Operation:
        """Queue a request; refused at once when the job has ended."""
        self._requests.ask(operation)
        return operation

    def suspend(self) -> None:
        """Leave the job as it is, with its checkpoints: another JobManager will go on."""
        self._requests.suspend()

    def wait(self, timeout_s: float | None = None) -> JobStatus:
        self._done.wait(timeout_s)
        return self.history.status

    def wait_for_acceptance(self) -> bool:
        """Whether the job will run; False: it was refused, and has ended."""
        self._decided.wait()
        return self.is_accepted

    @property
    def is_done(self) -> bool:
        return self._done.is_set()

    @property
    def ended_at(self) -> int:
        """ms since the epoch; 0 while it runs."""
        return self.history.timestamps.get(self.history.status.value, 0) if self.is_done else 0

    @property
    def end_step(self) -> str:
        """What ends the attempt, and how far that has come; empty: nothing does. From any thread."""
        return self._requests.state.describe()

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
                    self._run_attempt()
                except BegunAnew as anew:
                    self.begin_anew(anew)
                except (Stopped, Fenced):
                    raise
                except Exception as error:
                    self._requests.handle_while_down()
                    self._wait_to_restart(self.fail_over(error))
        except Stopped as stopped:
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
            self._decided.set()

    def open(self) -> None:
        """Before the first attempt: look at the checkpoint storage, and refuse what cannot start."""
        self.history.move(JobStatus.INITIALIZING, self._now())
        ended = self.checkpoints.result() if self.options.keep_result else None
        if ended is not None:
            self.history.end_of_input = ended.end_of_input
            raise Stopped(ended.status)
        if self.options.awaits_release:
            self._stand_by()
        # A deployed master starts again with the arguments of its first start: its own checkpoints count, not they.
        fresh = self.options.fresh and not self.options.keep_result
        self.checkpoints.open(self.graph, self.options.allow_non_restored, fresh=fresh)
        self.is_accepted = True
        self._decided.set()

    def _stand_by(self) -> None:
        """Processes come up meanwhile. Storage that does not answer says nothing, so the job waits."""
        self.parts.steps.begin(STANDING_BY)
        silent = False
        while True:
            try:
                if self.checkpoints.is_released():
                    self._tell("the job is released")
                    return
                silent = False
            except StorageError as error:
                if not silent:
                    logger.warning("whether the job is released cannot be read: %s", error.message)
                silent = True
            self._pause_while_down(RELEASE_LOOK_S)

    def begin_anew(self, anew: BegunAnew) -> None:
        """Nothing has failed: end the attempt, for another one to start at once."""
        if anew.rescaled:
            self._end_attempt(anew.reason)
            self.history.move(JobStatus.INITIALIZING, self._now())
        else:
            self._tell(anew.reason)
            self._restart_from_checkpoint(anew.reason)

    def fail_over(self, error: Exception) -> int:
        """The attempt has failed: end it, and say how long to wait for the next one (ms).

        Raises:
            The error itself, when there is to be no other attempt.
        """
        offer_instead(error, self.checkpoints.earlier())
        self._record_failure(error)
        delay = None if is_fatal(error, self.attempt) else self._restart.on_failure(self._now())
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
        self.lose_attempt(str(error))
        return delay

    def lose_attempt(self, reason: str) -> None:
        """The state in the tasks is void, and what needed it has failed; the next attempt starts from the last checkpoint."""
        self._requests.feed(events.AttemptFailed(reason))
        self._restart_from_checkpoint(reason)

    def _restart_from_checkpoint(self, reason: str) -> None:
        self._started(reason)
        self._end_attempt(reason)
        self.history.move(JobStatus.RESTARTING, self._now())
        self.history.restarts += 1

    def _wait_to_restart(self, delay_ms: int) -> None:
        deadline = time.monotonic() + delay_ms / 1000
        while (left := deadline - time.monotonic()) > 0:
            self._pause_while_down(min(left, 0.2))

    def _pause_while_down(self, seconds: float) -> None:
        self.parts.wake.wait(seconds)
        self.parts.wake.clear()
        self._requests.handle_while_down()

    def _end_attempt(self, reason: str) -> None:
        self._requests.take_in(self.checkpoints.end_attempt(reason, self._now()))
        self.parts.results.drop()

    def _record_failure(self, error: BaseException) -> None:
        entry = entry_of(error, self._now())
        self.history.failures.append(entry)
        self._tell(f"{entry.name}: {entry.message.splitlines()[0] if entry.message else ''}")

    def _tell(self, event: str) -> None:
        self.history.event(self._now(), event)

    def shutdown(self, status: JobStatus) -> None:
        """The job is over, or left to another JobManager: let go of everything."""
        report = None
        self._started(f"the job is {status.value}" if self.error is None else str(self.error))
        self.history.end_of_input |= status is JobStatus.FINISHED and self._requests.has_ended_with_its_input
        try:
            self.runner.end_attempt()
        except Exception as error:
            self._record_failure(error)
            if status is JobStatus.FINISHED and self._requests.is_at_end_of_input:
                # Its output is complete, but not what its functions had still to do.
                self.error, status = error, JobStatus.FAILED
                self.history.end_of_input = False
        for source in self.parts.sources.values():
            try:
                source.close(self.settings.cancellation_timeout_ms / 1e3)
            except Exception as error:
                self._record_failure(error)
        try:
            self._settle_commits(status)
            if self.options.keep_result and status in (JobStatus.FINISHED, JobStatus.CANCELED):
                self._keep_result(status)
            report = self.checkpoints.close(status, self._now())
        except Exception as error:  # the job's outcome stands; what could not be tidied up is recorded
            self._record_failure(error)
        try:
            self.runner.close()
        except Exception as error:  # the cluster has gone before
            logger.info("the runner of job %s was not closed: %s", self.job_id, error)
        if report is not None:
            self._remove_unfinished_output(report)
        self.history.move(status, self._now())
        if status is not JobStatus.SUSPENDED:
            self.on_ended(self)
        self._requests.fail_all(status)

    def _keep_result(self, status: JobStatus) -> None:
        """Before the checkpoints go: without either, a master that starts again would begin from nothing."""
        record = ResultRecord(status, self._now(), self.history.end_of_input)

        def end() -> None:
            self.checkpoints.keep_result(record)
            self.checkpoints.close(status, record.ended_at)

        try:
            self.checkpoints.keep_result(record)
        except StorageError:
            keep_trying(end)
            raise

    def _settle_commits(self, status: JobStatus) -> None:
        """Completed checkpoints have promised their commits: carry them out, so that the checkpoints may go."""
        coordinator = self.checkpoints.coordinator
        if status in (JobStatus.FINISHED, JobStatus.CANCELED):
            told = coordinator.tick(self._now())
            for event in told:
                if isinstance(event, CheckpointCompleted):
                    self.parts.commits.commit(event.checkpoint_id, event.commits)
            self._requests.take_in([event for event in told if not isinstance(event, JobMustFail)])
        for checkpoint_id in self.parts.commits.close():
            coordinator.on_committed(checkpoint_id)

    def _remove_unfinished_output(self, report: ShutdownReport) -> None:
        if report.needed is None:
            logger.info("unfinished output of job %s stays: %s", self.job_id, report.reason)
            return
        try:
            self.parts.commits.end(report.unconfirmed, report.needed, self.attempt)
        except Exception as error:  # as above
            self._record_failure(error)

    # --- one attempt ------------------------------------------------------------------------------------------

    def _run_attempt(self) -> None:
        """Raises what ends it."""
        loop = self.begin_attempt()
        while True:
            self.step(loop)
            loop.pace()

    def begin_attempt(self) -> EpochLoop:
        """Find slots, find what to start from, put the job on the runner. `step` then runs its epochs."""
        try:
            self.runner.end_attempt()
        except JobFailed as error:  # the attempt is void, or another follows it: no reason to have a third
            self._record_failure(error)
        steps = self.parts.steps
        steps.begin(WAITING)
        graph = self.scheduler.place(self.runner, self._pause_while_down, self._tell)
        steps.begin(TAKING_OVER)
        recovery = self.checkpoints.take_over()
        # The leader epoch: no attempt of any JobManager of this job ever has the same number.
        self.attempt = recovery.epoch
        steps.begin(PLANNING)
        plans = self.checkpoints.plan(graph, recovery, self.options.allow_non_restored)
        recovery.begin()
        steps.restores = "" if recovery.snapshot is None else recovery.snapshot.url
        origin = "empty state" if recovery.snapshot is None else recovery.snapshot.url
        self._tell(f"attempt {self.attempt} starts with {graph.slots} slots from {origin}")
        referenced = self.checkpoints.referenced(recovery)
        restored_root = recovery.snapshot.base_url if recovery.snapshot is not None else ""
        steps.begin(COMMITTING)
        self.parts.commits.begin_attempt(
            graph,
            recovery.commits,
            referenced,
            self.attempt,
            self._commit_environment(),
            self._commit_environment(restored_root),
        )
        self.parts.commits.abort(self.checkpoints.take_unconfirmed(), referenced)
        if self.runner.streaming and not self.settings.aligns(batch=graph.is_batch):
            self.parts.commits.warn_of_repeats()
        self.checkpoints.begin_attempt(recovery, graph, self._now())
        if recovery.is_drained:
            self._tell("the job was stopped with --drain: what that promised is committed, nothing is left to do")
            raise Stopped(JobStatus.FINISHED)
        steps.begin(BEGINNING_SOURCES)
        self._begin_sources(graph, self.checkpoints.source_states(), restored_root)
        steps.begin(SENDING)
        payload = encode_payload(graph, self._task_settings(graph))
        closing_s = self.settings.cancellation_timeout_ms / 1e3 * len(graph.operators)
        self.runner.on_wait = self.parts.wake.set
        self.runner.start(Attempt(self.job_id, self.attempt, payload, graph.slots, graph.levels, graph, closing_s))
        steps.begin(FIRST_EPOCH)
        self.metrics.begin_attempt(graph, self.attempt, self.runner.task_managers)
        self._requests.feed(events.AttemptBegun())
        return EpochLoop(self.parts, self._requests, self.runner, graph, self.attempt, plans)

    def _task_settings(self, graph: JobGraph) -> TaskSettings:
        settings = self.settings
        return TaskSettings(
            job_id=self.job_id,
            job_name=graph.name,
            attempt=self.attempt,
            backend=settings.backend,
            backend_options=settings.backend_options_of_slot,
            object_store_options=settings.object_store_options,
            merged_file_bytes=settings.merged_file_bytes,
            work_dir=settings.work_dir,
            from_local=settings.from_local,
            metric_scopes=settings.metric_scopes,
            latency_interval_ms=settings.latency_interval_ms,
            latency_granularity=settings.latency_granularity,
            buffer_timeout_s=settings.buffer_timeout_s,
            collect_lines=self.options.sink.on_line is not None,
            task_managers=self.runner.task_managers,
            step_limits=settings.step_limits,
            python_path=settings.python_path,
            working_folder=settings.working_folder,
            log=settings.log,
            secrets=[value for key, value in settings.configuration.items() if is_secret(key)],
            **self.runner.task_settings,
        )

    def step(self, loop: EpochLoop) -> None:
        """Take in what was asked for and run one epoch.

        Raises:
            Stopped: the job is to end. BegunAnew: `begin_anew`, then another attempt. Whatever the epoch failed with otherwise.
        """
        self._requests.take()
        loop.step()
        if self._requests.state.stage is Stage.STARTING:
            self._running()
        self._grow_back()

    def _running(self) -> None:
        """The first epoch of an attempt has run: state is restored, records flow."""
        self._started()
        self.history.move(JobStatus.RUNNING, self._now())
        operation = self._requests.rescale
        if operation is not None:
            self.history.rescaled(
                Rescale(
                    timestamp=self._now(),
                    old_parallelism=operation.arguments["old"],
                    new_parallelism=self.parallelism,
                    trigger=operation.arguments.get("trigger", "request"),
                    duration_ms=self._now() - operation.arguments["started"],
                )
            )
        self._requests.feed(events.FirstEpochRun(self.parallelism))

    def _started(self, failure: str = "") -> None:
        """Note how the start went that is over now, if one was under way."""
        steps = self.parts.steps.end()
        if steps:
            began, restores = steps[0][1], self.parts.steps.restores
            start = JobStart(began, self._now(), self.attempt, self.parallelism, tuple(steps), restores, failure)
            self.history.starts.append(start)

    def _grow_back(self) -> None:
        """Adaptive: slots have come back, so return to the parallelism the job wants."""
        if self._requests.state.stage is Stage.RUNNING and self._requests.state.is_idle:
            parallelism = self.scheduler.can_grow_to(self.runner)
            if parallelism is not None:
                self._requests.grow(parallelism)

    def _commit_environment(self, root: str = "") -> CommitEnvironment:
        return CommitEnvironment(self.checkpoints.storage.reader(root or None), self.runner.spark)

    def _begin_sources(self, graph: JobGraph, states: dict[str, SourceState], restored_root: str) -> None:
        for node in graph.operators:
            if isinstance(node.operation, operations.Source):
                coordinator = self.parts.sources.get(node.uid)
                if coordinator is None:
                    coordinator = self.parts.sources[node.uid] = SourceCoordinator(
                        node.uid,
                        node.operation.source,
                        self.settings.object_store_options,
                        name=node.name,
                        location=node.user_location,
                        alignment=node.operation.alignment,
                        call_limit_s=self.settings.enumerator_timeout_s,
                    )
                storage, holds = self.checkpoints.storage, self.checkpoints.coordinator
                context = EnumeratorContext(node.uid, storage, holds, self.runner.spark)
                coordinator.start_attempt(node.parallelism, states.get(node.uid), context, restored_root)

    def _now(self) -> int:
        return self.clock.now_ms()
