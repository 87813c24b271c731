"""An executor: the JVM in which all slots of a TaskManager are. The TaskManager's process starts it.

It registers with the driver by itself, as an executor of Spark's that proves to have the cluster's secret. What the driver
has to say to it before that is in its `Launch`; what belongs to the machine, as the place of Java and of the files that TLS
reads, is found here.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import msgspec

from penstock.common.folders.owned_folder import OwnedFolder
from penstock.jobmanager.cluster.credentials import Credentials
from penstock.jobmanager.cluster.jvm import class_archive
from penstock.jobmanager.cluster.jvm.installation import spark_home
from penstock.jobmanager.cluster.jvm.java import find_java
from penstock.jobmanager.cluster.python_daemon import beside_a_warm_daemon
from penstock.jobmanager.cluster.slots import MAX_PIPELINED_LEVELS
from penstock.taskmanager.local_state.folders import LOCAL_DIR, STATE_DIR

_ONLY_WARNINGS = "-Dlog4j2.level=WARN"
"""Else it writes half a dozen lines for each task."""
_LIBRARIES = "LD_LIBRARY_PATH"


class Launch(msgspec.Struct, frozen=True):
    """An executor that is to be started: whose it is, and what the driver wants it to have."""

    executor_id: str
    driver_url: str
    app_id: str
    java_options: list[str]
    class_path: str
    """What goes before Spark's."""
    properties: dict[str, str]
    """Settings that it needs before it can ask the driver for the others."""
    environment: dict[str, str]
    """Of the executor and its Python workers."""
    python: str = ""
    """Of its Python workers, which is made warm while the JVM starts; empty: they start when the first task needs one."""
    library_path: str = ""
    """What goes before the machine's `LD_LIBRARY_PATH`."""

    def own_java_options(self) -> list[str]:
        """With the ids where Spark's documentation has it put them."""
        ids = {"{{APP_ID}}": self.app_id, "{{EXECUTOR_ID}}": self.executor_id}
        options = self.java_options
        for name, value in ids.items():
            options = [option.replace(name, value) for option in options]
        return options


def state_folder(work_dir: str) -> str:
    """Below which the slots of a TaskManager keep files of their state, unless settings say otherwise."""
    return os.path.join(work_dir, "state")


def executor_command(
    launch: Launch,
    *,
    slots: int,
    host: str,
    work_dir: str,
    folder: str,
    heap_mb: int,
    credentials: Credentials,
    state_dir: str = "",
) -> tuple[list[str], dict[str, str]]:
    """Command line and environment of an executor with that many slots.

    Args:
        host: by which others reach it.
        work_dir: of its TaskManager.
        folder: where it works itself.
        state_dir: where slots keep files of their state; its TaskManager's, unless several share one.
    """
    java_home = find_java()
    environment = dict(os.environ)
    environment |= launch.environment
    environment |= {
        "JAVA_HOME": java_home,
        "SPARK_HOME": str(spark_home()),
        "SPARK_SCALA_VERSION": "2.13",
        "SPARK_LOCAL_DIRS": folder,
        LOCAL_DIR: state_folder(work_dir),
        STATE_DIR: state_dir,
        "SPARK_LOCAL_HOSTNAME": host,
        **credentials.environment(),
    }
    if launch.library_path:
        environment[_LIBRARIES] = os.pathsep.join(filter(None, (launch.library_path, environment.get(_LIBRARIES))))
    properties = launch.properties | credentials.spark_conf()
    command = [
        os.path.join(java_home, "bin", "java"),
        f"-Xmx{heap_mb}m",
        *class_archive.jvm_options(java_home),
        *class_archive.SMALL,
        _ONLY_WARNINGS,
        *launch.own_java_options(),
        *(f"-D{key}={value}" for key, value in properties.items()),
        # The certificate itself is known, whatever the host is called; Spark's launcher says so to the driver.
        "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
        *("-cp", os.pathsep.join(filter(None, (launch.class_path, class_archive.class_path(java_home))))),
        "org.apache.spark.executor.CoarseGrainedExecutorBackend",
        *("--driver-url", launch.driver_url),
        *("--executor-id", launch.executor_id),
        *("--hostname", host),
        *("--cores", str(slots * MAX_PIPELINED_LEVELS)),
        *("--app-id", launch.app_id),
        *("--resourceProfileId", "0"),
    ]
    return command, environment


def start_executor(
    launch: Launch,
    *,
    slots: int,
    host: str,
    work_dir: str,
    heap_mb: int,
    credentials: Credentials,
    state_dir: str = "",
) -> tuple[subprocess.Popen[bytes], OwnedFolder]:
    """Start it in a session of its own; what it and its Python workers write is in the process's `stdout`.

    The system kills it when the calling *thread* ends, so that no executor outlives a TaskManager that was killed.

    Returns:
        The process, and the folder where it works: of no use to anybody when it has ended. The next executor in `work_dir`
        removes those that nobody could remove.
    """
    folder = OwnedFolder(work_dir, "executor-", f"{launch.app_id}-{launch.executor_id}-")
    try:
        process = _start(
            *executor_command(
                launch,
                slots=slots,
                host=host,
                work_dir=work_dir,
                folder=folder.path,
                heap_mb=heap_mb,
                credentials=credentials,
                state_dir=state_dir,
            ),
            folder.path,
            launch.python,
        )
    except BaseException:
        folder.remove()
        raise
    return process, folder


def _start(command: list[str], environment: dict[str, str], folder: str, python: str) -> subprocess.Popen[bytes]:
    setpriv = shutil.which("setpriv")
    die_with_parent = [setpriv, "--pdeathsig", "KILL"] if setpriv else []

    def start(command: list[str], **more: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*die_with_parent, *command],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            **more,
        )

    if not python:
        return start(command, env=environment)
    process: subprocess.Popen[bytes] = beside_a_warm_daemon(command, environment, folder, python, start)
    return process


def kill_session(session: int) -> None:
    """SIGKILL every process of a session, where the system tells which they are. Python daemons have groups of their own."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                os.kill(int(folder.name), signal.SIGKILL)
        except (OSError, IndexError):
            continue  # it has just ended
