"""The process of a master that keeps its cluster when the JobManager dies (`penstock.jobmanager.keep-executors`).

This process has the driver and the connections of the workers. It runs no code of the program. The JobManager is a child process with the
same command line, and uses the cluster over a connection (`remote_cluster`). If a signal ends the JobManager, this process starts it again.
The driver and the executors keep running. The new JobManager claims the next leader epoch, like any other JobManager that starts.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from penstock.common.configuration import Configuration
from penstock.common.errors import ClusterError
from penstock.common.job_id import JobID
from penstock.common.logs.log_file import LogPart
from penstock.common.logs.log_format import record_format
from penstock.common.logs.log_settings import LogSettings
from penstock.common.logs.redaction import Redaction
from penstock.jobmanager.cluster.spark_access import Driver
from penstock.jobmanager.cluster.spark_cluster import SharedCluster, SparkCluster
from penstock.jobmanager.job.settings import JobSettings
from penstock.jobmanager.process.master.master_cluster import MasterClusterProvider
from penstock.jobmanager.process.master.remote_cluster import CONNECTION, DriverRequest
from penstock.jobmanager.process.programs.cluster_service import SlotService
from penstock.jobmanager.process.programs.rpc import Connection
from penstock.jobmanager.process.programs.running_program import exit_text
from penstock.rest import facts

CRASHES = 5
"""Number of crashes in a row after which this process ends. A new container can then run the job."""
STEADY_S = 60.0
"""Time in seconds after which an earlier crash no longer counts."""
BACKOFF_S = 1.0
"""Pause in seconds before the third start. The first crash has no pause, and each further pause is twice as long."""
END_S = 60.0
"""Time in seconds for the JobManager to end after a second signal."""
EXIT_CRASHED = 70
"""Exit code after too many crashes: EX_SOFTWARE of sysexits.h."""

logger = logging.getLogger(__name__)


def run_cluster_process(settings: Configuration, entry: str, command: list[str] | None = None) -> int:
    """Start the cluster and the JobManager. Return the exit code of the JobManager when it has ended by itself.

    Args:
        entry: entry of the program that will use the driver.
        command: command of the JobManager. None means the command of this process.
    """
    log = LogSettings.from_configuration(settings)
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(record_format(log.format, Redaction.of(settings.to_dict())))
    logging.basicConfig(handlers=[handler], force=True)
    log.apply_levels()
    provider = MasterClusterProvider(settings)
    supervisor = _Supervisor(provider, command or [sys.executable, *sys.orig_argv[1:]])
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, supervisor.end)
    provider.begin(entry)
    try:
        return supervisor.run()
    finally:
        provider.stop()


class _Supervisor:
    """Parent of one JobManager after the other."""

    def __init__(self, provider: MasterClusterProvider, command: list[str]) -> None:
        self._provider, self._command = provider, command
        self._environment = dict(os.environ)
        """Environment of the JobManager. `ClusterFunctions` may change the environment of this process."""
        self._job_id = JobID.generate().digits
        self._child: subprocess.Popen[bytes] | None = None
        self._ending: list[int] = []
        """Signals that this process has received."""

    def end(self, number: int, frame: object) -> None:
        """Pass a signal to the JobManager, which suspends its job."""
        self._ending.append(number)
        child = self._child
        if child is not None:
            with suppress(ProcessLookupError):
                child.send_signal(number)

    def run(self) -> int:
        crashes = 0
        while True:
            started = time.monotonic()
            code = self._run_jobmanager()
            if code >= 0 or self._ending:
                return code if code >= 0 else 128 - code
            crashes = 1 if time.monotonic() - started > STEADY_S else crashes + 1
            if crashes >= CRASHES:
                logger.critical(
                    "the JobManager has ended with %s, %d times in a row; this process ends too",
                    exit_text(code),
                    crashes,
                )
                return EXIT_CRASHED
            logger.error(
                "the JobManager has ended with %s. It starts again, and the workers keep their executors",
                exit_text(code),
            )
            if crashes > 1 and _pause(BACKOFF_S * 2 ** (crashes - 2), lambda: bool(self._ending)):
                return 128 - code

    def _run_jobmanager(self) -> int:
        """Run a JobManager until it ends. Return its exit code. A negative code is a signal."""
        here, there = socket.socketpair()
        functions = ClusterFunctions(self._provider, self._job_id)
        connection = functions.connection = Connection(here, functions.named())
        with there:
            child = self._child = subprocess.Popen(
                self._command,
                env={**self._environment, CONNECTION: str(there.fileno())},
                pass_fds=(there.fileno(),),
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # a terminal sends its signals to this process only, which passes them on
            )
        if self._ending:
            self.end(self._ending.pop(), None)
        connection.start()
        code = child.wait()
        self._child = None
        connection.close()
        functions.close(cancels_tasks=code < 0)
        return code


class ClusterFunctions:
    """Functions of the cluster's process for one JobManager."""

    def __init__(self, provider: MasterClusterProvider, job_id: str) -> None:
        self._provider, self._job_id = provider, job_id
        self._lock = threading.Lock()
        self._cluster: SparkCluster | None = None
        self._slots: SlotService | None = None
        self._is_closed = False
        self.connection: Connection

    def named(self) -> dict[str, Callable[..., Any]]:
        """Return the functions that a JobManager may call at once, by name. `driver` adds the functions of `SlotService`."""
        own = (self.job_id, self.driver, self.log_listing, self.read_log)
        of_provider = (
            self._provider.task_managers,
            self._provider.stacks,
            self._provider.records,
            self._provider.readings,
        )
        return {function.__name__: function for function in (*own, *of_provider)}

    def job_id(self) -> str:
        """Return the id of a job whose command line has no id. It is the same in each start of the JobManager."""
        return self._job_id

    def driver(self, request: DriverRequest) -> Driver:
        """Return a driver that fits the job. Restart the driver if it was started early for another job."""
        settings = replace(JobSettings.from_configuration(request.configuration), python_path=request.python_path)
        with self._lock:
            if self._is_closed:
                raise ClusterError("the JobManager that asks for the driver has ended")
            request.set_environment()
            cluster = self._provider.cluster_for(settings)
            if cluster is not self._cluster:
                self._cluster, self._slots = cluster, SlotService(SharedCluster(cluster))
                self.connection.add(self._slots.functions())
            return cluster.driver()

    def log_listing(self, task_manager: str) -> list[facts.LogFile]:
        return self._provider.logs(task_manager).listing()

    def read_log(self, task_manager: str, name: str, start: int, most: int) -> LogPart:
        return self._provider.logs(task_manager).read(name, start, most)

    def close(self, *, cancels_tasks: bool) -> None:
        """Release the slots of a JobManager that has ended. Cancel its Spark jobs if it was killed, because it could not end them."""
        with self._lock:
            self._is_closed = True
        if self._cluster is None or self._slots is None:
            return
        if cancels_tasks:
            try:
                self._cluster.context.cancelAllJobs()
            except Exception as error:  # the driver may have ended
                logger.warning("the tasks of the JobManager were not cancelled: %s", error)
        self._slots.release_all()


def _pause(seconds: float, is_ending: Callable[[], bool]) -> bool:
    """Wait, at most until the end of this process. Return whether the process ends."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not is_ending():
        time.sleep(0.05)
    return is_ending()
