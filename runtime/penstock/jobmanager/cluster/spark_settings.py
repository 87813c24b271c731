"""What Spark is told: the settings of driver and executors, and which of them an executor gets before it can ask."""

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
"""What waits between two levels in the buffers of a sender, and as much in those of a receiver; at least two segments for
each slot. With little a slow task slows its senders soon, and a barrier has little to wait for."""
_ENVIRONMENT = "spark.executorEnv."
_ONLY_WARNINGS = "-Dlog4j2.level=WARN"
"""Else the driver writes its settings before anything can be set."""
_STARTUP = ("spark.auth", "spark.rpc", "spark.network", "spark.ssl", "spark.port.")
"""Settings that begin so an executor needs before it can ask for the others, as those that end with `.port`. They are on its command
line, which anybody can read: passwords and the secret are not among them."""
_ALWAYS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.eventLog.enabled": "false",
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
    # Of several idle workers Spark would take the one that waits the longest, not the one that holds the state.
    "spark.python.factory.idleWorkerMaxPoolSize": "1",
    "spark.python.daemon.module": "penstock.jobmanager.cluster.python_daemon",
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.cleaner.periodicGC.interval": "10min",
    # Rows are sent as they are written (jvm/PromptWriter.java): nothing has to look for those that wait.
    "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": "60000",
    "spark.shuffle.streaming.networkBufferSize": str(2 * SEGMENT_BYTES),
    "spark.shuffle.streaming.writerMaxMemory": str(EXCHANGE_BYTES),
    "spark.shuffle.streaming.readerMaxMemory": str(EXCHANGE_BYTES),
    "spark.executorEnv.PYTHONHASHSEED": "0",
    "spark.executorEnv.OMP_NUM_THREADS": "1",
    "spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL": "system",
}
"""Recovery, placement and the exchange are ours; nothing of Spark's own is shown or noted."""
_PROTECTION = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.killEnabled": "false",
    "spark.shuffle.manager.incremental": "penstock.SealedShuffleManager",
}
"""Of driver and executors; stronger than settings of a job."""


@dataclass
class ClusterConfig:
    """How the cluster is laid out."""

    host: str = "127.0.0.1"
    driver_port: int = 0
    block_manager_port: int = 0
    executor_memory_mb: int = DEFAULT_HEAP // MIB
    """Heap of an executor, where its TaskManager does not say another."""
    driver_memory_mb: int = DEFAULT_DRIVER_HEAP // MIB
    secret: str = field(default_factory=new_secret)
    """What the processes of the cluster prove to each other; see `credentials`."""
    local_dir: str = ""
    python: str = sys.executable
    python_path: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    """Environment of the Python workers (credentials of the object store …)."""
    extra_conf: dict[str, str] = field(default_factory=dict)
    app_name: str = "penstock"
    log: LogSettings = field(default_factory=LogSettings)
    """How much of what executors write is kept, where this process starts them."""
    redaction: Redaction = field(default_factory=Redaction)
    embedded: bool = False
    """Tasks run in the driver's own JVM: it is the executor of all slots, and no other comes."""

    def is_as_good_as(self, wanted: ClusterConfig) -> bool:
        """A cluster that was started with this one does for the other, too."""
        same = (
            *("host", "driver_port", "block_manager_port", "executor_memory_mb", "driver_memory_mb"),
            *("secret", "python", "environment", "extra_conf", "embedded"),
        )
        alike = all(getattr(self, name) == getattr(wanted, name) for name in same)
        return alike and _python_path(self) == _python_path(wanted)


def spark_settings(config: ClusterConfig, credentials: Credentials) -> dict[str, str]:
    """All settings of the driver, by which executors go, too. Those of a job are stronger than ours, but for what protects the cluster."""
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
        # Of DataFrames. Else there were as many tasks at once, with a Python worker for each, as there may be of jobs.
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


def is_for_the_start(key: str) -> bool:
    if key == "spark.authenticate.secret" or "password" in key.lower():
        return False
    return key.startswith(_STARTUP) or key.endswith(".port")


def escaped(text: str) -> str:
    r"""As a key or a value of a Java properties file.

    >>> print(escaped("=é"))
    \u003d\u00e9
    """
    units = text.encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
