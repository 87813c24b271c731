"""The choice between the clusters of `python job.py`: one JVM with all slots, or one JVM for each TaskManager."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from penstock.common.config import options
from penstock.common.config.memory import (
    DEFAULT_HEAP_PER_SLOT,
    MIB,
    job_manager_memory,
    jvm_heap,
    task_manager_memory,
)
from penstock.common.configuration import Configuration
from penstock.common.logs.log_settings import LogSettings
from penstock.common.logs.redaction import Redaction

if TYPE_CHECKING:
    from penstock.jobmanager.cluster.embedded_cluster import EmbeddedCluster
    from penstock.jobmanager.cluster.local_cluster import LocalCluster
    from penstock.jobmanager.cluster.spark_settings import ClusterConfig
    from penstock.jobmanager.job.settings import JobSettings


@dataclass(frozen=True)
class ClusterNeeds:
    """Requirements of a job, in addition to its settings."""

    slots: int
    least_workers: int = 0
    """Minimum number of TaskManagers in separate processes. 0 means that none is required."""
    dataframes: bool = False


def new_local_cluster(settings: JobSettings, needs: ClusterNeeds) -> LocalCluster | EmbeddedCluster:
    """Return a cluster for the job. It is not started."""
    if runs_in_one_jvm(settings, needs):
        from penstock.jobmanager.cluster.embedded_cluster import EmbeddedCluster

        return EmbeddedCluster(_one_jvm(settings, needs))
    from penstock.jobmanager.cluster.local_cluster import LocalCluster

    conf = Configuration(settings.configuration)
    per_worker = conf.get(options.TASK_SLOTS) if conf.contains_key(options.TASK_SLOTS.key) else None
    return LocalCluster(slots_per_worker=per_worker, config=_config(settings), heap_mb=partial(_heap_mb, conf))


def runs_in_one_jvm(settings: JobSettings, needs: ClusterNeeds) -> bool:
    """Return whether all tasks of the job run in the driver's JVM."""
    from penstock.jobmanager.cluster.embedded_cluster import MAX_SLOTS, needs_processes

    conf = Configuration(settings.configuration)
    if conf.get(options.LOCAL_CLUSTER) != options.ONE_JVM or needs.dataframes or needs.slots > MAX_SLOTS:
        return False
    return not needs.least_workers and not needs_processes(conf.to_dict())


class ClusterAhead:
    """Cluster in one JVM that starts before its job is checked.

    Args:
        settings: predicted settings of the job.
        needs: predicted requirements. The requirements must allow one JVM.

    Raises:
        ClusterError: no usable Java was found.
    """

    def __init__(self, settings: JobSettings, needs: ClusterNeeds) -> None:
        from penstock.jobmanager.cluster.embedded_cluster import EmbeddedCluster

        self.cluster: EmbeddedCluster = EmbeddedCluster(_one_jvm(settings, needs))
        try:
            self.cluster.start_jvm()
        except BaseException:
            self.cluster.stop()
            raise
        self._environment = dict(os.environ)

    def fits(self, settings: JobSettings, needs: ClusterNeeds) -> bool:
        """Return whether the job would get the same cluster."""
        if not runs_in_one_jvm(settings, needs) or self._environment != dict(os.environ):
            return False
        config = self.cluster.spark.config
        return config.satisfies(replace(_one_jvm(settings, needs), secret=config.secret, embedded=True))


def _one_jvm(settings: JobSettings, needs: ClusterNeeds) -> ClusterConfig:
    config = _config(settings)
    heap = _heap_mb(Configuration(settings.configuration), needs.slots)
    config.driver_memory_mb = max(config.driver_memory_mb + config.executor_memory_mb, heap)
    return config


def _config(settings: JobSettings) -> ClusterConfig:
    from penstock.jobmanager.cluster.python_daemon import environment_for
    from penstock.jobmanager.cluster.spark_settings import ClusterConfig

    conf = Configuration(settings.configuration)
    config = ClusterConfig(
        python_path=settings.python_path,
        executor_memory_mb=_heap_mb(conf, 1),
        driver_memory_mb=jvm_heap(job_manager_memory(conf).heap) // MIB,
    )
    config.log, config.redaction = LogSettings.from_configuration(conf), Redaction.of(conf.to_dict())
    config.extra_conf = {k: v for k, v in settings.configuration.items() if k.startswith("spark.")}
    config.environment |= environment_for(settings.checkpoint_dir)
    return config


def _heap_mb(conf: Configuration, slots: int) -> int:
    """Return the heap of an executor with that many slots. Configured sizes are those of a TaskManager with the configured number of slots.
    An executor with more slots gets more memory.
    """
    configured = task_manager_memory(conf)
    more = max(0, slots - configured.slots)
    return jvm_heap(configured.heap + more * DEFAULT_HEAP_PER_SLOT) // MIB
