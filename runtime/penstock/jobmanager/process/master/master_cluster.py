"""The cluster of a master process: the driver and the resource manager in this process. Workers are separate and may appear at any time."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress

from penstock.common.config import options
from penstock.common.config.memory import MIB, job_manager_memory, jvm_heap
from penstock.common.configuration import Configuration
from penstock.common.errors import InvalidJob
from penstock.common.program.import_path import import_path
from penstock.common.stacks.edge_records import EdgeQuestion, EdgeRecord
from penstock.common.stacks.listener import Question
from penstock.common.stacks.sampling import Place, Sample
from penstock.jobmanager.cluster.executor.memory_kills import MemoryKills
from penstock.jobmanager.cluster.logs.files import LogFiles, LogSource
from penstock.jobmanager.cluster.members.registration import BEAT_S
from penstock.jobmanager.cluster.python_daemon import environment_for
from penstock.jobmanager.cluster.resource_manager import ResourceManager
from penstock.jobmanager.cluster.spark_cluster import SharedCluster, SparkCluster
from penstock.jobmanager.cluster.spark_settings import ClusterConfig
from penstock.jobmanager.cluster.task_managers import Worker
from penstock.jobmanager.failover.crash import MemoryKill
from penstock.jobmanager.job.settings import JobSettings
from penstock.jobmanager.process.agreed import executor_memory_mb, spark_secret
from penstock.jobmanager.process.election.member import Member
from penstock.jobmanager.runners.pipelined_runner import create_runner
from penstock.jobmanager.runners.runner import Runner
from penstock.jobmanager.runners.warm_up import warm_up

_LEAST_PATIENCE_S = 3 * BEAT_S
"""Minimum time in seconds without an answer after which workers leave a leader. A leader answers only heartbeats, also if the lease is shorter
than their interval.
"""
_END_S = 10.0
"""Time in seconds for which the end of this process waits for a driver that is starting. The driver stops itself when this process has
ended.
"""
_LOST = 70
"""Exit code after the loss of the driver or the resource manager: EX_SOFTWARE of sysexits.h."""

logger = logging.getLogger(__name__)

READ_BY_DRIVERS = (
    *("AWS_", "HADOOP_", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"),
    *("LD_LIBRARY_PATH", "PYTHONPATH", "SPARK_CONF_DIR", "YARN_CONF_DIR"),
)
"""Prefixes of the names of environment variables that a driver reads."""


class MasterClusterProvider:
    """Provider that starts the driver and the resource manager for the first job, or before it. Workers supply the slots."""

    def __init__(self, settings: Configuration) -> None:
        self._settings = settings
        self._import_path = import_path()
        """Import path before the start of a driver, which adds Spark's folder of files to the path of this process."""
        self._member: Member | None = None
        """This process in an election. None means that this process always leads."""
        self._patience_s: float | None = None
        """See `ResourceManager`."""
        self._listening = threading.Lock()
        """Lock for the resource manager: another thread may start it when this process begins to lead."""
        self.cluster: SparkCluster | None = None
        self._starting = threading.Lock()
        """Lock for the start: a session may receive several programs at once, and a process can have only one SparkContext."""
        self._resources: ResourceManager | None = None
        self._early_start: Future[None] | None = None
        """Start of a cluster before the first job exists."""
        self._started_with: tuple[ClusterConfig, dict[str, str]] | None = None

    def begin(self, entry: str = "") -> None:
        """Start driver and resource manager now. They start while the program is loaded, and workers can register.

        The configuration shows which driver a job will need. A job with other requirements gets another driver.

        Args:
            entry: entry of the program that will use the driver.
        """
        expected = JobSettings.from_configuration(self._settings.to_dict())
        expected.python_path.extend(dict.fromkeys([*_folders_of(entry), *import_path()]))
        config = self._config(expected)
        self._started_with = config, environment_of_drivers()
        self._early_start = _in_background(lambda: self._start(config))

    def runner_for(self, slots: int, levels: int, settings: JobSettings, *, dataframes: bool) -> Runner:
        check_deployable(settings)
        pipelined = settings.uses_pipelined(dataframes=dataframes)
        return create_runner(self.cluster_for(settings), pipelined=pipelined, levels=levels)

    def shared(self, settings: Configuration) -> SharedCluster:
        """Return the cluster for jobs of other processes. Start it if it does not run. Its slots belong to `penstock worker` processes."""
        of_jobs = JobSettings.from_configuration(settings.to_dict())
        of_jobs.python_path.extend(self._import_path)
        return SharedCluster(self.cluster_for(of_jobs))

    def cluster_for(self, settings: JobSettings) -> SparkCluster:
        """Return the cluster for a job with these settings. Start it if it does not run."""
        with self._starting:
            self._settle(settings)
            if self.cluster is None:
                self._start(self._config(settings))
            assert self.cluster is not None
            return self.cluster

    def _config(self, settings: JobSettings) -> ClusterConfig:
        conf = self._settings
        return ClusterConfig(
            host=self.host,
            driver_port=conf.get(options.DRIVER_PORT),
            block_manager_port=conf.get(options.DRIVER_BLOCKS_PORT),
            executor_memory_mb=executor_memory_mb(conf),
            driver_memory_mb=jvm_heap(job_manager_memory(conf).heap) // MIB,
            python_path=settings.python_path,
            secret=spark_secret(conf),
            extra_conf={k: v for k, v in settings.configuration.items() if k.startswith("spark.")},
            environment=environment_for(settings.checkpoint_dir),
        )

    def _start(self, config: ClusterConfig) -> None:
        cluster = SparkCluster(config)
        cluster.start()
        with self._listening:
            self.cluster = cluster
            self._end_when_driver_ends(cluster)
            self._listen(cluster, config.host)

    def take_part_in(self, member: Member, settings: Configuration) -> None:
        """Use the workers' slots only from the time at which this process leads. Call it before `begin`."""
        self._member, member.on_lead = member, self._lead
        self._patience_s = max(_LEAST_PATIENCE_S, 2 * settings.get(options.LEASE_DURATION).total_seconds())

    def _lead(self) -> None:
        with self._listening:
            member, resources = self._member, self._resources
            if resources is not None and member is not None and member.leads:
                resources.lead(member.term)

    @property
    def host(self) -> str:
        """Return the address at which workers and other masters reach this process."""
        return self._settings.get(options.JOBMANAGER_ADDRESS) or _address()

    def _listen(self, cluster: SparkCluster, host: str) -> None:
        self._resources = ResourceManager(
            host,
            self._settings.get(options.JOBMANAGER_PORT),
            cluster,
            on_failure=lambda error: _end_process(f"the resource manager has ended ({error})"),
            patience_s=self._patience_s,
            master="" if self._member is None else self._member.short_id,
            on_warm=lambda executor: self._warm_up(cluster, executor),
        )
        if self._member is not None and self._member.leads:
            self._resources.lead(self._member.term)
        self._resources.start()

    def _warm_up(self, cluster: SparkCluster, executor: str) -> None:
        """Prepare a warm executor in the background. The batched runner uses other Python daemons, which it starts itself."""
        if self._settings.get(options.RUNNER) != "batched":
            threading.Thread(target=warm_up, args=(cluster, executor), name="warm-up", daemon=True).start()

    def _settle(self, settings: JobSettings) -> None:
        """Wait for the early start, and stop its cluster if it does not fit this job."""
        ahead, self._early_start = self._early_start, None
        if ahead is None:
            return
        failure = ahead.exception()
        assert self._started_with is not None
        config, environment = self._started_with
        if config.satisfies(self._config(settings)) and environment == environment_of_drivers():
            if failure is not None:
                raise failure
            return
        logger.info("the program sets other options of Spark, so the driver restarts")
        self.stop()

    def _end_when_driver_ends(self, cluster: SparkCluster) -> None:
        """End this process when its driver's JVM ends, because it cannot run the job without the driver. A new container can run the job."""

        kills = MemoryKills()

        def watch() -> None:
            code = cluster.wait_for_driver()
            if self.cluster is cluster:
                reason = f": {MemoryKill(kills.limit).reason}" if kills.new() else ""
                _end_process(f"Spark's driver has ended ({code}{reason})")

        threading.Thread(target=watch, name="driver-watch", daemon=True).start()

    def task_managers(self) -> list[Worker]:
        return [] if self.cluster is None else self.cluster.workers()

    def logs(self, task_manager: str) -> LogSource:
        return LogFiles() if self._resources is None else self._resources.logs(task_manager)

    def stacks(self, task_manager: str, question: Question, of: Place) -> list[Sample]:
        return [] if self._resources is None else self._resources.stacks(task_manager, question, of)

    def records(self, task_manager: str, question: EdgeQuestion) -> list[EdgeRecord]:
        return [] if self._resources is None else self._resources.records(task_manager, question)

    def readings(self, task_manager: str | None) -> str:
        if task_manager is None:
            return "" if self.cluster is None else self.cluster.readings()
        return "" if self._resources is None else self._resources.readings(task_manager)

    def stop(self) -> None:
        ahead, self._early_start = self._early_start, None
        if ahead is not None:
            with suppress(TimeoutError):
                ahead.exception(_END_S)
        with self._listening:
            cluster, self.cluster = self.cluster, None
            resources, self._resources = self._resources, None
        if resources is not None:
            resources.close()
        if cluster is not None:
            cluster.stop()


def check_deployable(settings: JobSettings) -> None:
    """Check that the job can run on workers.

    Raises:
        InvalidJob: its settings select another runner.
    """
    if settings.runner == options.IN_PROCESS:
        raise InvalidJob(
            "penstock.runner is in-process, but a master runs its job on workers",
            remedy="leave penstock.runner at auto; in-process is for `python job.py` and `penstock run`",
        )


def _folders_of(entry: str) -> list[str]:
    """Return the directories of the program's modules if the entry is a file: the directory of its path, and the directory of a link's
    target.
    """
    if not (entry.endswith((".py", ".sql")) or os.sep in entry):
        return []
    return [os.path.dirname(path) for path in (os.path.abspath(entry), os.path.realpath(entry))]


def environment_of_drivers() -> dict[str, str]:
    """Return the environment variables that a driver reads at its start. A program may have set some of them."""
    return {name: value for name, value in os.environ.items() if name.startswith(READ_BY_DRIVERS)}


def _in_background(work: Callable[[], None]) -> Future[None]:
    """Run work in a thread that does not prevent the end of the process."""
    done: Future[None] = Future()

    def run() -> None:
        try:
            work()
        except BaseException as error:  # the caller that requests the result handles it
            done.set_exception(error)
        else:
            done.set_result(None)

    threading.Thread(target=run, name="cluster-ahead", daemon=True).start()
    return done


def _end_process(reason: str) -> None:
    logger.critical("%s; this process ends too", reason)
    logging.shutdown()
    os._exit(_LOST)


def _address() -> str:
    return socket.gethostbyname(socket.gethostname())
