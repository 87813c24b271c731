"""The process of one program in a session cluster: it runs the program's `main`, and is the JobManager of its jobs.

The process uses the session's Spark cluster (`cluster.attached_cluster`). It has no REST server and does not load the packages of REST,
because the session calls `program_functions`. Everything that the program has loaded ends with the process. A crash of the process, or its
use of memory, does not affect the session or other programs. When the session ends, the process suspends its jobs and ends too.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.common.config import options
from penstock.common.configuration import Configuration
from penstock.common.errors import InvalidJob, PenstockError
from penstock.common.logs.log_format import record_format
from penstock.common.logs.log_settings import LogSettings
from penstock.common.logs.redaction import Redaction
from penstock.common.program.bundle import FILE, Bundle, import_folders
from penstock.common.program.user_frames import program_traceback, user_place
from penstock.graph.executor import Executor
from penstock.jobmanager.cluster.attached_cluster import AttachedCluster
from penstock.jobmanager.cluster.logs.files import ClusterLogs, LogFiles
from penstock.jobmanager.job.settings import JobSettings
from penstock.jobmanager.process.programs.limits import check_limits
from penstock.jobmanager.process.programs.messages import JobStarted, ProcessSpec, ProgramEnd, SentGraph
from penstock.jobmanager.process.programs.process.program_functions import functions_of
from penstock.jobmanager.process.programs.process.remote_owner import ForwardedMetrics, RemoteOwner
from penstock.jobmanager.process.programs.process.remote_programs import RemotePrograms
from penstock.jobmanager.process.programs.rpc import Connection
from penstock.jobmanager.process.session.entry import GraphBuilt, GraphCollector, run_script_on
from penstock.jobmanager.process.session.gateway import DispatcherGateway
from penstock.jobmanager.process.session.session import Session, SubmitOptions, raise_if_failed
from penstock.jobmanager.runners.runner import Runner
from penstock.taskmanager.watching.task_log import MarkedHandler

if TYPE_CHECKING:
    from penstock.common.stacks.edge_records import EdgeQuestion, EdgeRecord
    from penstock.common.stacks.listener import Question
    from penstock.common.stacks.sampling import Place, Sample
    from penstock.jobmanager.cluster.logs.files import LogSource
    from penstock.jobmanager.cluster.task_managers import Worker
    from penstock.jobmanager.job.job_master import JobMaster

SUSPEND_S = 20.0
"""Time in seconds for the jobs to reach a barrier when the process must end."""

logger = logging.getLogger(__name__)


class AttachedClusterProvider:
    """Provider of the session's cluster for the jobs of this process. `session.ClusterProvider` describes the methods."""

    def __init__(self, spec: ProcessSpec, owner: RemoteOwner) -> None:
        self._spec, self._owner = spec, owner
        self._cluster = AttachedCluster(spec.driver, owner)
        self._attaching = threading.Lock()

    def runner_for(self, slots: int, levels: int, settings: JobSettings, *, dataframes: bool) -> Runner:
        self._check(settings, dataframes=dataframes)
        from penstock.jobmanager.runners.pipelined_runner import create_runner

        with self._attaching:
            if self._cluster.context is None:
                self._cluster.attach()
        pipelined = settings.uses_pipelined(dataframes=dataframes)
        runner = create_runner(self._cluster, pipelined=pipelined, levels=levels)
        if self._spec.folder:
            runner.bundle = Path(self._spec.folder, FILE)
        if self._spec.can_add_slots:
            runner.more_slots = partial(self._owner.ensure_slots, self._cluster.number(runner))
            try:
                runner.more_slots(slots)
            except BaseException:
                runner.close()
                raise
        return runner

    def _check(self, settings: JobSettings, *, dataframes: bool) -> None:
        if dataframes:
            raise InvalidJob(
                "from_spark and to_spark need a separate Spark session, but the jobs of a session cluster share one",
                remedy="run the program with `penstock run` without -m, or as a FlinkJob without spec.cluster",
            )
        if settings.runner == options.IN_PROCESS:
            raise InvalidJob(
                "penstock.runner is in-process, but the jobs of a session cluster run on its workers",
                remedy="leave penstock.runner at auto",
            )
        check_limits(self._spec.settings, settings.configuration)
        of_spark = sorted(
            key
            for key, value in settings.configuration.items()
            if key.startswith("spark.") and self._spec.settings.get(key) != value
        )
        if of_spark:
            raise InvalidJob(
                f"{of_spark[0]} is a setting of Spark, which all jobs of a session cluster share",
                remedy="set it when the session cluster is started, or run the program as a FlinkJob without spec.cluster",
            )

    def task_managers(self) -> list[Worker]:
        return self._owner.workers()

    def logs(self, task_manager: str) -> LogSource:
        return LogFiles()

    def stacks(self, task_manager: str, question: Question, of: Place) -> list[Sample]:
        return []

    def records(self, task_manager: str, question: EdgeQuestion) -> list[EdgeRecord]:
        return []

    def readings(self, task_manager: str | None) -> str:
        return ""

    def stop(self) -> None:
        self._cluster.detach()


def run_program_process(peer: socket.socket) -> int:
    """Run the program that the session describes over the connection. Return the exit code: 0, or 1 after an error of the program."""
    ended = threading.Event()
    state: dict[str, Any] = {}
    ready = threading.Event()

    def start(spec: ProcessSpec) -> None:
        state["spec"] = spec
        ready.set()

    early = Connection(peer, {"start": start}, ended.set).start()
    while not ready.wait(0.5):
        if ended.is_set():
            return 1
    spec: ProcessSpec = state["spec"]
    return _Process(spec, early, ended).run()


class _Process:
    """This process, after it has received its program."""

    def __init__(self, spec: ProcessSpec, peer: Connection, session_ended: threading.Event) -> None:
        self._spec, self._peer = spec, peer
        self.session = Session(AttachedClusterProvider(spec, RemoteOwner(peer)), SubmitOptions())
        session, program = self.session, spec.program
        session.dispatcher.metric_store = ForwardedMetrics(peer)
        if spec.folder:
            session.bundle = Bundle(program.bundle, program.digest, spec.folder)
        self._remote = RemotePrograms(session, spec.settings)
        session.submit_options = SubmitOptions(
            restore_path=program.restore_path, allow_non_restored=program.allow_non_restored, keep_result=True
        )
        session.job_id_of = lambda _: self._next_job_id()
        session.parallelism_of = program.rescaled.get
        session.on_started = self._forget_restore_path
        session.on_accepted = lambda master: peer.call("job_started", JobStarted(master.job_id, master.program.name))
        self._jobs = 0
        self._suspending = threading.Event()
        self._reporting = threading.Lock()
        gateway = DispatcherGateway(
            session.dispatcher,
            {**spec.settings, **program.configuration},
            session.cluster.task_managers,
            _nothing,
            ClusterLogs(LogFiles()),
        )
        peer.add(
            functions_of(gateway)
            | {
                "suspend": self._suspend,
                "end_jobs": session.end_jobs,
                "outcome": self._remote.outcome,
                "results": self._remote.results,
            }
        )
        threading.Thread(target=self._end_with, args=(session_ended,), name="session-watch", daemon=True).start()
        _keep_log(Configuration({**spec.settings, **program.configuration}))

    def _next_job_id(self) -> str:
        self._jobs += 1
        return self._spec.program.job_id_of(self._jobs - 1)

    def _forget_restore_path(self, master: JobMaster) -> None:
        """Apply the options of a start to the first job only."""
        self.session.submit_options = SubmitOptions(keep_result=True)
        master.scheduler.on_rescale = lambda: self._report_rescale(master)

    def _report_rescale(self, master: JobMaster) -> None:
        """Let the session store the parallelism of a job. The job does not wait for the storage."""

        def report() -> None:
            with self._reporting:  # the last report has the newest parallelism
                try:
                    self._peer.call("rescaled", master.job_id, master.scheduler.wanted)
                except PenstockError as error:
                    logger.warning(
                        "the new parallelism of job %s is not stored, so the job loses it if the session restarts: %s",
                        *(master.job_id, error.message),
                    )

        threading.Thread(target=report, name="rescaled", daemon=True).start()

    def _suspend(self) -> None:
        """Leave the jobs with their checkpoints."""
        self._suspending.set()
        self._suspend_jobs()

    def _suspend_jobs(self) -> None:
        for master in self.session.dispatcher.jobs():
            if not master.is_done:
                master.suspend()
                master.wait(SUSPEND_S)

    def _end_with(self, session_ended: threading.Event) -> None:
        session_ended.wait()
        logger.warning("the session has ended, so this process suspends its jobs and ends")
        self._suspend()
        os._exit(1)

    def _plan(self) -> dict[str, Any] | None:
        """Return the graph of the program's first job."""
        collector = GraphCollector()
        with suppress(GraphBuilt):
            _run_entry(collector, self._spec)
        return None if collector.graph is None else collector.graph.to_json()

    def run(self) -> int:
        """Run the program and wait for the jobs that it has started. An error of the program cancels them."""
        end, this = ProgramEnd(), os.getpid()
        try:
            end.plan = self._main()
        except SystemExit as error:
            if error.code not in (None, 0):
                end = ProgramEnd("USER_CODE", f"the program has called sys.exit({error.code!r})")
                end.exit_code = error.code if isinstance(error.code, int) else 1
        except BaseException as error:
            end = _end_of(error)
        if os.getpid() != this:  # the program has called os.fork, and this is its child
            return 1 if end.code else 0
        jobs = self.session.dispatcher.jobs()
        if end.is_of_another_session:
            self._suspend_jobs()
        elif end.code:
            self.session.end_jobs()
        outlasting = [master for master in jobs if not master.is_done]
        for master in jobs:
            master.wait()
        if self._suspending.is_set():
            return 0
        end = end if end.code else _failure_of(outlasting) or end
        if self._spec.program.graph is not None and jobs:
            end.outcome = self._remote.outcome(self._spec.program.job_id)
        if not jobs and not end.code and end.plan is None:
            end = _end_of(
                InvalidJob(
                    f"{self._spec.program.entry} has ended without a job",
                    remedy="end the program with env.execute(...)",
                )
            )
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # the program may have replaced or closed it
                stream.flush()
        self._peer.call("ended", end)
        self.session.cluster.stop()
        self._peer.close()
        return 1 if end.code else 0

    def _run_graph(self, graph: SentGraph) -> None:
        """Run the job of a client, and wait until the client has its records."""
        job_id = self._spec.program.job_id
        self._remote.submit(self._spec.graph, graph.penstock, graph.python, job_id)
        raise_if_failed(self._remote.wait(job_id))

    def _main(self) -> dict[str, Any] | None:
        """Run the program. Return the graph of its first job if only this is wanted."""
        if self._spec.program.graph is not None:
            self._run_graph(self._spec.program.graph)
            return None
        prepare_imports(self._spec)
        if self._spec.plan_only:
            return self._plan()
        _run_entry(self.session, self._spec)
        return None


def _failure_of(masters: list[JobMaster]) -> ProgramEnd | None:
    """Return the failure of a job that has ended after the program's `main`, which could not handle it."""
    for master in masters:
        try:
            raise_if_failed(master)
        except Exception as error:
            return _end_of(error)
    return None


def _nothing() -> None:
    """Do nothing: REST requests to stop the cluster reach the session only."""


def _end_of(error: BaseException) -> ProgramEnd:
    if isinstance(error, PenstockError):
        sys.stderr.write(f"{error}\n")
        location = error.location or user_place(error)
        return ProgramEnd(error.code, error.message, error.remedy, error.operator, location)
    text = program_traceback(error) if isinstance(error, Exception) else ""
    remedy = ""
    if isinstance(error, ModuleNotFoundError):
        remedy = (
            "add the package to requirements.txt of the program (penstock run -m URL -r FILE), or send the folder or the file "
            "that contains the module"
        )
    sys.stderr.write(text)
    return ProgramEnd(
        "USER_CODE", f"{type(error).__name__}: {error}", remedy, location=user_place(error), traceback=text
    )


def _keep_log(settings: Configuration) -> None:
    """Write all logs of this process to its output with a mark, by which the session separates them from what the program prints."""
    log = LogSettings.from_configuration(settings)
    handler = MarkedHandler()
    handler.setFormatter(record_format(log.format, Redaction.of(settings.to_dict())))
    logging.basicConfig(handlers=[handler], force=True)
    log.apply_levels()


def prepare_imports(spec: ProcessSpec) -> None:
    """Let this process import the modules and packages of the program's bundle before those of this machine."""
    folders = import_folders(Path(spec.folder))
    sys.path[:] = [*folders, *(entry for entry in sys.path if entry not in folders)]
    os.chdir(folders[0])


def _run_entry(executor: Executor, spec: ProcessSpec) -> None:
    """Run the program's `main`. Its jobs go to the executor."""
    program = spec.program
    settings = {**spec.settings, **program.configuration}
    if program.parallelism is not None:
        settings[options.PARALLELISM.key] = str(program.parallelism)
    run_script_on(executor, program.entry, program.args, settings)


def run(connection: int) -> int:
    """Run as the process of a program. Return the exit code.

    Args:
        connection: file descriptor of the connection to the session.
    """
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C in the session's terminal reaches the session, which suspends the jobs
    peer = socket.socket(fileno=connection)
    os.register_at_fork(after_in_child=peer.close)  # a process that the program forks must not keep the connection open
    return run_program_process(peer)
