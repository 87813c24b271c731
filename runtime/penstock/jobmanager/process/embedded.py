"""`python job.py`: the program's own process is the JobManager, workers are processes beside it.

A job in process needs neither Spark nor a REST server: both are imported when they are needed, which is half of its time.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.common.config import options
from penstock.common.config.memory import (
    DEFAULT_HEAP_OF_SLOT,
    MIB,
    job_manager_memory,
    jvm_heap,
    task_manager_memory,
)
from penstock.common.configuration import Configuration
from penstock.common.errors import NotEnoughSlots
from penstock.common.job_client import JobClient
from penstock.common.job_execution_result import JobExecutionResult
from penstock.common.logs.log_settings import LogSettings
from penstock.common.logs.redaction import Redaction
from penstock.common.stacks.listener import Question, ask_all
from penstock.common.stacks.sampling import Place, Sample, sample, samples_of
from penstock.graph.program import Program
from penstock.jobmanager.cluster.logs.files import LogFiles, LogSource
from penstock.jobmanager.cluster.task_managers import Worker
from penstock.jobmanager.job.settings import JobSettings
from penstock.jobmanager.process.process_log import log_beside_program
from penstock.jobmanager.process.session import Session, SubmitOptions
from penstock.jobmanager.runners.in_process import InProcessRunner
from penstock.jobmanager.runners.runner import Runner
from penstock.taskmanager.local_state.folders import local_folders, stacks_folder, sweep_state
from penstock.taskmanager.watching.places import place_of

if TYPE_CHECKING:
    from penstock.jobmanager.cluster.embedded_cluster import EmbeddedCluster
    from penstock.jobmanager.cluster.local_cluster import LocalCluster
    from penstock.jobmanager.cluster.spark_settings import ClusterConfig
    from penstock.rest.server import RestServer


class LocalClusterProvider:
    """Starts a local cluster when the first job needs it; later jobs of the program share it.

    By `penstock.local-cluster` of the first job it is one JVM with all slots in it, or one for each TaskManager; that in any case
    where the job has DataFrames, or its settings, or `least_workers`, speak of TaskManagers.
    """

    def __init__(self) -> None:
        self.cluster: LocalCluster | EmbeddedCluster | None = None
        self.least_workers = 0
        """TaskManagers that are processes of their own; 0: none has to be."""
        self.beside: Callable[[], object] = str
        """Waits for what is started while the cluster is; jobs begin after it. May raise."""
        self._state_folders: set[str] = set()
        """Those that settings name; others lie in the cluster's own."""

    def runner_for(self, slots: int, levels: int, settings: JobSettings, *, dataframes: bool) -> Runner:
        if settings.runner == options.IN_PROCESS:
            self.beside()
            return InProcessRunner()
        pipelined = settings.uses_pipelined(dataframes=dataframes)
        from penstock.jobmanager.cluster.embedded_cluster import MOST_SLOTS
        from penstock.jobmanager.cluster.python_daemon import environment_for
        from penstock.jobmanager.cluster.spark_settings import ClusterConfig
        from penstock.jobmanager.runners.pipelined_runner import create_runner

        if self.cluster is None:
            conf = Configuration(settings.configuration)
            config = ClusterConfig(
                python_path=settings.python_path,
                executor_memory_mb=_heap_mb(conf, 1),
                driver_memory_mb=jvm_heap(job_manager_memory(conf).heap) // MIB,
            )
            config.log, config.redaction = LogSettings.from_configuration(conf), Redaction.of(conf.to_dict())
            config.extra_conf = {k: v for k, v in settings.configuration.items() if k.startswith("spark.")}
            config.environment |= environment_for(settings.checkpoint_dir)
            one_jvm = conf.get(options.LOCAL_CLUSTER) == options.ONE_JVM and not dataframes and slots <= MOST_SLOTS
            self.cluster = self._new_cluster(config, conf, slots, one_jvm=one_jvm)
            self.cluster.start()
        self.beside()
        keeps_files = settings.backend == "rocksdb" or bool(settings.working_folder)
        if keeps_files and (settings.work_dir or settings.backend_options.get("localdir")):
            self._state_folders.update(local_folders(settings.backend_options, settings.work_dir))
        runner = create_runner(self.cluster.spark, pipelined=pipelined, levels=levels)
        runner.more_slots = partial(self._make_slots, self.cluster, runner)
        try:
            runner.more_slots(slots)
        except BaseException:
            runner.close()
            raise
        return runner

    def _new_cluster(
        self, config: ClusterConfig, conf: Configuration, slots: int, *, one_jvm: bool
    ) -> LocalCluster | EmbeddedCluster:
        from penstock.jobmanager.cluster.embedded_cluster import EmbeddedCluster, needs_processes
        from penstock.jobmanager.cluster.local_cluster import LocalCluster

        if one_jvm and not self.least_workers and not needs_processes(conf.to_dict()):
            config.driver_memory_mb = max(config.driver_memory_mb + config.executor_memory_mb, _heap_mb(conf, slots))
            return EmbeddedCluster(config)
        per_worker = conf.get(options.TASK_SLOTS) if conf.contains_key(options.TASK_SLOTS.key) else None
        return LocalCluster(slots_per_worker=per_worker, config=config, heap_mb=partial(_heap_mb, conf))

    def _make_slots(self, cluster: LocalCluster | EmbeddedCluster, runner: Runner, count: int) -> None:
        """So many for this job, beside those of the other jobs."""
        slots = cluster.spark.slots
        try:
            cluster.ensure_slots(slots.need(runner, count), least_workers=max(1, self.least_workers))
        except NotEnoughSlots:
            slots.need_no_more(runner)
            raise

    def task_managers(self) -> list[Worker]:
        return [] if self.cluster is None else self.cluster.spark.workers()

    def logs(self, task_manager: str) -> LogSource:
        return LogFiles() if self.cluster is None else self.cluster.logs(task_manager)

    def stacks(self, task_manager: str, question: Question, of: Place) -> list[Sample]:
        if self.cluster is None:  # the tasks are threads of this process
            return samples_of(sample(question.seconds, question.hertz, lambda frames: place_of(frames, [])), of)
        return samples_of(ask_all(stacks_folder(self.cluster.local_dir(task_manager)), question), of)

    def readings(self, task_manager: str | None) -> str:
        if self.cluster is None:
            return ""
        return self.cluster.spark.readings() if task_manager is None else self.cluster.readings(task_manager)

    def stop(self) -> None:
        if self.cluster is not None:
            self.cluster.stop()
            self.cluster = None
            for folder in self._state_folders:
                sweep_state(folder)


def _heap_mb(conf: Configuration, slots: int) -> int:
    """Heap of an executor of so many slots. Sizes that are given are those of a TaskManager as it is configured; one of more slots
    than that has more."""
    configured = task_manager_memory(conf)
    more = max(0, slots - configured.slots)
    return jvm_heap(configured.heap + more * DEFAULT_HEAP_OF_SLOT) // MIB


class EmbeddedExecutor:
    """The default executor. Cluster and REST server start with the first job and end with the process."""

    def __init__(self, submit: SubmitOptions | None = None) -> None:
        self.provider = LocalClusterProvider()
        self.session = Session(self.provider, submit)
        self._logging = ExitStack()
        self._serving: Future[RestServer | None] | None = None
        self.provider.beside = self._server
        atexit.register(self.stop)

    @property
    def rest_url(self) -> str:
        """Empty when the REST API is off."""
        server = self._server()
        return "" if server is None else server.url

    def _server(self) -> RestServer | None:
        return None if self._serving is None else self._serving.result()

    def _serve(self, program: Program) -> None:
        conf = Configuration(program.configuration)
        if conf.get(options.RUNNER) == options.IN_PROCESS and options.REST_PORT.key not in program.configuration:
            return  # over before anybody could look
        if self._serving is None:
            self.session.logs = self._logging.enter_context(log_beside_program(conf))
            # What the server is made of takes a third of a second to import. Meanwhile the cluster starts.
            thread = ThreadPoolExecutor(1, "rest-start")
            self._serving = thread.submit(self.session.serve, conf, fall_back=True)
            thread.shutdown(wait=False)

    def execute(self, program: Program) -> JobExecutionResult:
        self._serve(program)
        return self.session.execute(program)

    def execute_async(self, program: Program) -> JobClient:
        self._serve(program)
        return self.session.execute_async(program)

    def collect(self, program: Program, limit: int | None) -> Iterator[Any]:
        self._serve(program)
        return self.session.collect(program, limit)

    def stop(self) -> None:
        self.session.stop()
        serving, self._serving = self._serving, None
        server = None if serving is None or serving.exception() else serving.result()
        if server is not None:
            server.stop()
        self._logging.close()
