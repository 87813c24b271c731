"""The programs of a session: it starts a process for each, watches it, and starts it again if it crashes or the session was restarted.

A program is stored before its process starts (`program_store`), and removed when its jobs have ended. So a session that is restarted runs
all its programs again, and each job continues from its newest checkpoint. A process that ends without a result is started again, at most
`CRASHES` times in a row. If storage or the cluster prevent a program from continuing, the session tries it until it succeeds.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from penstock.common.errors import ClusterError, JobError, PenstockError
from penstock.common.job_id import JobID
from penstock.common.job_status import JobStatus
from penstock.jobmanager.cluster.executor.executor_output import ExecutorOutput, copy_output
from penstock.jobmanager.cluster.spark_cluster import SharedCluster
from penstock.jobmanager.cluster.task_managers import SlotUse
from penstock.jobmanager.process.programs.actions import ProgramActions
from penstock.jobmanager.process.programs.applications import Applications
from penstock.jobmanager.process.programs.cluster_service import ClusterService
from penstock.jobmanager.process.programs.ended_programs import EndedPrograms
from penstock.jobmanager.process.programs.limits import MemoryGuard, memory_limit
from penstock.jobmanager.process.programs.messages import CANCELED, JobStarted, ProcessSpec, ProgramEnd, ProgramSpec
from penstock.jobmanager.process.programs.outputs import ProgramOutputs
from penstock.jobmanager.process.programs.process.fork_server import ForkServer
from penstock.jobmanager.process.programs.remote_gateway import LIST_S
from penstock.jobmanager.process.programs.rpc import Connection, Disconnected
from penstock.jobmanager.process.programs.running_program import ProgramProcess, RunningProgram, exit_text
from penstock.jobmanager.process.programs.store.program_store import ProgramStore
from penstock.metrics.store import MetricStore
from penstock.rest import facts
from penstock.rest.errors import Conflict, NotFound, Unavailable

CRASHES = 3
"""Number of crashes in a row after which a program is abandoned. A process that has run longer than `STEADY_S` begins a new row."""
STEADY_S = 60.0
BACKOFF_S, MAX_BACKOFF_S = 1.0, 60.0
"""Time in seconds before the first restart, and its maximum. It doubles with each."""
START_S = 900.0
"""Maximum time in seconds until the first job of a program is accepted, which includes the installation of packages."""
SUSPEND_S = 25.0
END_S = 5.0
"""Time in seconds for a program to end after its jobs were cancelled."""
SEND_S = 5.0
"""Time in seconds after which the session gives up a process that reads nothing."""
OUTPUT_S = 1.0
"""Time in seconds for the output of a process after its end. A process that it has started may keep the output open."""
logger = logging.getLogger(__name__)


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
        self._cluster, self.settings, self.store = cluster, dict(settings), store
        self._metrics = metrics
        self.applications = Applications(max_ended_jobs, ended_jobs_ttl_s)
        self._programs: dict[str, RunningProgram] = {}
        self._outputs = ProgramOutputs(folder, settings)
        self.actions = ProgramActions(self.program_of, self.programs)
        self._kept = EndedPrograms(max_ended_jobs, ended_jobs_ttl_s, self._outputs, metrics, self.actions)
        self.ended, self.outcomes = self._kept.jobs, self._kept.outcomes
        self.registering = threading.Lock()
        """Lock for the registration of a program and for the deletion of a bundle, so that no program starts without its bundle."""
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._forks = ForkServer()
        self._guard = MemoryGuard()

    def start(self) -> None:
        """Start the process that forks programs, and run the stored programs again."""
        self._forks.start()
        for spec in self.store.programs():
            logger.info("program %s (%s) continues", spec.bundle, spec.id)
            try:
                program = self._add(spec)
            except Conflict as error:
                logger.warning("the stored program %s is ignored: %s", spec.id, error.message)
                continue
            program.show_waiting()
            self._restart(program, 0.0)

    # --- requests ---------------------------------------------------------------------------------------------

    def run(self, spec: ProgramSpec, graph: bytes = b"") -> facts.Application:
        """Start a program. Wait until its first job is accepted, and return the program with this job.

        Args:
            graph: serialized graph of a program without a bundle.

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
        with self.registering:
            if spec.graph is None:
                self.store.find(f"{spec.digest}_{spec.bundle}")
            program = self._add(spec)
        program.graph = graph
        try:
            if spec.is_stored:
                if graph:
                    self.store.put_graph(spec.id, graph)
                self.store.put(spec)
            self._start(program)
            with program.changed:
                decided = program.changed.wait_for(
                    lambda: bool(program.jobs) or program.end is not None or self._closing.is_set(), START_S
                )
            if self._closing.is_set() and not program.jobs:
                raise _shutting_down()
            if not decided:
                raise ClusterError(
                    f"the program has started no job within {START_S:.0f} s", remedy="call execute() earlier"
                )
        except BaseException as error:
            self._abandon(program, end=ProgramEnd.of(error))
            if self._closing.is_set() and isinstance(error, PenstockError):  # the session has ended the process
                raise _shutting_down() from error
            raise
        if not program.jobs:
            assert program.end is not None
            raise program.end.error()
        return self.applications.one(program.spec.id)

    def plan(self, spec: ProgramSpec) -> dict[str, Any]:
        """Return the graph of the program's first job, without running it.

        Raises:
            PenstockError: the program cannot be built.
        """
        program = RunningProgram(spec, self._outputs.new(f"plan-{uuid.uuid4().hex}", spec.configuration))
        process = self._start(program, plan_only=True)
        with program.changed:
            program.changed.wait_for(lambda: program.end is not None or self._closing.is_set(), START_S)
        if program.end is None:
            self._forks.kill(process.pid)
            if self._closing.is_set():
                raise _shutting_down()
            raise ClusterError(f"the program did not build its graph within {START_S:.0f} s")
        if program.end.plan is None:
            raise program.end.error()
        return program.end.plan

    def program_of(self, job_id: str) -> RunningProgram | None:
        """Return the running program that has this job."""
        with self._lock:
            return next((one for one in self._programs.values() if job_id in one.jobs), None)

    def starting_with(self, job_id: str) -> RunningProgram | None:
        """Return the program whose first job will have this id, and was not accepted yet."""
        with self._lock:
            return next((one for one in self._programs.values() if one.spec.job_id == job_id and not one.jobs), None)

    def programs(self) -> list[RunningProgram]:
        with self._lock:
            return list(self._programs.values())

    def output_of(self, job_id: str) -> ExecutorOutput:
        """Return the output of the program of a job, also after its end.

        Raises:
            NotFound: the job does not belong to a program, or its output is no longer kept.
        """
        program = self.program_of(job_id)
        output = self._outputs.of_ended(job_id) if program is None else program.output
        if output is None:
            raise NotFound(f"no output of job {job_id} is kept", remedy="the logs of the JobManager may have more")
        return output

    def jobs(self) -> list[facts.Job]:
        """Return the jobs of all running programs. If a process does not answer at once, its last answer is used."""
        found: list[facts.Job] = []
        deadline = time.monotonic() + LIST_S
        for program in self.programs():
            program.refresh(deadline)
            found += program.known.values()
        return found

    def known_jobs(self) -> list[facts.Job]:
        """Return the last answers of the processes of running programs about their jobs."""
        return [job for program in self.programs() for job in program.known.values()]

    def slot_uses(self) -> list[SlotUse]:
        found: list[SlotUse] = []
        deadline = time.monotonic() + LIST_S
        for program in self.programs():
            gateway = program.gateway
            with suppress(PenstockError):
                found += [] if gateway is None else gateway.slot_uses(deadline)
        return found

    # --- actions ----------------------------------------------------------------------------------------------

    def cancel_application(self, program_id: str) -> None:
        """Cancel all jobs of a program, and end it. Return before it has ended. Do nothing if it has ended already.

        Raises:
            NotFound: no such program is known.
        """
        program = self.applications.running(program_id)
        if program is None:
            self.applications.one(program_id)
            return
        program.is_canceled = True
        threading.Thread(target=self._end_jobs_of, args=(program,), name="program-end", daemon=True).start()

    def _end_jobs_of(self, program: RunningProgram) -> None:
        if program.process is not None:
            _call(program.process.connection, "end_jobs")
        with program.changed:
            program.changed.wait_for(lambda: program.end is not None, END_S)
        self._abandon(program, JobStatus.CANCELED)

    def cancel(self, program: RunningProgram, job_id: str) -> None:
        """Cancel a job. A process that does not answer is killed, which also cancels the other jobs of its program. A program whose
        process is being restarted is not started again, and a program that starts is ended before it has a job.
        """
        process, gateway = program.process, program.gateway
        with program.changed:
            is_starting = not program.jobs
            program.is_canceled = program.is_canceled or is_starting
        if is_starting or process is None or gateway is None:
            self._abandon(program, JobStatus.CANCELED)
            return
        try:
            gateway.cancel(job_id)
        except Unavailable:
            if process.exited.is_set():
                raise
            logger.warning("the process of program %s does not answer, so it is killed", program.spec.id)
            program.is_canceled = True
            self._forks.kill(process.pid)

    # --- processes --------------------------------------------------------------------------------------------

    def _add(self, spec: ProgramSpec) -> RunningProgram:
        program = RunningProgram(spec, self._outputs.new(spec.id, spec.configuration))
        with self._lock:
            if self._closing.is_set():
                raise _shutting_down()
            taken = {one.spec.job_id for one in self._programs.values()}
            if spec.job_id in taken:
                raise Conflict(f"job {spec.job_id} is running already", remedy="cancel it first, or use another job id")
            self._programs[spec.id] = program
        self.applications.add(program)
        self.ended.forget(spec.job_id)
        return program

    def _start(self, program: RunningProgram, *, plan_only: bool = False) -> ProgramProcess:
        spec = program.spec
        folder = ""
        if spec.graph is None:
            folder = str(self.store.folder(spec.bundle, spec.digest))
        elif not program.graph:
            program.graph = self.store.graph(spec)
        cluster = self._cluster()
        process = self._fork(program, ClusterService(cluster, self._metrics, spec))
        program.process = process
        if process.exited.is_set():
            program.process = None
        if program.end is not None:  # it was cancelled during the start
            self._forks.kill(process.pid)
            raise Conflict(program.end.message)
        self._guard.watch(process, memory_limit(self.settings, spec.configuration), self._forks.kill)
        process.connection.start()
        can_add = cluster.more_slots is not None
        described = ProcessSpec(spec, folder, self.settings, cluster.spark.driver(), can_add, plan_only, program.graph)
        process.connection.call("start", described, timeout_s=START_S)
        return process

    def _fork(self, program: RunningProgram, service: ClusterService) -> ProgramProcess:
        here, there = socket.socketpair()
        reading, writing = os.pipe()
        connection = Connection(here, service.functions(), lambda: self._disconnected(process), SEND_S)
        process = ProgramProcess(service, connection, copy_output(os.fdopen(reading, "rb"), "", program.output.take))
        connection.add(self._functions(program, process))
        try:
            process.pid = self._forks.fork(there, writing, lambda code: self._process_ended(program, process, code))
        except BaseException:
            process.exited.set()
            connection.close()
            raise
        finally:
            there.close()
            os.close(writing)
        return process

    def _functions(self, program: RunningProgram, process: ProgramProcess) -> dict[str, Callable[..., Any]]:
        def job_started(job: JobStarted) -> None:
            process.service.check_job(job.job_id)
            with program.changed:  # `cancel` either sees the job, or prevents it
                if program.is_canceled:
                    raise Conflict("the program is being cancelled, so it starts no more jobs")
                program.show_started(job.job_id, job.name)
            self.ended.forget(job.job_id)
            process.is_accepted = True

        def rescaled(job_id: str, parallelism: int) -> None:
            process.service.check_job(job_id)
            program.note_rescaled(job_id, parallelism)
            self._store_again(program)

        def ended(end: ProgramEnd) -> None:
            self._take_end(program, process, end)

        return {function.__name__: function for function in (job_started, rescaled, ended)}

    def _store_again(self, program: RunningProgram) -> None:
        """Store the changed description of a program, unless the program has ended."""
        spec = None
        while spec is not program.spec and program.spec.is_stored and program.end is None:
            spec = program.spec
            self.store.put(spec)
        end = program.end
        if end is not None and not end.is_of_another_session:  # it may have been removed before it was stored
            self.store.remove_later(program.spec, self._closing)

    def _take_end(self, program: RunningProgram, process: ProgramProcess, end: ProgramEnd) -> None:
        """Keep the REST data of the program's jobs, and remove the program from the store. The process ends after this call."""
        if program.end is not None:
            return
        if end.code and not process.is_accepted and program.spec.starts and not end.is_of_another_session:
            process.failure = end
            return
        self._kept.keep(program, end)
        with self._lock:
            is_stored = self._programs.pop(program.spec.id, None) is not None
        program.note_end(end)
        if is_stored and not end.is_of_another_session:
            self.store.remove_later(program.spec, self._closing)

    def _disconnected(self, process: ProgramProcess) -> None:
        """Kill a process that has lost its connection and does not end."""

        def end() -> None:
            if not process.exited.wait(SUSPEND_S):
                logger.warning("process %d has lost the connection to the session, so it is killed", process.pid)
                self._forks.kill(process.pid)

        threading.Thread(target=end, name="program-end", daemon=True).start()

    def _process_ended(self, program: RunningProgram, process: ProgramProcess, code: int | None) -> None:
        process.exited.set()
        self._guard.forget(process)
        process.connection.close()
        process.service.release_all()  # its slots are free only now, because its tasks end with it
        if program.process is process:
            program.process = None
        process.copying.join(OUTPUT_S)
        if program.spec.id not in self._programs and program.end is None:  # only its plan was wanted
            program.note_end(process.failure or program.crash(code))
        elif program.end is None and not self._closing.is_set():
            self._crashed(program, process, code)
        if program.end is not None:
            self.applications.close(program)
            if not program.jobs:
                self._outputs.delete(program.output)

    def _crashed(self, program: RunningProgram, process: ProgramProcess, code: int | None) -> None:
        end = process.failure or program.crash(code)
        if process.failure is None or not process.failure.is_of_platform:
            lived = time.monotonic() - process.started_at
            program.crashes = 1 if lived > STEADY_S else program.crashes + 1
        is_last = program.crashes >= CRASHES or program.is_refused_by(end) or not program.spec.is_stored
        if program.is_canceled or is_last:
            self._abandon(program, JobStatus.CANCELED if program.is_canceled else JobStatus.FAILED, end)
            return
        if program.jobs:
            program.show_waiting(end)
        delay = BACKOFF_S * 2 ** max(0, program.crashes - 1)
        logger.warning(
            "the process of program %s has ended with %s, and starts again in %.0f s: %s",
            *(program.spec.id, exit_text(code), delay, end.message),
        )
        self._restart(program, delay)

    def _restart(self, program: RunningProgram, delay_s: float) -> None:
        threading.Thread(target=self._start_again, args=(program, delay_s), name="program-start", daemon=True).start()

    def _start_again(self, program: RunningProgram, delay_s: float) -> None:
        """Start a program until it succeeds, or it is refused.

        The program has the savepoint of its first start again: a restore from it counts once, and then the job's checkpoints count.
        """
        while not self._closing.wait(delay_s) and program.end is None:
            program.note_start()
            try:
                self._start(program)
            except (Disconnected, Conflict):  # the end of the process is reported, too
                return
            except (JobError, NotFound) as error:
                logger.error("program %s cannot start again: %s", program.spec.id, error)
                self._abandon(program, JobStatus.FAILED, ProgramEnd.of(error))
            except Exception as error:
                delay_s = min(MAX_BACKOFF_S, 2 * delay_s or BACKOFF_S)
                logger.warning("program %s starts again in %.0f s: %s", program.spec.id, delay_s, error)
                program.show_waiting(ProgramEnd.of(error))
                continue
            return

    def _abandon(
        self, program: RunningProgram, status: JobStatus = JobStatus.FAILED, end: ProgramEnd | None = None
    ) -> None:
        """Remove a program that is not started again. Its jobs are shown with their end."""
        with self._lock:
            if program.is_removed or program.spec.id not in self._programs:
                return
            program.is_removed = True
        process = program.process
        program.note_end(end or ProgramEnd(CANCELED, "the program was cancelled"))
        if process is not None:
            self._forks.kill(process.pid)
            process.service.release_workers(list(program.jobs))
        self._kept.keep_lost(program, status, end)
        with self._lock:
            self._programs.pop(program.spec.id, None)
        if process is None or process.exited.is_set():
            self.applications.close(program)
        self.store.remove_later(program.spec, self._closing)

    # --- the end of the session -------------------------------------------------------------------------------

    def suspend(self) -> None:
        """End all processes. Their jobs are left with their checkpoints, and continue when the session starts again."""
        self._closing.set()
        for program in self.programs():
            program.note(lambda: None)  # requests that wait for its first job end
        self._in_all("suspend")
        for program in self.programs():
            if program.process is not None:
                self._forks.kill(program.process.pid)
        self._forks.close()

    def cancel_all(self) -> None:
        """Cancel all jobs, and wait for the end of their programs."""
        programs = self.programs()
        threads = [threading.Thread(target=self._end_jobs_of, args=(program,), daemon=True) for program in programs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SUSPEND_S + END_S)

    def _in_all(self, function: str) -> None:
        threads = [
            threading.Thread(target=_call, args=(program.process.connection, function), daemon=True)
            for program in self.programs()
            if program.process is not None
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SUSPEND_S)


def _call(connection: Connection, function: str) -> None:
    try:
        connection.call(function, timeout_s=SUSPEND_S, even_if_silent=True)
    except (PenstockError, TimeoutError) as error:
        logger.warning("the process of a program did not end its jobs: %s", error)


def _shutting_down() -> Unavailable:
    return Unavailable("the session is shutting down", remedy="send the program again when the session has restarted")
