"""The cluster of a JobManager whose parent process has the driver and the connections of the workers (`cluster_process`)."""

from __future__ import annotations

import logging
import os
import socket
import threading
from typing import Any

import msgspec

from penstock.common.config import options
from penstock.common.errors import InvalidJob
from penstock.common.logs.log_file import LogPart
from penstock.common.stacks.edge_records import EdgeQuestion, EdgeRecord
from penstock.common.stacks.listener import Question
from penstock.common.stacks.sampling import Place, Sample
from penstock.jobmanager.cluster.attached_cluster import AttachedCluster
from penstock.jobmanager.cluster.logs.files import LogSource
from penstock.jobmanager.cluster.spark_access import Driver
from penstock.jobmanager.cluster.task_managers import Worker
from penstock.jobmanager.job.settings import JobSettings
from penstock.jobmanager.process.master.master_cluster import READ_BY_DRIVERS, check_deployable, environment_of_drivers
from penstock.jobmanager.process.programs.process.remote_owner import RemoteOwner
from penstock.jobmanager.process.programs.rpc import Connection
from penstock.jobmanager.runners.pipelined_runner import create_runner
from penstock.jobmanager.runners.runner import Runner
from penstock.rest import facts

CONNECTION = "PENSTOCK_CLUSTER_CONNECTION"
"""Environment variable of a JobManager with a parent: file descriptor of the connection."""
_LOST = 70
"""Exit code after the loss of the parent: EX_SOFTWARE of sysexits.h."""

logger = logging.getLogger(__name__)


class DriverRequest(msgspec.Struct):
    """Properties of a job that its driver depends on."""

    configuration: dict[str, str]
    python_path: list[str]
    environment: dict[str, str]
    """Environment variables that a driver reads. The program may have set some of them."""

    def set_environment(self) -> None:
        """Give this process the environment variables for the driver."""
        for name in environment_of_drivers():
            if name not in self.environment:
                del os.environ[name]
        os.environ.update({k: v for k, v in self.environment.items() if k.startswith(READ_BY_DRIVERS)})


class RemoteClusterProvider:
    """Provider of the parent's cluster. `session.ClusterProvider` describes the methods."""

    def __init__(self, parent: Connection) -> None:
        self._parent = parent
        self._attaching = threading.Lock()
        self._cluster: AttachedCluster | None = None

    @classmethod
    def connect(cls) -> RemoteClusterProvider:
        """Connect to the parent. This process ends when the parent has ended, because the driver has ended too."""
        peer = socket.socket(fileno=int(os.environ.pop(CONNECTION)))
        peer.set_inheritable(False)
        os.register_at_fork(
            after_in_child=peer.close
        )  # a process that the program forks must not keep the connection open
        return cls(Connection(peer, {}, _end_process).start())

    def begin(self, entry: str) -> None:
        """Do nothing, because the parent has started the driver."""

    def job_id(self) -> str:
        """Return the id of a job whose command line has no id."""
        return str(self._parent.call("job_id", result=str))

    def runner_for(self, slots: int, levels: int, settings: JobSettings, *, dataframes: bool) -> Runner:
        check_deployable(settings)
        if dataframes:
            raise InvalidJob(
                f"from_spark and to_spark need the driver in the JobManager's process, but {options.KEEP_EXECUTORS.key} is true",
                remedy=f"remove {options.KEEP_EXECUTORS.key}",
            )
        request = DriverRequest(settings.configuration, settings.python_path, environment_of_drivers())
        with self._attaching:
            driver = self._parent.call("driver", request, result=Driver)
            if self._cluster is None:
                cluster = AttachedCluster(driver, RemoteOwner(self._parent))
                cluster.attach()
                self._cluster = cluster
        return create_runner(self._cluster, pipelined=settings.uses_pipelined(dataframes=False), levels=levels)

    def task_managers(self) -> list[Worker]:
        found: list[Worker] = self._parent.call("task_managers", result=list[Worker])
        return found

    def logs(self, task_manager: str) -> LogSource:
        return _ParentLogs(self._parent, task_manager)

    def stacks(self, task_manager: str, question: Question, of: Place) -> list[Sample]:
        found: list[Sample] = self._parent.call("stacks", task_manager, question, of, result=list[Sample])
        return found

    def records(self, task_manager: str, question: EdgeQuestion) -> list[EdgeRecord]:
        found: list[EdgeRecord] = self._parent.call("records", task_manager, question, result=list[EdgeRecord])
        return found

    def readings(self, task_manager: str | None) -> str:
        return str(self._parent.call("readings", task_manager, result=str))

    def stop(self) -> None:
        """Leave the cluster, which the parent stops."""
        if self._cluster is not None:
            self._cluster.detach()


class _ParentLogs:
    """Logs of a TaskManager, which the parent reads."""

    def __init__(self, parent: Connection, task_manager: str) -> None:
        self._parent, self._task_manager = parent, task_manager

    def listing(self) -> list[facts.LogFile]:
        found: list[facts.LogFile] = self._parent.call("log_listing", self._task_manager, result=list[facts.LogFile])
        return found

    def read(self, name: str, start: int, most: int) -> LogPart:
        part: LogPart = self._parent.call("read_log", self._task_manager, name, start, most, result=LogPart)
        return part


def _end_process() -> Any:
    logger.critical("the parent process, which has the driver, has ended; this process ends too")
    logging.shutdown()
    os._exit(_LOST)
