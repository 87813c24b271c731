"""The settings of Spark's driver and executors, and the subset that an executor gets before it can request the other
settings."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

import penstock
from penstock.common.config.memory import DEFAULT_DRIVER_HEAP, DEFAULT_HEAP, MIB
from penstock.common.logs.log_settings import LogSettings
from penstock.common.logs.redaction import Redaction
from penstock.jobmanager.cluster.credentials import Credentials, new_secret
from penstock.jobmanager.cluster.jvm import class_archive
from penstock.jobmanager.cluster.jvm.java import find_java
from penstock.taskmanager.exchange.segments import SEGMENT_BYTES

HEAP = "spark.executor.memory"
EXCHANGE_BYTES = 2 * 2**20
"""Size in bytes of a sender's buffers between two levels, and of a receiver's buffers. Each slot has at least two
segments. If a task is slow, small buffers soon slow down its senders, so less data is ahead of a barrier.
"""
_ENVIRONMENT = "spark.executorEnv."
_ONLY_WARNINGS = "-Dlog4j2.level=WARN"
"""Log level of the driver. Without it, the driver logs its settings before the level can be set."""
_STARTUP = ("spark.auth", "spark.rpc", "spark.network", "spark.ssl", "spark.port.")
"""Prefixes of settings that an executor needs before it can request the other settings. It also needs all settings that
end with `.port`. These settings are on the executor's command line, which other users can read. So they must not
include passwords or the secret.
"""
_ALWAYS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.eventLog.enabled": "false",
    # Spark keeps ended jobs also without its UI. The JobManager reads only the jobs that have just failed.
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "300",
    "spark.ui.retainedTasks": "2000",
    "spark.ui.retainedDeadExecutors": "10",
    "spark.rpc.netty.dispatcher.numThreads": "2",
    "spark.rpc.io.threads": "2",
    "spark.shuffle.io.clientThreads": "2",
    "spark.shuffle.io.serverThreads": "2",
    "spark.task.maxFailures": "1",
    "spark.stage.maxConsecutiveAttempts": "1",
    "spark.speculation": "false",
    "spark.executor.syncLogLevel.enabled": "true",
    "spark.locality.wait": "10s",
    "spark.shuffle.reduceLocality.enabled": "false",
    "spark.shuffle.compress": "false",
    "spark.shuffle.spill.compress": "false",
    "spark.broadcast.compress": "false",
    "spark.files.fetchFailure.unRegisterOutputOnHost": "true",
    "spark.excludeOnFailure.enabled": "false",
    "spark.network.timeout": "60s",
    "spark.executor.heartbeatInterval": "5s",
    "spark.network.timeoutInterval": "5s",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "20000",
    "spark.rpc.askTimeout": "30s",
    "spark.python.worker.reuse": "true",
    # If several workers are idle, Spark would use the worker that has been idle longest, and not the worker with the state.
    "spark.python.factory.idleWorkerMaxPoolSize": "1",
    "spark.python.daemon.module": "penstock.jobmanager.cluster.python_daemon",
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.cleaner.periodicGC.interval": "10min",
    # Rows are sent when they are written (jvm/PromptWriter.java), so no thread needs to search for waiting rows.
    "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": "60000",
    "spark.shuffle.streaming.networkBufferSize": str(2 * SEGMENT_BYTES),
    "spark.shuffle.streaming.writerMaxMemory": str(EXCHANGE_BYTES),
    "spark.shuffle.streaming.readerMaxMemory": str(EXCHANGE_BYTES),
    "spark.executorEnv.PYTHONHASHSEED": "0",
    "spark.executorEnv.OMP_NUM_THREADS": "1",
    "spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL": "system",
}
"""Settings that disable Spark's recovery, placement, UI and event log, because Penstock has its own."""
_PROTECTION = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.killEnabled": "false",
    "spark.shuffle.manager.incremental": "penstock.SealedShuffleManager",
}
"""Settings of driver and executors that protect the cluster. They override settings of a job."""


@dataclass
class ClusterConfig:
    """Layout of the cluster."""

    host: str = "127.0.0.1"
    driver_port: int = 0
    block_manager_port: int = 0
    executor_memory_mb: int = DEFAULT_HEAP // MIB
    """Heap of an executor in MB, if its TaskManager does not set another size."""
    driver_memory_mb: int = DEFAULT_DRIVER_HEAP // MIB
    secret: str = field(default_factory=new_secret)
    """Secret with which the processes of the cluster authenticate. See `credentials`."""
    local_dir: str = ""
    python: str = sys.executable
    python_path: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    """Environment of the Python workers (credentials of the object store …)."""
    extra_conf: dict[str, str] = field(default_factory=dict)
    app_name: str = "penstock"
    log: LogSettings = field(default_factory=LogSettings)
    """Limits of the log files of executors that this process starts."""
    redaction: Redaction = field(default_factory=Redaction)
    embedded: bool = False
    """Whether tasks run in the driver's JVM. It is then the only executor and has all slots."""

    def satisfies(self, wanted: ClusterConfig) -> bool:
        """Return whether a cluster with this config also satisfies the other config."""
        same = (
            *("host", "driver_port", "block_manager_port", "executor_memory_mb", "driver_memory_mb"),
            *("secret", "python", "environment", "extra_conf", "embedded"),
        )
        alike = all(getattr(self, name) == getattr(wanted, name) for name in same)
        return alike and _python_path(self) == _python_path(wanted)


def spark_settings(config: ClusterConfig, credentials: Credentials) -> dict[str, str]:
    """Return all settings of the driver, which also apply to executors.

    A job's settings override Penstock's, except those that protect the cluster.
    """
    java_home = find_java()
    small = [] if config.embedded else class_archive.SMALL
    settings = _ALWAYS | {
        "spark.app.name": config.app_name,
        "spark.driver.host": config.host,
        "spark.driver.bindAddress": config.host,
        "spark.driver.memory": f"{config.driver_memory_mb}m",
        "spark.driver.extraJavaOptions": " ".join([*class_archive.jvm_options(java_home), *small, _ONLY_WARNINGS]),
        HEAP: f"{config.executor_memory_mb}m",
        "spark.local.dir": config.local_dir,
        f"{_ENVIRONMENT}PYTHONPATH": os.pathsep.join(_python_path(config)),
    }
    extra_class_path = class_archive.extra_class_path(java_home)
    if extra_class_path:
        settings["spark.driver.extraClassPath"] = extra_class_path
    if config.embedded:
        # Limit the tasks of DataFrames. Otherwise Spark would run as many at once as there are task slots, each with a Python worker.
        settings["spark.default.parallelism"] = str(max(2, os.cpu_count() or 1))
        settings["spark.sql.shuffle.partitions"] = str(4 * max(2, os.cpu_count() or 1))
    if config.driver_port:
        settings["spark.driver.port"] = str(config.driver_port)
    if config.block_manager_port:
        settings["spark.driver.blockManager.port"] = str(config.block_manager_port)
    for name, value in config.environment.items():
        settings[f"{_ENVIRONMENT}{name}"] = value
    return (
        settings
        | config.extra_conf
        | _PROTECTION
        | {
            "spark.authenticate.secret": credentials.secret,
            **credentials.spark_conf(),
        }
    )


def _python_path(config: ClusterConfig) -> list[str]:
    package_root = str(Path(penstock.__file__).resolve().parents[1])
    inherited = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    return list(dict.fromkeys([*config.python_path, package_root, *inherited]))


def executor_environment(settings: dict[str, str]) -> dict[str, str]:
    return {key.removeprefix(_ENVIRONMENT): value for key, value in settings.items() if key.startswith(_ENVIRONMENT)}


def is_startup_setting(key: str) -> bool:
    if key == "spark.authenticate.secret" or "password" in key.lower():
        return False
    return key.startswith(_STARTUP) or key.endswith(".port")


def escaped(text: str) -> str:
    r"""Return the text, escaped as a key or a value of a Java properties file.

    >>> print(escaped("=é"))
    \u003d\u00e9
    """
    units = text.encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
