"""The driver of a JobMaster in the test's thread. It starts jobs, runs epochs, fails over, and detects when no work is left."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from penstock.common.config import options
from penstock.common.errors import ClusterError
from penstock.common.job_id import JobID
from penstock.common.job_status import JobStatus
from penstock.jobmanager.failover.failures import JobFailed, failure_of
from penstock.jobmanager.job.epoch_loop import EpochLoop
from penstock.jobmanager.job.job_master import JobMaster
from penstock.jobmanager.job.job_parts import JobMasterOptions, ResultSink
from penstock.jobmanager.job.job_requests import AttemptRestarted, Stopped
from penstock.jobmanager.job.requests import Operation
from penstock.jobmanager.job.settings import JobSettings
from penstock.jobmanager.runners.in_process import InProcessRunner
from penstock.testing.outputs import Outputs
from penstock.testing.source import CrashMarkReached

if TYPE_CHECKING:
    from penstock.graph.program import Program
    from penstock.taskmanager.worker import ManualClock
    from penstock.testing.journal import Journal

SLOTS = 1024
PAUSE_S = 0.0005
"""Pause in seconds between epochs while a checkpoint uploads in the background or a request waits for its answer."""


class JobDriver:
    """The driver of the jobs of a test, one job after the other. Each job is a JobMaster on the in-process runner.

    Args:
        checkpoints: URL of the folder for the checkpoints of all jobs.
    """

    def __init__(self, clock: ManualClock, checkpoints: str) -> None:
        self.clock = clock
        self.runner = InProcessRunner(SLOTS, clock)
        self.lines: list[str] = []
        self.outputs = Outputs()
        self.restarts = 0
        self.status: JobStatus | None = None
        """Final status of the job after its end."""
        self._checkpoints = checkpoints
        self._journal: Journal
        self._master: JobMaster | None = None
        self._loop: EpochLoop | None = None
        self._has_unemitted = False
        """True if records were read since the last periodic watermark."""
        self._emits_watermarks = True
        """True if periodic watermarks are enabled."""

    @property
    def has_started(self) -> bool:
        return self._master is not None

    @property
    def master(self) -> JobMaster:
        """Return the JobMaster of the running job.

        Raises:
            ClusterError: the job has ended.
        """
        if self._master is None or self.status is not None:
            raise ClusterError(f"the job has ended as {'CREATED' if self.status is None else self.status.value}")
        return self._master

    def begin(
        self,
        program: Program,
        journal: Journal,
        location: str = "",
        parallelism: int | None = None,
        allow_non_restored: bool | list[str] = False,
    ) -> None:
        """Start a job, from a snapshot if a location is given. A running job is suspended.

        Raises:
            RestoreRefused: the snapshot does not fit the program.
        """
        self.end(JobStatus.SUSPENDED)
        values = {options.CHECKPOINT_DIRECTORY.key: self._checkpoints, **program.configuration}
        settings = JobSettings.from_configuration(values)
        sink = ResultSink(on_line=self.lines.append)
        master_options = JobMasterOptions(
            restore_path=location, allow_non_restored=allow_non_restored, parallelism=parallelism, sink=sink
        )
        master = JobMaster(program, JobID.generate().digits, settings, self.clock, master_options)
        master.parts.results = self.outputs
        self._emits_watermarks = settings.auto_watermark_interval_ms > 0
        self._has_unemitted = False
        self._journal = journal
        self._master = master.attach(self.runner)
        self.status = None
        try:
            master.open()
            self._begin_attempt()
        except BaseException:
            self.end(JobStatus.FAILED)
            raise

    def end(self, status: JobStatus) -> None:
        """Shut down the job if one runs."""
        if self._master is not None and self.status is None:
            self._master.shutdown(status)
            self.status = status

    def run(self) -> None:
        """Run epochs until no work is left at the clock's time.

        Raises:
            PenstockError: the job has failed permanently.
        """
        while self.status is None and self._has_work():
            self._step()

    def advance(self, target: int) -> None:
        """Move the clock to `target` (ms), and stop at each time at which something is due."""
        self.run()
        while (
            self.status is None
            and self._loop is not None
            and (due := self._loop.next_due()) is not None
            and (remaining_ms := due - self.clock.monotonic_ms()) <= target - self.clock.now_ms()
        ):
            self.clock.set(self.clock.now_ms() + max(remaining_ms, 0))
            self.run()
        self.clock.set(target)
        if self.status is None:
            self._step()
            self.run()

    def request(self, operation: Operation) -> Operation:
        """Request an operation, and run the job until the operation is done.

        Raises:
            ClusterError: the operation failed.
        """
        self.master.request(operation)
        while not operation.is_done:
            self._step()
        if operation.failure is not None:
            raise ClusterError(f"{operation.kind} failed: {operation.failure}")
        return operation

    def restart(self, reason: str) -> None:
        """Drop all state in tasks, and continue from the last completed checkpoint."""
        self.restarts += 1
        self.master.discard_attempt(reason)
        self._begin_attempt()

    def _has_work(self) -> bool:
        if self._loop is None or self._journal.has_unread or not self._loop.is_settled:
            return True
        due = self._loop.next_due()
        if (due is not None and due <= self.clock.monotonic_ms()) or self._journal.move_horizon():
            return True
        emits, self._has_unemitted = self._has_unemitted and self._emits_watermarks, False
        self._loop.emits_watermarks = emits
        return emits

    def _begin_attempt(self) -> None:
        self._loop = None
        self._step()

    def _step(self) -> None:
        master = self.master
        try:
            if self._loop is None:
                self._journal.begin_attempt()
                self._loop = master.begin_attempt()
            master.step(self._loop)
        except AttemptRestarted as restart:
            master.restart_attempt(restart)
            self._loop = None
        except Stopped as stopped:
            self.end(stopped.status)
        except Exception as error:
            if isinstance(error, JobFailed) and error.failure.kind == CrashMarkReached.__name__:
                self.restart(error.failure.message)
            else:
                self._fail_over(error)
        else:
            self._has_unemitted = self._has_unemitted or self._loop.had_input
            due = self._loop.next_due()
            if master.checkpoints.coordinator.is_in_progress or (due is not None and due <= self.clock.monotonic_ms()):
                time.sleep(PAUSE_S)

    def _fail_over(self, error: Exception) -> None:
        try:
            delay = self.master.fail_over(error)
        except Exception:
            self.end(JobStatus.FAILED)
            raise failure_of(error) from error
        self.restarts += 1
        self.clock.set(self.clock.now_ms() + delay)
        self._loop = None
