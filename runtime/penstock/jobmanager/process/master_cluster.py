"""The cluster of a master process: the driver and the resource manager here, workers elsewhere, which come and go by themselves."""

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
from penstock.common.stacks.listener import Question
from penstock.common.stacks.sampling import Place, Sample
from penstock.jobmanager.cluster.executor.memory_kills import MemoryKills
from penstock.jobmanager.cluster.logs.files import LogFiles, LogSource
from penstock.jobmanager.cluster.python_daemon import environment_for
from penstock.jobmanager.cluster.resource_manager import ResourceManager
from penstock.jobmanager.cluster.spark_cluster import SparkCluster
from penstock.jobmanager.cluster.spark_settings import ClusterConfig
from penstock.jobmanager.cluster.task_managers import Worker
from penstock.jobmanager.failover.crash import MemoryKill
from penstock.jobmanager.job.settings import JobSettings
from penstock.jobmanager.process.agreed import executor_memory_mb, spark_secret
from penstock.jobmanager.runners.pipelined_runner import create_runner
from penstock.jobmanager.runners.runner import Runner

_END_S = 10.0
"""How long the end of this process waits for a driver that is still coming up. It ends by itself when this process has ended."""
_LOST = 70
"""Exit code without driver or resource manager: EX_SOFTWARE of sysexits.h."""

logger = logging.getLogger(__name__)

_READ_BY_DRIVERS = (
    *("AWS_", "HADOOP_", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"),
    *("LD_LIBRARY_PATH", "PYTHONPATH", "SPARK_CONF_DIR", "YARN_CONF_DIR"),
)
"""How names of environment variables begin."""


class MasterClusterProvider:
    """Starts driver and resource manager at the first job, or ahead of it; slots are whatever workers bring."""

    def __init__(self, settings: Configuration) -> None:
        self._settings = settings
        self.cluster: SparkCluster | None = None
        self._resources: ResourceManager | None = None
        self._ahead: Future[None] | None = None
        """The start of a cluster before there is a job."""
        self._begun_with: tuple[ClusterConfig, dict[str, str]] | None = None

    def begin(self, entry: str = "") -> None:
        """Start both now: they come up while the program is loaded, and workers with them.

        What a job will want of the driver is known from the configuration; one that wants something else gets another driver.

        Args:
            entry: of the program that will ask for them.
        """
        expected = JobSettings.from_configuration(self._settings.to_dict())
        expected.python_path.extend(dict.fromkeys([*_folders_of(entry), *import_path()]))
        config = self._config(expected)
        self._begun_with = config, _environment_of_drivers()
        self._ahead = _in_background(lambda: self._start(config))

    def runner_for(self, slots: int, levels: int, settings: JobSettings, *, dataframes: bool) -> Runner:
        if settings.runner == options.IN_PROCESS:
            raise InvalidJob(
                "penstock.runner is in-process, and a master runs its job on workers",
                remedy="leave penstock.runner at auto; in-process is for `python job.py` and `penstock run`",
            )
        pipelined = settings.uses_pipelined(dataframes=dataframes)
        self._settle(settings)
        if self.cluster is None:
            self._start(self._config(settings))
        assert self.cluster is not None
        return create_runner(self.cluster, pipelined=pipelined, levels=levels)

    def _config(self, settings: JobSettings) -> ClusterConfig:
        conf = self._settings
        return ClusterConfig(
            host=conf.get(options.JOBMANAGER_ADDRESS) or _address(),
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
        self.cluster = cluster
        self._end_with_the_driver(cluster)
        self._resources = ResourceManager(
            config.host,
            self._settings.get(options.JOBMANAGER_PORT),
            cluster,
            on_failure=lambda why: _end_process(f"the resource manager has ended ({why})"),
        )
        self._resources.start()

    def _settle(self, settings: JobSettings) -> None:
        """Wait for what was started ahead, and let go of it if it is not what this job wants."""
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            return
        failure = ahead.exception()
        assert self._begun_with is not None
        config, environment = self._begun_with
        if config.is_as_good_as(self._config(settings)) and environment == _environment_of_drivers():
            if failure is not None:
                raise failure
            return
        logger.info("the program has settings of its own for Spark: the driver is started again")
        self.stop()

    def _end_with_the_driver(self, cluster: SparkCluster) -> None:
        """Without its JVM this process can do nothing more for the job; in a new container it can."""

        kills = MemoryKills()

        def watch() -> None:
            code = cluster.wait_for_driver()
            if self.cluster is cluster:
                why = f": {MemoryKill(kills.limit).why}" if kills.new() else ""
                _end_process(f"Spark's driver has ended ({code}{why})")

        threading.Thread(target=watch, name="driver-watch", daemon=True).start()

    def task_managers(self) -> list[Worker]:
        return [] if self.cluster is None else self.cluster.workers()

    def logs(self, task_manager: str) -> LogSource:
        return LogFiles() if self._resources is None else self._resources.logs(task_manager)

    def stacks(self, task_manager: str, question: Question, of: Place) -> list[Sample]:
        return [] if self._resources is None else self._resources.stacks(task_manager, question, of)

    def readings(self, task_manager: str | None) -> str:
        if task_manager is None:
            return "" if self.cluster is None else self.cluster.readings()
        return "" if self._resources is None else self._resources.readings(task_manager)

    def stop(self) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            with suppress(TimeoutError):
                ahead.exception(_END_S)
        cluster, self.cluster = self.cluster, None
        resources, self._resources = self._resources, None
        if resources is not None:
            resources.close()
        if cluster is not None:
            cluster.stop()


def _folders_of(entry: str) -> list[str]:
    """Where the program's own modules are, if it is a file: beside what it is called, and beside what a link of that name leads to."""
    if not (entry.endswith(".py") or os.sep in entry):
        return []
    return [os.path.dirname(path) for path in (os.path.abspath(entry), os.path.realpath(entry))]


def _environment_of_drivers() -> dict[str, str]:
    """What a driver reads when it starts; a program may have set some of it."""
    return {name: value for name, value in os.environ.items() if name.startswith(_READ_BY_DRIVERS)}


def _in_background(work: Callable[[], None]) -> Future[None]:
    """In a thread that does not keep the process from its end."""
    done: Future[None] = Future()

    def run() -> None:
        try:
            work()
        except BaseException as error:  # belongs to whoever asks for the result
            done.set_exception(error)
        else:
            done.set_result(None)

    threading.Thread(target=run, name="cluster-ahead", daemon=True).start()
    return done


def _end_process(why: str) -> None:
    logger.critical("%s; so does this process", why)
    logging.shutdown()
    os._exit(_LOST)


def _address() -> str:
    return socket.gethostbyname(socket.gethostname())
