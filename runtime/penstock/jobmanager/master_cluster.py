"""The cluster of a master process: Spark's Master here, workers elsewhere, which come and go by themselves."""

from __future__ import annotations

import socket
from pathlib import Path

from penstock.common.configuration import Configuration
from penstock.jobmanager.pipelined_runner import create_runner
from penstock.jobmanager.runner import Runner
from penstock.jobmanager.settings import JobSettings
from penstock.jobmanager.spark_cluster import EXECUTOR_MEMORY_MB, ClusterConfig, SparkCluster

MASTER_PORT = 7077
DRIVER_PORT = 7078
BLOCK_MANAGER_PORT = 7079
_LEAST_MEMORY_MB = 450
"""Spark refuses an executor with less."""


class MasterClusterProvider:
    """Starts Master and driver at the first job; slots are whatever workers bring."""

    def __init__(self, settings: Configuration) -> None:
        self._settings = settings.to_dict()
        self.cluster: SparkCluster | None = None

    def runner_for(self, slots: int, levels: int, settings: JobSettings, *, bounded: bool) -> Runner:
        pipelined = settings.uses_pipelined(bounded=bounded)
        if self.cluster is None:
            values = self._settings
            secret_file = values.get("security.spark.secret-file", "")
            self.cluster = SparkCluster(
                ClusterConfig(
                    host=values.get("jobmanager.rpc.address") or _address(),
                    master_port=int(values.get("jobmanager.rpc.port", MASTER_PORT)),
                    driver_port=int(values.get("spark.driver.port", DRIVER_PORT)),
                    block_manager_port=int(values.get("spark.blockManager.port", BLOCK_MANAGER_PORT)),
                    executor_memory_mb=executor_memory_mb(Configuration(values)),
                    python_path=settings.python_path,
                    secret=Path(secret_file).read_text().strip() if secret_file else "",
                    extra_conf={k: v for k, v in settings.configuration.items() if k.startswith("spark.")},
                )
            )
            self.cluster.start()
        return create_runner(self.cluster, pipelined=pipelined, levels=levels)

    def available_slots(self) -> int:
        return 0 if self.cluster is None else len(self.cluster.executors())

    def stop(self) -> None:
        if self.cluster is not None:
            self.cluster.stop()
            self.cluster = None


def executor_memory_mb(settings: Configuration) -> int:
    """Heap of an executor, MB: master and workers must agree on it."""
    return max(_LEAST_MEMORY_MB, int(settings.to_dict().get("penstock.executor.memory-mb", EXECUTOR_MEMORY_MB)))


def _address() -> str:
    return socket.gethostbyname(socket.gethostname())
