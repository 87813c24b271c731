"""A program of a session whose jobs have not ended, and its process. Lists use stored data of its jobs if the process does not answer."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from penstock.checkpoint.coordinator.statistics import CheckpointHistory
from penstock.common.errors import MemoryLimitExceeded, PenstockError
from penstock.common.job_status import JobStatus
from penstock.jobmanager.cluster.executor.executor_output import ExecutorOutput
from penstock.jobmanager.history.archive import JobArchive
from penstock.jobmanager.process.programs.cluster_service import ClusterService
from penstock.jobmanager.process.programs.messages import ProgramEnd, ProgramSpec
from penstock.jobmanager.process.programs.remote_gateway import RemoteGateway
from penstock.jobmanager.process.programs.rpc import Connection, Disconnected
from penstock.rest import facts
from penstock.rest.errors import Unavailable

logger = logging.getLogger(__name__)

_LAST_OUTPUT = 2_000
"""Number of bytes of the output of a crashed process that its failure shows."""


@dataclass
class ProgramProcess:
    """Process of a program."""

    service: ClusterService
    connection: Connection
    copying: threading.Thread
    """Thread that copies its output."""
    pid: int = 0
    started_at: float = field(default_factory=time.monotonic)
    is_accepted: bool = False
    """Whether one of its jobs was accepted."""
    failure: ProgramEnd | None = None
    """Reason why the process ends although the program must continue."""
    exited: threading.Event = field(default_factory=threading.Event)


@dataclass
class RunningProgram:
    """Program whose jobs have not ended."""

    spec: ProgramSpec
    output: ExecutorOutput
    """Text that it prints, and its log."""
    graph: bytes = b""
    """Serialized graph of a program of `create_remote_environment`."""
    process: ProgramProcess | None = None
    """None while no process runs."""
    crashes: int = 0
    jobs: dict[str, str] = field(default_factory=dict)
    """Names of its jobs, by id."""
    known: dict[str, facts.Job] = field(default_factory=dict)
    """Last answer of its process about each job."""
    end: ProgramEnd | None = None
    is_canceled: bool = False
    is_removed: bool = False
    changed: threading.Condition = field(default_factory=threading.Condition)

    @property
    def gateway(self) -> RemoteGateway | None:
        """Return the gateway to its jobs, or None while no process runs."""
        process = self.process
        return None if process is None else RemoteGateway(process.connection, self.spec.id)

    def answering_gateway(self) -> RemoteGateway:
        """Return the gateway to its jobs.

        Raises:
            Unavailable: no process runs.
        """
        if (gateway := self.gateway) is None:
            raise Unavailable(
                f"no process of program {self.spec.id} runs at the moment. It starts, or has crashed and is started again",
                remedy="repeat the request in a few seconds",
            )
        return gateway

    def note(self, change: Callable[[], object]) -> None:
        with self.changed:
            change()
            self.changed.notify_all()

    def note_end(self, end: ProgramEnd) -> None:
        self.note(lambda: setattr(self, "end", end))

    def note_start(self) -> None:
        """Count another start of the process."""
        with self.changed:
            self.spec = msgspec.structs.replace(self.spec, starts=self.spec.starts + 1)

    def note_rescaled(self, job_id: str, parallelism: int) -> None:
        """Keep the parallelism of a job for the next start of the process."""
        with self.changed:
            rescaled = {**self.spec.rescaled, job_id: parallelism}
            self.spec = msgspec.structs.replace(self.spec, rescaled=rescaled)

    def refresh(self, deadline: float) -> None:
        """Ask the process about the jobs. If it does not answer before the deadline, its last answer stays."""
        process, gateway = self.process, self.gateway
        if process is None or gateway is None:
            return
        try:
            own = [job for job in gateway.jobs(deadline) if process.service.has_job(job.id)]
        except PenstockError as error:
            logger.debug("the jobs of program %s are shown as they were: %s", self.spec.id, error)
        else:
            self.known = self.known | {job.id: job for job in own}

    def starting_job(self) -> facts.Job:
        """Return the description of the first job before it is accepted. It is in no list, because the program may be refused."""
        return _initializing(self.spec.job_id, self.spec.bundle)

    def show_started(self, job_id: str, name: str) -> None:
        """Show a job that was accepted, until the process describes it."""
        job = _initializing(job_id, name)
        self.known = {job_id: job} | self.known
        self.note(lambda: self.jobs.update({job_id: name}))

    def show_waiting(self, reason: ProgramEnd | None = None) -> None:
        """Show the first job as restarting until the process of the program has started it."""
        now = int(time.time() * 1000)
        job_id = self.spec.job_id
        name = self.jobs.setdefault(job_id, self.spec.bundle)
        before = self.known.get(job_id) or facts.Job(job_id, name, "", self.spec.submitted_at, 1, 1)
        failures = list(before.failures)
        if reason is not None:
            failures = [*failures[-20:], _failure(reason, now)]
        job = replace(before, state=JobStatus.RESTARTING.value, failures=failures)
        self.known = self.known | {job_id: job}

    def crash(self, code: int | None) -> ProgramEnd:
        """Return the description of a crash with this exit code."""
        last = self.output.stdout.read(-_LAST_OUTPUT, _LAST_OUTPUT).data.decode(errors="backslashreplace").strip()
        return ProgramEnd(
            Disconnected.code,
            f"the process of the program has ended with {exit_text(code)}"
            + (f". End of its output:\n{last}" if last else ""),
            "read the output of the program. A crash in a compiled library, or too little memory, ends a process like this",
        )

    def is_refused_by(self, end: ProgramEnd) -> bool:
        """Return whether the first process has ended for its memory before it had a job. Another start would end in the same way."""
        return end.code == MemoryLimitExceeded.code and not self.jobs and not self.spec.starts

    def lost_job(self, job_id: str, status: JobStatus, end: ProgramEnd | None) -> JobArchive:
        """Return the archive of a job whose process does not answer."""
        now = int(time.time() * 1000)
        job = self.known.get(job_id) or facts.Job(job_id, self.jobs[job_id], status.value, now, 1, 1)
        failures = list(job.failures)
        if end is not None and end.message:
            failures.append(_failure(end, now))
        job = replace(job, state=status.value, end=now, failures=failures, vertices=[])
        return JobArchive(job, facts.CheckpointSettings(), CheckpointHistory().overview())

    def lost_outcome(self, status: JobStatus) -> dict[str, Any]:
        """Return the result of a job whose process does not answer, in the shape of REST."""
        end = self.end or ProgramEnd()
        failure = {"code": end.code, "message": end.message, "remedy": end.remedy, "operator": end.operator}
        return {"status": status.value} | ({} if status is JobStatus.CANCELED else {"failure": failure})


def _initializing(job_id: str, name: str) -> facts.Job:
    return facts.Job(job_id, name, JobStatus.INITIALIZING.value, int(time.time() * 1000), 1, 1)


def exit_text(code: int | None) -> str:
    """Return the description of an exit code.

    >>> exit_text(3), exit_text(-9), exit_text(None)
    ('exit code 3', 'signal 9 (SIGKILL)', 'an unknown exit code')
    """
    if code is None:
        return "an unknown exit code"
    if code >= 0:
        return f"exit code {code}"
    known = {one.value: one.name for one in signal.Signals}
    return f"signal {-code} ({known.get(-code, 'a real-time signal')})"


def _failure(end: ProgramEnd, now: int) -> facts.Failure:
    return facts.Failure(now, end.code, end.message, end.traceback)
