"""`python job.py`: the JobManager runs in the program's process, and workers are child processes.

A job that runs in this process needs neither Spark nor a REST server. Both are imported only if they are needed, because their import takes
half of such a job's time.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from penstock.common.config import options
from penstock.common.configuration import Configuration
from penstock.common.credentials.local_token import dashboard_link
from penstock.common.errors import NotEnoughSlots
from penstock.common.job_client import JobClient
from penstock.common.job_execution_result import JobExecutionResult
from penstock.common.program.import_path import import_path
from penstock.common.stacks.edge_records import EdgeQuestion, EdgeRecord, newest
from penstock.common.stacks.listener import Question, records_of_processes, sample_processes
from penstock.common.stacks.sampling import Place, Sample, filter_samples, sample
from penstock.graph.program import Program
from penstock.jobmanager.cluster.logs.files import LogFiles, LogSource
from penstock.jobmanager.cluster.task_managers import Worker
from penstock.jobmanager.job.settings import JobSettings
from penstock.jobmanager.process.session.embedded_rest import EmbeddedRest
from penstock.jobmanager.process.session.local_clusters import ClusterAhead, ClusterNeeds, new_local_cluster
from penstock.jobmanager.process.session.process_log import program_console, program_log
from penstock.jobmanager.process.session.session import Session, SubmitOptions
from penstock.jobmanager.runners.in_process import TASK_MANAGER as IN_PROCESS
from penstock.jobmanager.runners.in_process import InProcessRunner
from penstock.jobmanager.runners.runner import Runner
from penstock.taskmanager.local_state.folders import local_folders, stacks_folder, sweep_state
from penstock.taskmanager.watching.edge_taps import peek
from penstock.taskmanager.watching.places import place_of

if TYPE_CHECKING:
    from penstock.jobmanager.cluster.embedded_cluster import EmbeddedCluster
    from penstock.jobmanager.cluster.local_cluster import LocalCluster
    from penstock.jobmanager.cluster.spark_cluster import SharedCluster


class LocalClusterProvider:
    """Provider that starts a local cluster for the first job. Later jobs of the program share it.

    The cluster is one JVM with all slots, or one JVM for each TaskManager. `penstock.local-cluster` of the first job selects it. If the
    job has DataFrames, or if its settings or `least_workers` concern TaskManagers, the cluster always has one JVM for
    each TaskManager.
    """

    def __init__(self) -> None:
        self.cluster: LocalCluster | EmbeddedCluster | None = None
        self.ahead: ClusterAhead | None = None
        """Cluster that starts while the first job is prepared."""
        self._starting = threading.Lock()
        """Lock for the start: a session may receive several programs at once, and a process can have only one SparkContext."""
        self.least_workers = 0
        """Minimum number of TaskManagers in separate processes. 0 means that none is required."""
        self.beside: Callable[[], object] = str
        """Function that waits for components that start in parallel with the cluster. Jobs begin after it has returned. It may raise an
        exception.
        """
        self._in_process: WeakSet[InProcessRunner] = WeakSet()
        self._state_folders: set[str] = set()
        """State directories that settings name. Other state directories are inside the cluster's directory."""

    def runner_for(self, slots: int, levels: int, settings: JobSettings, *, dataframes: bool) -> Runner:
        if settings.runner == options.IN_PROCESS:
            self.beside()
            local = InProcessRunner()
            self._in_process.add(local)
            return local
        pipelined = settings.uses_pipelined(dataframes=dataframes)
        from penstock.jobmanager.runners.pipelined_runner import create_runner

        cluster = self._started(slots, settings, dataframes=dataframes)
        self.beside()
        keeps_files = settings.backend == "rocksdb" or bool(settings.working_folder)
        if keeps_files and (settings.work_dir or settings.backend_options.get("localdir")):
            self._state_folders.update(local_folders(settings.backend_options, settings.work_dir))
        runner = create_runner(cluster.spark, pipelined=pipelined, levels=levels)
        runner.more_slots = partial(self._make_slots, cluster, runner)
        try:
            runner.more_slots(slots)
        except BaseException:
            runner.close()
            raise
        return runner

    def shared(self, settings: Configuration) -> SharedCluster:
        """Return the cluster for jobs of other processes. Start it if it does not run."""
        from penstock.jobmanager.cluster.spark_cluster import SharedCluster

        of_jobs = JobSettings.from_configuration(settings.to_dict())
        of_jobs.python_path.extend(import_path())
        cluster = self._started(1, of_jobs, dataframes=False)
        return SharedCluster(cluster.spark, partial(cluster.ensure_slots, least_workers=max(1, self.least_workers)))

    def _started(self, slots: int, settings: JobSettings, *, dataframes: bool) -> LocalCluster | EmbeddedCluster:
        """Return the cluster of this process. The first program starts it, and others wait for the start."""
        with self._starting:
            if self.cluster is None:
                needs = ClusterNeeds(slots, self.least_workers, dataframes=dataframes)
                cluster = self._ahead(settings, needs) or new_local_cluster(settings, needs)
                cluster.start()
                self.cluster = cluster
            return self.cluster

    def _ahead(self, settings: JobSettings, needs: ClusterNeeds) -> EmbeddedCluster | None:
        """Return the cluster whose JVM is already starting, if it fits the job. Stop it otherwise."""
        ahead, self.ahead = self.ahead, None
        if ahead is None or ahead.fits(settings, needs):
            return None if ahead is None else ahead.cluster
        ahead.cluster.stop()
        return None

    def _make_slots(self, cluster: LocalCluster | EmbeddedCluster, runner: Runner, count: int) -> None:
        """Make `count` slots available to this job, in addition to those of other jobs."""
        slots = cluster.spark.slots
        try:
            cluster.ensure_slots(slots.need(runner, count), least_workers=max(1, self.least_workers))
        except NotEnoughSlots:
            slots.cancel_request(runner)
            raise

    def task_managers(self) -> list[Worker]:
        return [] if self.cluster is None else self.cluster.spark.workers()

    def logs(self, task_manager: str) -> LogSource:
        return LogFiles() if self.cluster is None else self.cluster.logs(task_manager)

    def stacks(self, task_manager: str, question: Question, of: Place) -> list[Sample]:
        if self.cluster is None:  # the tasks are threads of this process
            return filter_samples(sample(question.seconds, question.hertz, lambda frames: place_of(frames, [])), of)
        return filter_samples(sample_processes(stacks_folder(self.cluster.local_dir(task_manager)), question), of)

    def records(self, task_manager: str, question: EdgeQuestion) -> list[EdgeRecord]:
        if self.cluster is None or task_manager == IN_PROCESS:
            parts = peek(question, lambda: [task for runner in list(self._in_process) for task in runner.tasks()])
            return newest([record for part in parts for record in part], question.count)
        return records_of_processes(stacks_folder(self.cluster.local_dir(task_manager)), question)

    def readings(self, task_manager: str | None) -> str:
        if self.cluster is None:
            return ""
        return self.cluster.spark.readings() if task_manager is None else self.cluster.readings(task_manager)

    def stop(self) -> None:
        ahead, self.ahead = self.ahead, None
        if ahead is not None:
            ahead.cluster.stop()
        if self.cluster is not None:
            self.cluster.stop()
            self.cluster = None
            for folder in self._state_folders:
                sweep_state(folder)


READ_OUTCOME_S = 3.0
"""Time in seconds before the process ends, in which a client that stopped or canceled a job can read the outcome. Clients poll every
second.
"""


class EmbeddedExecutor:
    """Default executor. The cluster and the REST server start with the first job and stop with the process.

    Args:
        token: token of the REST API. Empty means a new token.
        serves_in_process: whether REST is also served for jobs without Spark. Otherwise, it is served for such a job only if the job sets
            the port.
    """

    def __init__(
        self, submit: SubmitOptions | None = None, token: str = "", *, serves_in_process: bool = False
    ) -> None:
        self._serves_in_process = serves_in_process
        self.read_outcome_s = READ_OUTCOME_S
        self.provider = LocalClusterProvider()
        self.session = Session(self.provider, submit)
        self._logging = ExitStack()
        self._shows_output = False
        """Whether the output of functions in this process is shown with their operators."""
        self._rest = EmbeddedRest(self.session, token)
        self.provider.beside = self._rest.wait
        atexit.register(self.stop)

    @property
    def rest_url(self) -> str:
        """Return the URL of the REST API, or an empty string if it is disabled. Commands and `RestClient` find its token themselves."""
        return self._rest.url

    @property
    def rest_port(self) -> int:
        """Return the port of the REST API, or -1 if it is disabled."""
        return self._rest.port

    @property
    def dashboard_url(self) -> str:
        """Return the URL of the dashboard for a browser, or an empty string if REST is disabled.

        The page logs in with the token after `#`, which browsers do not send to servers.
        """
        return dashboard_link(self.rest_url)

    def _serve(self, program: Program) -> None:
        conf = Configuration(program.configuration)
        is_in_process = conf.get(options.RUNNER) == options.IN_PROCESS
        if is_in_process and not self._shows_output:
            self._shows_output = True
            self._logging.enter_context(program_console(conf))
        is_asked = self._serves_in_process or options.REST_PORT.key in program.configuration
        if is_in_process and not is_asked:
            return  # the job ended before a user could open the dashboard
        if not self._rest.is_started:
            self.session.logs = self._logging.enter_context(program_log(conf))
            self._rest.start(conf)

    def execute(self, program: Program) -> JobExecutionResult:
        self._serve(program)
        return self.session.execute(program)

    def execute_async(self, program: Program) -> JobClient:
        self._serve(program)
        return self.session.execute_async(program)

    def collect(self, program: Program, limit: int | None) -> Iterator[Any]:
        self._serve(program)
        return self.session.collect(program, limit)

    def recorded_plans(self, configuration: Configuration) -> Mapping[str, Any]:
        return self.session.recorded_plans(configuration)

    def stop(self) -> None:
        self.session.stop()
        self._rest.stop(self.read_outcome_s if self.session.dispatcher.has_operations else 0.0)
        self._logging.close()
