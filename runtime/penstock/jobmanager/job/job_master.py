"""The JobMaster: the loop of epochs of one job, and everything that may interrupt it.

One thread owns the job. It plans an epoch (split assignments, limits, a snapshot if the coordinator wants one) and lets the runner execute
it. It then processes the acknowledgements: source positions, state handles, pending commits, metrics and failures. No record is in flight
between two epochs, so everything else happens then: savepoints, rescaling, stopping, moving to other slots. Requests from other
threads wait in a queue until then.

An *attempt* is one execution from a restore to the next failure, rescale or end. A failed epoch ends the attempt, and the state that it
left in the workers is never used again. The restart strategy decides whether another attempt follows. The new attempt restores the last
completed checkpoint, rewinds the sources to the positions in this checkpoint, and repeats the checkpoint's pending commits. Commits are
idempotent, and output that no manifest references is discarded.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from penstock.checkpoint.coordinator.termination import ShutdownReport
from penstock.checkpoint.events import CheckpointCompleted, JobMustFail
from penstock.checkpoint.recovery.takeover import Recovery
from penstock.common.errors import Fenced
from penstock.common.job_status import JobStatus
from penstock.connectors.core.sink import CommitEnvironment
from penstock.functions.operator_context import Clock
from penstock.graph.job_graph import JobGraph
from penstock.graph.program import Program
from penstock.jobmanager.autoscaling.autoscaler import Autoscaler
from penstock.jobmanager.coordinators.sink_commits import SinkCommits
from penstock.jobmanager.failover.failures import JobFailed, entry_of, is_fatal, name_alternatives
from penstock.jobmanager.job.checkpoints import JobCheckpoints
from penstock.jobmanager.job.ending import events
from penstock.jobmanager.job.ending.job_end import JobEnd
from penstock.jobmanager.job.ending.job_result import ResultRecord
from penstock.jobmanager.job.ending.state import Stage
from penstock.jobmanager.job.epoch_loop import EpochLoop
from penstock.jobmanager.job.job_history import JobHistory
from penstock.jobmanager.job.job_metrics import JobMetrics
from penstock.jobmanager.job.job_parts import JobMasterOptions, JobParts
from penstock.jobmanager.job.job_requests import AttemptRestarted, JobRequests, Stopped
from penstock.jobmanager.job.pending_results import PendingResults
from penstock.jobmanager.job.requests import Operation
from penstock.jobmanager.job.scheduler import JobScheduler
from penstock.jobmanager.job.settings import JobSettings
from penstock.jobmanager.job.starting.start_gates import wait_for_release, wait_to_lead
from penstock.jobmanager.job.starting.start_steps import (
    BEGINNING_SOURCES,
    COMMITTING,
    FIRST_EPOCH,
    PLANNING,
    SENDING,
    TAKING_OVER,
    WAITING,
    StartSteps,
)
from penstock.jobmanager.runners.runner import Attempt, Runner
from penstock.metrics.store import MetricStore
from penstock.rest.facts import JobStart, Rescale
from penstock.taskmanager.code.payload import encode_payload

logger = logging.getLogger(__name__)


class JobMaster:
    """Execution of one job. `start()` begins it, and `wait()` returns the final status.

    Args:
        program: program that the user's code built.
        job_id: 32 hex digits.
        clock: the system clock, or a manual clock.

    The constructor builds the job graph and raises `InvalidJob` for errors that are visible in the graph. `attach` sets the runner.
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
            checkpoints=JobCheckpoints(job_id, settings, self.options.restore_path, program.plans),
            commits=SinkCommits(job_id, settings.object_store_options, settings.commit_timeout_s),
            results=PendingResults(settings.checkpointing),
            sink=self.options.sink,
            steps=StartSteps(
                lambda step: self._record_event(f"{self.history.status.value}: {step}"), settings.first_epoch_timeout_s
            ),
        )
        self.checkpoints.coordinator.history.wall_offset_ms = lambda: clock.now_ms() - clock.monotonic_ms()
        elected = self.options.waits_to_lead is not None
        kept = self.options.keep_result
        self._end = JobEnd(job_id, self.checkpoints, settings.configuration, is_kept=kept, is_elected=elected)
        self.attempt = 0
        self._ended_at_s = 0.0
        self.error: BaseException | None = None
        self._restart = settings.restart_strategy()
        self._thread: threading.Thread | None = None
        self._done = threading.Event()
        self._decided = threading.Event()
        self.on_ended: Callable[[JobMaster], None] = lambda job: None
        """Callback that the job's thread calls at the end, before callers that wait for the job continue."""
        self.is_accepted = False
        """Whether the job will run: storage is usable, and the snapshot to restore fits."""
        self._requests = JobRequests(job_id, self.parts, self.scheduler, self.history, self._done)
        self.autoscaler = Autoscaler(self)

    @property
    def metrics(self) -> JobMetrics:
        return self.parts.metrics

    @property
    def checkpoints(self) -> JobCheckpoints:
        return self.parts.checkpoints

    @property
    def graph(self) -> JobGraph:
        """Return the graph of the current attempt."""
        return self.scheduler.graph

    @property
    def parallelism(self) -> int:
        """Return the parallelism of the current attempt."""
        return self.scheduler.parallelism

    # --- from other threads -----------------------------------------------------------------------------------

    def attach(self, runner: Runner, store: MetricStore | None = None) -> JobMaster:
        """Set the runner of the started cluster, and the store of metrics."""
        self.runner = self._requests.runner = runner
        if store is not None:
            self.metrics.store = store
        return self

    def start(self) -> None:
        self._thread = threading.Thread(target=self.run, name=f"job-{self.job_id[:8]}", daemon=True)
        self._thread.start()

    def request(self, operation: Operation, *, is_inherited: bool = False) -> Operation:
        """Queue a request. The request fails at once if the job has ended. See `JobRequests.submit`."""
        self._requests.submit(operation, is_inherited=is_inherited)
        return operation

    def suspend(self) -> None:
        """Leave the job with its checkpoints, because another JobManager will continue it."""
        self._requests.suspend()

    def wait(self, timeout_s: float | None = None) -> JobStatus:
        self._done.wait(timeout_s)
        return self.history.status

    def wait_for_acceptance(self) -> bool:
        """Wait until it is clear whether the job will run. Return False if it was refused and has ended."""
        self._decided.wait()
        return self.is_accepted

    @property
    def is_done(self) -> bool:
        return self._done.is_set()

    @property
    def ended_at_s(self) -> float:
        """Return the end on the monotonic clock in seconds, or 0 while the job runs."""
        return self._ended_at_s if self.is_done else 0.0

    @property
    def end_step(self) -> str:
        """Return the cause and the stage of the attempt's end, or an empty string. Any thread may call it."""
        return self._requests.state.describe()

    @property
    def restart_strategy(self) -> str:
        """Return a description of the restart strategy."""
        return self._restart.describe()

    # --- the job ----------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run attempts until the job ends, in the job's thread."""
        status = JobStatus.FAILED
        try:
            self.open()
            while True:
                try:
                    self._run_attempt()
                except AttemptRestarted as restart:
                    self.restart_attempt(restart)
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
        """Check the checkpoint storage before the first attempt, and refuse a job that cannot start."""
        self.history.move(JobStatus.INITIALIZING, self._now())
        if self.options.waits_to_lead is not None:
            wait_to_lead(self.parts.steps, self.options.waits_to_lead, self._pause_while_down)
            self._record_event("this JobManager leads")
        self._stop_if_ended()
        if self.options.awaits_release:
            wait_for_release(self.parts.steps, lambda: self.checkpoints.is_released(), self._pause_while_down)
            self._record_event("the job is released")
        # A restarted deployed master has the arguments of its first start. The job's checkpoints take precedence over these arguments.
        fresh = self.options.fresh and not self.options.keep_result
        self.checkpoints.open(self.graph, self.options.allow_non_restored, fresh=fresh)
        self.is_accepted = True
        self._decided.set()

    def _stop_if_ended(self) -> None:
        ended = self._end.recorded()
        if ended is not None:
            self.history.end_of_input = ended.end_of_input
            raise Stopped(ended.status)

    def restart_attempt(self, restart: AttemptRestarted) -> None:
        """End the attempt without a failure, so that another attempt starts at once."""
        if restart.rescaled:
            self._end_attempt(restart.reason)
            self.history.move(JobStatus.INITIALIZING, self._now())
        else:
            self._record_event(restart.reason)
            self._restart_from_checkpoint(restart.reason)

    def fail_over(self, error: Exception) -> int:
        """End the failed attempt and return the delay in ms before the next attempt.

        Raises:
            The error itself, if no other attempt follows.
        """
        name_alternatives(error, self.checkpoints.restored(), self.checkpoints.earlier())
        self._record_failure(error)
        delay = None if is_fatal(error, self.attempt) else self._restart.on_failure(self._monotonic())
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
        self.discard_attempt(str(error))
        return delay

    def discard_attempt(self, reason: str) -> None:
        """Discard the state in the tasks, and fail the requests that need the attempt. The next attempt starts from the last checkpoint."""
        self._requests.feed(events.AttemptFailed(reason))
        self._restart_from_checkpoint(reason)

    def _restart_from_checkpoint(self, reason: str) -> None:
        self._started(reason)
        self._end_attempt(reason)
        self.history.move(JobStatus.RESTARTING, self._now())
        self.history.restarts += 1

    def _wait_to_restart(self, delay_ms: int) -> None:
        deadline = time.monotonic() + delay_ms / 1000
        while (remaining_s := deadline - time.monotonic()) > 0:
            self._pause_while_down(min(remaining_s, 0.2))

    def _pause_while_down(self, seconds: float) -> None:
        self.parts.wake.wait(seconds)
        self.parts.wake.clear()
        self._requests.handle_while_down()

    def _end_attempt(self, reason: str) -> None:
        self._requests.handle_coordinator_events(self.checkpoints.end_attempt(reason, self._monotonic()))
        self.parts.results.drop()

    def _record_failure(self, error: BaseException) -> None:
        entry = entry_of(error, self._now())
        self.history.failures.append(entry)
        self._record_event(f"{entry.name}: {entry.message.splitlines()[0] if entry.message else ''}")

    def _record_event(self, event: str) -> None:
        self.history.event(self._now(), event)

    def shutdown(self, status: JobStatus) -> None:
        """Release all resources, because the job is over or another JobManager continues it."""
        report = None
        self._started(f"the job is {status.value}" if self.error is None else str(self.error))
        self.history.end_of_input |= status is JobStatus.FINISHED and self._requests.is_ended_by_input
        try:
            self.runner.end_attempt()
        except Exception as error:
            self._record_failure(error)
            if status is JobStatus.FINISHED and self._requests.is_at_end_of_input:
                # The output of the job is complete, but its functions did not finish their work.
                self.error, status = error, JobStatus.FAILED
                self.history.end_of_input = False
        for source in self.parts.sources.values():
            try:
                source.close(self.settings.cancellation_timeout_ms / 1e3)
            except Exception as error:
                self._record_failure(error)
        try:
            self._settle_commits(status)
            savepoint, failure = self._requests.savepoint_of_end, self.error if self.is_accepted else None
            result = ResultRecord(status, self._now(), self.history.end_of_input, savepoint=savepoint)
            self._end.record(result, failure, lambda: self.checkpoints.close(status, self._monotonic()))
            report = self.checkpoints.close(status, self._monotonic())
        except Fenced as error:  # the job runs elsewhere, so this end is void
            self.error, status = error, JobStatus.SUSPENDED
            self._record_failure(error)
            report = self.checkpoints.close(status, self._monotonic())
        except Exception as error:  # the result of the job is final, so only record the cleanup failure
            self._record_failure(error)
        try:
            self.runner.close()
        except Exception as error:  # the cluster stopped before
            logger.info("the runner of job %s was not closed: %s", self.job_id, error)
        if report is not None:
            self._remove_unfinished_output(report)
        self.history.move(status, self._now())
        self._ended_at_s = time.monotonic()
        if status is not JobStatus.SUSPENDED:
            self.on_ended(self)
        self._requests.fail_all(status)

    def _settle_commits(self, status: JobStatus) -> None:
        """Make the commits that completed checkpoints promised, so that the checkpoints can be deleted."""
        coordinator = self.checkpoints.coordinator
        if status in (JobStatus.FINISHED, JobStatus.CANCELED):
            coordinator_events = coordinator.tick(self._monotonic())
            for event in coordinator_events:
                if isinstance(event, CheckpointCompleted):
                    self.parts.commits.commit(event.checkpoint_id, event.commits)
            self._requests.handle_coordinator_events(
                [event for event in coordinator_events if not isinstance(event, JobMustFail)]
            )
        for checkpoint_id in self.parts.commits.close():
            coordinator.on_committed(checkpoint_id)

    def _remove_unfinished_output(self, report: ShutdownReport) -> None:
        if report.needed is None:
            logger.info("unfinished output of job %s could not be removed: %s", self.job_id, report.reason)
            return
        try:
            self.parts.commits.end(report.unconfirmed, report.needed, self.attempt)
        except Exception as error:  # only record the cleanup failure
            self._record_failure(error)

    # --- one attempt ------------------------------------------------------------------------------------------

    def _run_attempt(self) -> None:
        """Run epochs until an exception ends the attempt."""
        loop = self.begin_attempt()
        while True:
            self.step(loop)
            loop.pace()

    def begin_attempt(self) -> EpochLoop:
        """Find slots and the snapshot to restore, and start the job on the runner. `step` then runs its epochs."""
        try:
            self.runner.end_attempt()
        except JobFailed as error:  # the previous attempt is over, so this failure must not end the new attempt
            self._record_failure(error)
        steps = self.parts.steps
        steps.begin(WAITING)
        ends = self._requests.inherited_cancel is not None
        graph = self.graph if ends else self.scheduler.place(self.runner, self._pause_while_down, self._record_event)
        steps.begin(TAKING_OVER)
        recovery = self._take_over()
        # The leader epoch is unique: no attempt of any JobManager of this job has the same number.
        self.attempt = recovery.epoch
        steps.begin(PLANNING)
        plans = self.checkpoints.plan(graph, recovery, self.options.allow_non_restored)
        for change in self.checkpoints.changes:
            self._record_event(f"restored with a change: {change}")
        recovery.begin()
        steps.restores = "" if recovery.snapshot is None else recovery.snapshot.url
        origin = "empty state" if recovery.snapshot is None else recovery.snapshot.url
        self._record_event(f"attempt {self.attempt} starts with {graph.slots} slots from {origin}")
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
        self.checkpoints.begin_attempt(recovery, graph, self._monotonic())
        self._requests.execute_inherited_cancel()
        if recovery.is_drained:
            self._record_event("the job was stopped with --drain, and all its sink commits are done. No work remains")
            raise Stopped(JobStatus.FINISHED)
        steps.begin(BEGINNING_SOURCES)
        self.parts.begin_sources(graph, restored_root, self.runner.spark)
        steps.begin(SENDING)
        payload = encode_payload(graph, self.parts.task_settings(self.job_id, graph.name, self.attempt, self.runner))
        closing_s = self.settings.cancellation_timeout_ms / 1e3 * len(graph.operators)
        self.runner.on_wait = self.parts.wake.set
        self.runner.start(Attempt(self.job_id, self.attempt, payload, graph.slots, graph.levels, graph, closing_s))
        steps.begin(FIRST_EPOCH)
        self.metrics.begin_attempt(graph, self.attempt, self.runner.task_managers)
        self._requests.feed(events.AttemptStarted())
        return EpochLoop(self.parts, self._requests, self.runner, graph, self.attempt, plans)

    def _take_over(self) -> Recovery:
        """Claim the next leader epoch. At the first claim, the previous JobManager may have recorded the end since `open`."""
        try:
            return self.checkpoints.take_over()
        finally:
            if not self.attempt:
                self._stop_if_ended()

    def step(self, loop: EpochLoop) -> None:
        """Handle requests and run one epoch.

        Raises:
            Stopped: the job must end.
            AttemptRestarted: call `restart_attempt`, then start another attempt.
            Exception: the failure of the epoch.
        """
        self._requests.take()
        loop.step()
        if self._requests.state.stage is Stage.STARTING:
            self._running()
        self._restore_parallelism()
        self.autoscaler.step()

    def _running(self) -> None:
        """Record that the first epoch of an attempt has run: state is restored and records flow."""
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
                    duration_ms=self._monotonic() - operation.arguments["started"],
                )
            )
        self._requests.feed(events.FirstEpochRun(self.parallelism))

    def _started(self, failure: str = "") -> None:
        """Record the result of the start, if a start was in progress."""
        steps = self.parts.steps.end()
        if steps:
            began, restores = steps[0][1], self.parts.steps.restores
            start = JobStart(began, self._now(), self.attempt, self.parallelism, tuple(steps), restores, failure)
            self.history.starts.append(start)

    def _restore_parallelism(self) -> None:
        """Return to the job's wanted parallelism when slots are available again (adaptive scheduler)."""
        if self._requests.state.stage is Stage.RUNNING and self._requests.state.is_idle:
            parallelism = self.scheduler.can_grow_to(self.runner)
            if parallelism is not None:
                self._requests.grow(parallelism)

    def _commit_environment(self, root: str = "") -> CommitEnvironment:
        return CommitEnvironment(self.checkpoints.storage.reader(root or None), self.runner.spark)

    def _now(self) -> int:
        """Return the wall-clock time for reports, in ms since the epoch."""
        return self.clock.now_ms()

    def _monotonic(self) -> int:
        """Return the monotonic time for durations, in ms."""
        return self.clock.monotonic_ms()
