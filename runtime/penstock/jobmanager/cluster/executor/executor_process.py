"""An executor: the JVM with all slots of a TaskManager. The TaskManager's process starts it.

The executor registers with the driver as a Spark executor that has the cluster's secret. `Launch` contains the settings of the driver that
the executor needs before the registration. Machine-specific settings, such as the location of Java and of the TLS files, are determined
here.
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
from penstock.jobmanager.cluster.python_daemon import start_with_warm_daemon
from penstock.jobmanager.cluster.slots import MAX_PIPELINED_LEVELS
from penstock.taskmanager.local_state.folders import LOCAL_DIR, STATE_DIR

_ONLY_WARNINGS = "-Dlog4j2.level=WARN"
"""Log level of the JVM. Without it, the JVM logs about six lines for each task."""
_LIBRARIES = "LD_LIBRARY_PATH"


class Launch(msgspec.Struct, frozen=True):
    """Settings of an executor that is to be started: its cluster and the driver's settings for it."""

    executor_id: str
    driver_url: str
    app_id: str
    java_options: list[str]
    class_path: str
    """Class path entries before Spark's."""
    properties: dict[str, str]
    """Settings that the executor needs before it can request the other settings from the driver."""
    environment: dict[str, str]
    """Environment of the executor and its Python workers."""
    python: str = ""
    """Interpreter of its Python workers, for a daemon that starts together with the JVM. If it is empty, the daemon starts with the first
    task.
    """
    library_path: str = ""
    """Prefix of the machine's `LD_LIBRARY_PATH`."""

    def own_java_options(self) -> list[str]:
        """Return the Java options, with the ids in place of the variables that Spark's documentation defines."""
        ids = {"{{APP_ID}}": self.app_id, "{{EXECUTOR_ID}}": self.executor_id}
        options = self.java_options
        for name, value in ids.items():
            options = [option.replace(name, value) for option in options]
        return options


def state_folder(work_dir: str) -> str:
    """Return the default directory for the state files of a TaskManager's slots."""
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
    """Return the command line and the environment of an executor.

    Args:
        host: address of the executor for other processes.
        work_dir: working directory of its TaskManager.
        folder: working directory of the executor.
        state_dir: directory for the state files of slots. Default: the TaskManager's directory. Several TaskManagers
            may share a directory.
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
        # The certificate itself is pinned, so the host name is not verified. Spark's launcher sets the same option for the driver.
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
    """Start an executor in a new session. The process's `stdout` contains the output of the executor and of its Python workers.

    The system kills the executor when the calling *thread* ends, so no executor outlives a TaskManager that is killed.

    Returns:
        The process and its working directory. The directory is not needed after the process ends. The next executor in `work_dir`
        removes directories that were left behind.
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
    process: subprocess.Popen[bytes] = start_with_warm_daemon(command, environment, folder, python, start)
    return process


def kill_session(session: int) -> None:
    """SIGKILL every process of a session, if the system can list them. Python daemons have separate process groups."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                os.kill(int(folder.name), signal.SIGKILL)
        except (OSError, IndexError):
            continue  # the process has just ended
