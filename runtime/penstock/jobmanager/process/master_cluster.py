"""The cluster of a master process: the driver and the resource manager here, workers elsewhere, which come and go by themselves."""

from __future__ import annotations

import logging
import os
import socket
import threading

from penstock.common.config import options
from penstock.common.config.memory import MIB, job_manager_memory, jvm_heap
from penstock.common.configuration import Configuration
from penstock.common.errors import InvalidJob
from penstock.jobmanager.cluster.executor.memory_kills import MemoryKills
from penstock.jobmanager.cluster.log_files import LogFiles, LogSource
from penstock.jobmanager.cluster.resource_manager import ResourceManager
from penstock.jobmanager.cluster.spark_cluster import ClusterConfig, SparkCluster
from penstock.jobmanager.cluster.task_managers import Worker
from penstock.jobmanager.failover.crash import MemoryKill
from penstock.jobmanager.job.settings import JobSettings
from penstock.jobmanager.process.agreed import executor_memory_mb, spark_secret
from penstock.jobmanager.runners.pipelined_runner import create_runner
from penstock.jobmanager.runners.runner import Runner

_LOST = 70
"""Exit code without driver or resource manager: EX_SOFTWARE of sysexits.h."""

logger = logging.getLogger(__name__)


class MasterClusterProvider:
    """Starts driver and resource manager at the first job; slots are whatever workers bring."""

    def __init__(self, settings: Configuration) -> None:
        self._settings = settings
        self.cluster: SparkCluster | None = None
        self._resources: ResourceManager | None = None

    def runner_for(self, slots: int, levels: int, settings: JobSettings, *, dataframes: bool) -> Runner:
        if settings.runner == options.IN_PROCESS:
            raise InvalidJob(
                "penstock.runner is in-process, and a master runs its job on workers",
                remedy="leave penstock.runner at auto; in-process is for `python job.py` and `penstock run`",
            )
        pipelined = settings.uses_pipelined(dataframes=dataframes)
        if self.cluster is None:
            conf = self._settings
            self.cluster = SparkCluster(
                ClusterConfig(
                    host=conf.get(options.JOBMANAGER_ADDRESS) or _address(),
                    driver_port=conf.get(options.DRIVER_PORT),
                    block_manager_port=conf.get(options.DRIVER_BLOCKS_PORT),
                    executor_memory_mb=executor_memory_mb(conf),
                    driver_memory_mb=jvm_heap(job_manager_memory(conf).heap) // MIB,
                    python_path=settings.python_path,
                    secret=spark_secret(conf),
                    extra_conf={k: v for k, v in settings.configuration.items() if k.startswith("spark.")},
                )
            )
            self.cluster.start()
            self._end_with_the_driver(self.cluster)
            port = conf.get(options.JOBMANAGER_PORT)
            self._resources = ResourceManager(
                self.cluster.config.host,
                port,
                self.cluster,
                on_failure=lambda why: _end_process(f"the resource manager has ended ({why})"),
            )
            self._resources.start()
        return create_runner(self.cluster, pipelined=pipelined, levels=levels)

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

    def stop(self) -> None:
        cluster, self.cluster = self.cluster, None
        if self._resources is not None:
            self._resources.close()
        if cluster is not None:
            cluster.stop()


def _end_process(why: str) -> None:
    logger.critical("%s; so does this process", why)
    logging.shutdown()
    os._exit(_LOST)


def _address() -> str:
    return socket.gethostbyname(socket.gethostname())
