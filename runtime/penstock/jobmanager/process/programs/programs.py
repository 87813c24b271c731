"""The programs of a session: it starts a process for each, watches it, and starts it again if it crashes or the session was restarted.

A program is stored before its process starts (`program_store`), and removed when its jobs have ended. So a session that is restarted runs
all its programs again, and each job continues from its newest checkpoint. A process that ends without a result is started again. After
`CRASHES` such ends in a row, the program is abandoned.
"""

from __future__ import annotations

import glob
import logging
import os
import signal
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from penstock.checkpoint.coordinator.statistics import CheckpointHistory
from penstock.common.configuration import Configuration
from penstock.common.errors import ClusterError, InvalidJob, PenstockError
from penstock.common.job_id import JobID
from penstock.common.job_status import JobStatus
from penstock.common.logs.log_settings import LogSettings
from penstock.common.logs.redaction import Redaction
from penstock.common.program.bundle import prepared
from penstock.jobmanager.cluster.executor.executor_output import ExecutorOutput, copy_output
from penstock.jobmanager.cluster.shared_cluster import SharedCluster
from penstock.jobmanager.cluster.task_managers import SlotUse
from penstock.jobmanager.history.archive import JobArchive, archive_of
from penstock.jobmanager.process.programs.cluster_service import ClusterService
from penstock.jobmanager.process.programs.ended_jobs import EndedJobs
from penstock.jobmanager.process.programs.fork_server import ForkServer
from penstock.jobmanager.process.programs.messages import JobStarted, ProcessSpec, ProgramEnd, ProgramSpec
from penstock.jobmanager.process.programs.program_store import ProgramStore
from penstock.jobmanager.process.programs.remote_gateway import RemoteGateway
from penstock.jobmanager.process.programs.rpc import Connection, Disconnected
from penstock.metrics.store import MetricStore
from penstock.rest import facts
from penstock.rest.errors import Conflict, NotFound

CRASHES = 3
"""Number of crashes in a row after which a program is abandoned. A process that has run longer than `STEADY_S` begins a new row."""
STEADY_S = 60.0
BACKOFF_S = 1.0
"""Time in seconds before the first restart. It doubles with each further restart."""
START_S = 900.0
"""Maximum time in seconds until the first job of a program is accepted. It includes the installation of packages and the wait for slots."""
SUSPEND_S = 25.0
MAX_OPERATIONS = 1_000
_LAST_OUTPUT = 2_000
"""Number of bytes of the output of a crashed process that its failure shows."""

logger = logging.getLogger(__name__)


@dataclass
class RunningProgram:
    """Program whose jobs have not ended."""

    spec: ProgramSpec
    output: ExecutorOutput
    """Printed output and log of its process."""
    connection: Connection | None = None
    service: ClusterService | None = None
    pid: int = 0
    started_at: float = 0.0
    crashes: int = 0
    jobs: dict[str, str] = field(default_factory=dict)
    """Names of its jobs, by id."""
    known: dict[str, facts.Job] = field(default_factory=dict)
    """Last answer of its process about each job."""
    end: ProgramEnd | None = None
    canceled: bool = False
    changed: threading.Condition = field(default_factory=threading.Condition)

    @property
    def gateway(self) -> RemoteGateway | None:
        """Return the gateway to its jobs, or None while no process runs."""
        return None if self.connection is None else RemoteGateway(self.connection, self.spec.id)

    def note(self, change: Callable[[], object]) -> None:
        with self.changed:
            change()
            self.changed.notify_all()


class ProgramRunner:
    """Programs of a session. Thread-safe.

    Args:
        cluster: function that returns the session's cluster, and starts it at the first call.
        settings: settings of the cluster for jobs.
        max_ended_jobs, ended_jobs_ttl_s: limits for ended jobs.
        folder: directory for the output of programs.
    """

    def __init__(
        self,
        cluster: Callable[[], SharedCluster],
        settings: Mapping[str, str],
        store: ProgramStore,
        metrics: MetricStore,
        max_ended_jobs: int,
        ended_jobs_ttl_s: float,
        folder: str,
    ) -> None:
        self._cluster, self._settings, self.store = cluster, dict(settings), store
        self._metrics, self._folder = metrics, folder
        self.ended = EndedJobs(max_ended_jobs, ended_jobs_ttl_s, self.forget)
        self._programs: dict[str, RunningProgram] = {}
        self._by_pid: dict[int, RunningProgram | None] = {}
        self._outputs: dict[str, ExecutorOutput] = {}
        """Output of the programs of ended jobs."""
        self._operations: dict[str, facts.Operation] = {}
        """Actions on the jobs of processes that have ended."""
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._forks = ForkServer(self._process_ended)

    def start(self) -> None:
        """Start the process that forks programs, and run the stored programs again."""
        self._forks.start()
        for spec in self.store.programs():
            logger.info("program %s (%s) continues", spec.bundle, spec.id)
            program = self._add(spec)
            threading.Thread(target=self._start_again, args=(program, 0.0), name="program-start", daemon=True).start()

    # --- requests ---------------------------------------------------------------------------------------------

    def run(self, spec: ProgramSpec) -> str:
        """Start a program. Wait until its first job is accepted, and return the job's id.

        Raises:
            PenstockError: the program is refused, or has ended without a job.
        """
        spec = msgspec.structs.replace(
            spec,
            id=uuid.uuid4().hex,
            job_id=spec.job_id or JobID.generate().digits,
            submitted_at=int(time.time() * 1000),
        )
        JobID(spec.job_id)
        program = self._add(spec)
        try:
            self.store.put(spec)
            self._start(program)
            with program.changed:
                decided = program.changed.wait_for(lambda: bool(program.jobs) or program.end is not None, START_S)
            if not decided:
                raise ClusterError(f"the program has started no job within {START_S:.0f} s")
        except BaseException:
            self._abandon(program)
            raise
        if not program.jobs:
            assert program.end is not None
            raise _error_of(program.end)
        return next(iter(program.jobs))

    def plan(self, spec: ProgramSpec) -> dict[str, Any]:
        """Return the graph of the program's first job, without running it.

        Raises:
            PenstockError: the program cannot be built.
        """
        program = RunningProgram(spec, self._new_output(f"plan-{uuid.uuid4().hex}"))
        self._start(program, plan_only=True)
        with program.changed:
            if not program.changed.wait_for(lambda: program.end is not None, START_S):
                self._kill(program)
                raise ClusterError(f"the program did not build its graph within {START_S:.0f} s")
        assert program.end is not None
        if program.end.plan is None:
            raise _error_of(program.end)
        return program.end.plan

    def program_of(self, job_id: str) -> RunningProgram | None:
        """Return the running program that has this job."""
        with self._lock:
            return next((one for one in self._programs.values() if job_id in one.jobs), None)

    def programs(self) -> list[RunningProgram]:
        with self._lock:
            return list(self._programs.values())

    def _new_output(self, name: str) -> ExecutorOutput:
        conf = Configuration(self._settings)
        return ExecutorOutput(self._folder, name, LogSettings.from_configuration(conf), Redaction.of(conf.to_dict()))

    def output_of(self, job_id: str) -> ExecutorOutput:
        """Return the output of the program of a job, also after its end.

        Raises:
            NotFound: the job does not belong to a program, or its output is no longer kept.
        """
        program = self.program_of(job_id)
        output = self._outputs.get(job_id) if program is None else program.output
        if output is None:
            raise NotFound(f"no output of job {job_id} is kept", remedy="the logs of the JobManager may have more")
        return output

    def forget(self, job_id: str) -> None:
        """Delete what is kept of an ended job."""
        output = self._outputs.pop(job_id, None)
        self._metrics.remove_job(job_id)
        if output is not None and output not in self._outputs.values():
            for file in (output.log, output.stdout):
                for path in glob.glob(f"{glob.escape(file.path)}*"):
                    os.unlink(path)

    def jobs(self) -> list[facts.Job]:
        """Return the jobs of all running programs. If a process does not answer at once, its last answer is used."""
        found: list[facts.Job] = []
        for program in self.programs():
            gateway = program.gateway
            try:
                if gateway is not None:
                    program.known = {job.id: job for job in gateway.jobs()}
            except PenstockError as error:
                logger.debug("the jobs of program %s are shown as they were: %s", program.spec.id, error)
            found += program.known.values()
        return found

    def slot_uses(self) -> list[SlotUse]:
        found: list[SlotUse] = []
        for program in self.programs():
            gateway = program.gateway
            try:
                found += [] if gateway is None else gateway.slot_uses()
            except PenstockError:
                continue
        return found

    def operation(self, request_id: str) -> facts.Operation | None:
        """Return the status of an action, or None. While the process of the job runs, only the process knows the status. After its end,
        this object knows it.
        """
        if request_id in self._operations:
            return self._operations[request_id]
        for program in self.programs():
            gateway = program.gateway
            try:
                if gateway is not None:
                    return gateway.operation(request_id)
            except PenstockError:
                continue
        return None

    def cancel(self, program: RunningProgram, job_id: str) -> None:
        """Cancel a job. A program whose process is being restarted is not started again."""
        gateway = program.gateway
        if gateway is not None:
            gateway.cancel(job_id)
            return
        program.canceled = True
        self._abandon(program, JobStatus.CANCELED)

    def kill(self, program_id: str) -> None:
        """End the process of a program that does not answer, and do not start it again.

        Raises:
            NotFound: no such program runs.
        """
        with self._lock:
            program = self._programs.get(program_id)
        if program is None:
            raise NotFound(f"program {program_id} does not run")
        program.canceled = True
        self._kill(program)

    # --- processes --------------------------------------------------------------------------------------------

    def _add(self, spec: ProgramSpec) -> RunningProgram:
        program = RunningProgram(spec, self._new_output(spec.id))
        with self._lock:
            if self._closing.is_set():
                raise Conflict("the session is shutting down", remedy="send the program again when it has restarted")
            taken = {one.spec.job_id for one in self._programs.values()}
            if spec.job_id in taken:
                raise InvalidJob(
                    f"job {spec.job_id} is running already", remedy="cancel it first, or use another job id"
                )
            self._programs[spec.id] = program
        self.ended.forget(spec.job_id)
        return program

    def _start(self, program: RunningProgram, *, plan_only: bool = False) -> None:
        spec = program.spec
        folder = prepared(spec.bundle, spec.digest, lambda: self.store.bundle(spec.bundle, spec.digest))
        cluster = self._cluster()
        service = ClusterService(cluster, self._metrics, spec)
        here, there = socket.socketpair()
        reading, writing = os.pipe()
        connection = Connection(here, self._functions(program, service), lambda: self._disconnected(program, service))
        with there:
            try:
                pid = self._forks.fork(there, writing)
            finally:
                os.close(writing)
        copy_output(os.fdopen(reading, "rb"), "", program.output.take)
        program.connection, program.service, program.pid = connection, service, pid
        program.started_at = time.monotonic()
        with self._lock:
            self._by_pid[pid] = program
        connection.start()
        spark = cluster.spark
        connection.call(
            "start",
            ProcessSpec(
                spec,
                str(folder),
                self._settings,
                spark.driver(),
                cluster.more_slots is not None,
                plan_only,
            ),
            timeout_s=START_S,
        )

    def _functions(self, program: RunningProgram, service: ClusterService) -> dict[str, Callable[..., Any]]:
        def job_started(job: JobStarted) -> None:
            service.check_job(job.job_id)
            self.ended.forget(job.job_id)
            program.note(lambda: program.jobs.update({job.job_id: job.name}))

        def ended(end: ProgramEnd) -> None:
            self._take_end(program, end)

        return {**service.functions(), "job_started": job_started, "ended": ended}

    def _take_end(self, program: RunningProgram, end: ProgramEnd) -> None:
        """Keep the REST data of the program's jobs, and remove the program from the store. The process ends after this call."""
        gateway = program.gateway
        for job_id in program.jobs:
            self._outputs[job_id] = program.output
            try:
                assert gateway is not None
                self.ended.add(archive_of(_Archived(gateway, self._metrics), job_id))
            except Exception:
                logger.exception("the data of job %s is lost", job_id)
        try:
            assert gateway is not None
            with self._lock:
                self._operations |= {operation.id: operation for operation in gateway.operations()}
                while len(self._operations) > MAX_OPERATIONS:
                    del self._operations[next(iter(self._operations))]
        except PenstockError as error:
            logger.warning("the outcomes of actions are lost: %s", error)
        if program.spec.id in self._programs:
            self.store.remove(program.spec.id)
        with self._lock:
            self._programs.pop(program.spec.id, None)
        program.note(lambda: setattr(program, "end", end))

    def _disconnected(self, program: RunningProgram, service: ClusterService) -> None:
        """Handle the end of a process. Its slots are free only now, because its tasks end with the process."""
        service.release_all()

    def _process_ended(self, pid: int, code: int) -> None:
        with self._lock:
            program = self._by_pid.pop(pid, None)
        if program is None or program.end is not None or self._closing.is_set():
            return
        program.connection = None
        if program.spec.id not in self._programs:  # only its plan was wanted
            program.note(lambda: setattr(program, "end", _crash(program, code)))
            return
        lived = time.monotonic() - program.started_at
        program.crashes = 1 if lived > STEADY_S else program.crashes + 1
        if program.canceled or program.crashes >= CRASHES:
            self._abandon(program, JobStatus.CANCELED if program.canceled else JobStatus.FAILED, _crash(program, code))
            return
        delay = BACKOFF_S * 2 ** (program.crashes - 1)
        logger.warning(
            "the process of program %s has ended with %s, and starts again in %.0f s",
            program.spec.id,
            _text(code),
            delay,
        )
        threading.Thread(target=self._start_again, args=(program, delay), name="program-start", daemon=True).start()

    def _start_again(self, program: RunningProgram, delay_s: float) -> None:
        if self._closing.wait(delay_s) or program.spec.id not in self._programs:
            return
        # A later start continues from the newest checkpoint, which the engine finds by the job's id.
        program.spec = msgspec.structs.replace(program.spec, restore_path="", starts=program.spec.starts + 1)
        try:
            self._start(program)
        except Disconnected:
            return  # the end of the process is reported too
        except Exception as error:
            logger.error("program %s cannot start again: %s", program.spec.id, error)
            found = error if isinstance(error, PenstockError) else ClusterError(str(error))
            end = ProgramEnd(found.code, found.message, found.remedy)
            self._abandon(program, JobStatus.FAILED, end)

    def _abandon(
        self, program: RunningProgram, status: JobStatus = JobStatus.FAILED, end: ProgramEnd | None = None
    ) -> None:
        """Remove a program that is not started again. Its jobs are shown with their end."""
        with self._lock:
            known = self._programs.pop(program.spec.id, None)
        if known is None:
            return
        self._kill(program)
        self.store.remove(program.spec.id)
        for job_id, name in program.jobs.items():
            self._outputs[job_id] = program.output
            self.ended.add(_lost_job(program.known.get(job_id), job_id, name, status, end))
        program.note(lambda: setattr(program, "end", end or ProgramEnd("CANCELED", "the program was removed")))

    def _kill(self, program: RunningProgram) -> None:
        with self._lock:
            lives = program.pid in self._by_pid
        if lives:
            try:
                os.killpg(program.pid, signal.SIGKILL)
            except ProcessLookupError:
                return

    # --- the end of the session -------------------------------------------------------------------------------

    def suspend(self) -> None:
        """End all processes. Their jobs are left with their checkpoints, and continue when the session starts again."""
        self._closing.set()
        self._in_all("suspend", SUSPEND_S)
        for program in self.programs():
            self._kill(program)
        self._forks.close()

    def cancel_all(self) -> None:
        """Cancel all jobs, and wait for the end of their programs."""
        self._in_all("end_jobs", SUSPEND_S)
        for program in self.programs():
            with program.changed:
                program.changed.wait_for(lambda: program.end is not None, 5.0)  # noqa: B023 - called in this turn
            self._abandon(program, JobStatus.CANCELED)

    def _in_all(self, function: str, timeout_s: float) -> None:
        threads = [
            threading.Thread(target=_call, args=(program.connection, function, timeout_s), daemon=True)
            for program in self.programs()
            if program.connection is not None
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout_s)


def _call(connection: Connection, function: str, timeout_s: float) -> None:
    try:
        connection.call(function, timeout_s=timeout_s)
    except (PenstockError, TimeoutError) as error:
        logger.warning("the process of a program did not end its jobs: %s", error)


class _Archived:
    """Gateway to a program's jobs, with the metrics that the session keeps, for `archive_of`."""

    def __init__(self, gateway: RemoteGateway, metrics: MetricStore) -> None:
        self._gateway = gateway
        self.metrics = metrics

    @property
    def insight(self) -> RemoteGateway:
        return self._gateway

    def __getattr__(self, name: str) -> Any:
        return getattr(self._gateway, name)


def _text(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code} ({signal.Signals(-code).name})"


def _crash(program: RunningProgram, code: int) -> ProgramEnd:
    last = program.output.stdout.read(-_LAST_OUTPUT, _LAST_OUTPUT).data.decode(errors="backslashreplace").strip()
    return ProgramEnd(
        Disconnected.code,
        f"the process of the program has ended with {_text(code)}" + (f". End of its output:\n{last}" if last else ""),
        "read the output of the program. A crash in a compiled library, or too little memory, ends a process like this",
    )


def _error_of(end: ProgramEnd) -> PenstockError:
    return InvalidJob(
        end.message or "the program has ended without a job",
        remedy=end.remedy,
        operator=end.operator,
        location=end.location,
    )


def _lost_job(known: facts.Job | None, job_id: str, name: str, status: JobStatus, end: ProgramEnd | None) -> JobArchive:
    """Return the archive of a job whose process cannot be asked about it."""
    now = int(time.time() * 1000)
    job = known or facts.Job(id=job_id, name=name, state=status.value, start=now, parallelism=1, max_parallelism=1)
    failures = list(job.failures)
    if end is not None and end.message:
        failures.append(facts.Failure(now, end.code, end.message, end.traceback))
    job = replace(job, state=status.value, end=now, failures=failures, vertices=[])
    return JobArchive(job, facts.CheckpointSettings(), CheckpointHistory().overview())
