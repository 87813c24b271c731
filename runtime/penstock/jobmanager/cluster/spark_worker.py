"""A TaskManager: one Spark Worker process; Spark starts one executor under it, which has all slots."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pyspark

from penstock.jobmanager.cluster.credentials import Credentials
from penstock.jobmanager.cluster.jvm import class_archive
from penstock.jobmanager.cluster.jvm.java import find_java
from penstock.jobmanager.cluster.slots import MAX_PIPELINED_LEVELS
from penstock.taskmanager.local_folders import LOCAL_DIR

_ROLLING = {"strategy": "size", "maxSize": 8 * 1024 * 1024, "maxRetainedFiles": 2}
"""What executors write must not fill the disk; `maxSize` in bytes."""


def state_folder(work_dir: str) -> str:
    """Below which the slots of a Worker keep files of their state, unless settings say otherwise."""
    return os.path.join(work_dir, "state")


def worker_command(
    master: str,
    *,
    slots: int,
    host: str,
    work_dir: str,
    executor_memory_mb: int,
    credentials: Credentials,
    port: int = 0,
) -> tuple[list[str], dict[str, str]]:
    """Command line and environment of a Worker with that many slots.

    Args:
        master: `spark://host:port` or `host:port`.
        executor_memory_mb: heap of the executor; the master says the same to Spark, which starts none that does not fit.
    """
    java_home = find_java()
    spark_home = str(Path(pyspark.__file__).parent)
    environment = dict(os.environ)
    environment |= {
        "JAVA_HOME": java_home,
        "SPARK_HOME": spark_home,
        "SPARK_SCALA_VERSION": "2.13",
        "SPARK_LOCAL_DIRS": work_dir,
        LOCAL_DIR: state_folder(work_dir),
        # Of the Worker's web page, which cannot be turned off; the executors inherit it and go by the name.
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_HOSTNAME": host,
        **credentials.environment(),
    }
    options = ["-Xmx192m", "-Xss512k", *class_archive.jvm_options(java_home), "-Dspark.worker.cleanup.enabled=true"]
    options += [f"-Dspark.executor.logs.rolling.{key}={value}" for key, value in _ROLLING.items()]
    options += [f"-D{key}={value}" for key, value in credentials.spark_conf().items()]
    # The certificate itself is known, whatever the host is called; Spark's launcher says so to the other JVMs.
    options.append("-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE")
    command = [
        os.path.join(java_home, "bin", "java"),
        *options,
        "-cp",
        class_archive.class_path(java_home),
        "org.apache.spark.deploy.worker.Worker",
        "--cores",
        str(slots * MAX_PIPELINED_LEVELS),
        "--memory",
        f"{executor_memory_mb}m",
        "--host",
        host,
        "--port",
        str(port),
        "--webui-port",
        "0",
        "--work-dir",
        work_dir,
        master if "://" in master else f"spark://{master}",
    ]
    return command, environment


def start_worker(
    master: str, *, slots: int, host: str, work_dir: str, executor_memory_mb: int, log: str, credentials: Credentials
) -> subprocess.Popen[bytes]:
    """Start a Worker process in a session of its own; its output goes to the file `log`.

    The system kills it when the calling *thread* ends, so that no worker outlives a JobManager that was killed.
    """
    os.makedirs(work_dir, exist_ok=True)
    setpriv = shutil.which("setpriv")
    die_with_parent = [setpriv, "--pdeathsig", "KILL"] if setpriv else []
    command, environment = worker_command(
        master,
        slots=slots,
        host=host,
        work_dir=work_dir,
        executor_memory_mb=executor_memory_mb,
        credentials=credentials,
    )
    with open(log, "ab") as out:
        return subprocess.Popen(
            [*die_with_parent, *command],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
