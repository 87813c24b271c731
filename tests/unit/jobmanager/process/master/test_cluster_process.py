"""The process that has the cluster of a master: it starts JobManagers, and tells them about the cluster. Doubles replace the driver."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.common.config import options
from penstock.common.errors import ClusterError, InvalidJob
from penstock.common.logs.log_file import LogFile
from penstock.jobmanager.cluster.logs.files import LogFiles
from penstock.jobmanager.cluster.slot_pool import SlotPool
from penstock.jobmanager.cluster.spark_access import Driver
from penstock.jobmanager.cluster.task_managers import Worker
from penstock.jobmanager.job.settings import JobSettings
from penstock.jobmanager.process import launch
from penstock.jobmanager.process.master import cluster_process
from penstock.jobmanager.process.master.cluster_process import ClusterFunctions, _Supervisor
from penstock.jobmanager.process.master.remote_cluster import CONNECTION, DriverRequest, RemoteClusterProvider
from penstock.jobmanager.process.programs.process.remote_owner import RemoteOwner
from penstock.jobmanager.process.programs.rpc import Connection
from penstock.rest.errors import NotFound

DRIVER = Driver(4711, "secret", "127.0.0.1", sys.executable, "/work")


class Cluster:
    """A SparkCluster with two slots."""

    def __init__(self) -> None:
        self.slots = SlotPool()
        self.context = self
        self.cancelled = 0

    def driver(self) -> Driver:
        return DRIVER

    def executors(self) -> list[Any]:
        return []

    def cancelAllJobs(self) -> None:  # noqa: N802 - the name is Spark's
        self.cancelled += 1


class Provider:
    """A MasterClusterProvider with one cluster."""

    def __init__(self, folder: Path) -> None:
        self.cluster = Cluster()
        self.settings: list[JobSettings] = []
        self.environments: list[str] = []
        self._log = LogFile(str(folder / "taskmanager.log"))

    def cluster_for(self, settings: JobSettings) -> Cluster:
        self.settings.append(settings)
        self.environments.append(os.environ.get("AWS_TEST_REGION", ""))
        return self.cluster

    def task_managers(self) -> list[Worker]:
        return [Worker("tm", "127.0.0.1", 1, ("0.0", "0.1"))]

    def logs(self, task_manager: str) -> LogFiles:
        self._log.write(b"a line of " + task_manager.encode() + b"\n")
        return LogFiles([self._log])

    def stacks(self, task_manager: str, question: Any, of: Any) -> list[Any]:
        return []

    def records(self, task_manager: str, question: Any) -> list[Any]:
        return []

    def readings(self, task_manager: str | None) -> str:
        return f"readings of {task_manager}"


@pytest.fixture
def provider(tmp_path: Path) -> Provider:
    return Provider(tmp_path)


def supervisor(provider: Provider, script: str, *arguments: str) -> _Supervisor:
    return _Supervisor(provider, [sys.executable, "-c", script, *arguments])  # type: ignore[arg-type]


KILLED_TWICE = """
import os, signal, sys
with open(sys.argv[1], "a") as file:
    file.write("x")
if os.path.getsize(sys.argv[1]) < 3:
    os.kill(os.getpid(), signal.SIGKILL)
sys.exit(75)
"""


def test_a_killed_jobmanager_starts_again_and_an_exit_code_ends_the_master(
    provider: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_process, "BACKOFF_S", 0.01)
    starts = tmp_path / "starts"
    assert supervisor(provider, KILLED_TWICE, str(starts)).run() == 75
    assert starts.read_text() == "xxx"


def test_a_jobmanager_that_crashes_again_and_again_ends_the_master(
    provider: Provider, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cluster_process, "BACKOFF_S", 0.01)
    assert supervisor(provider, "import os; os.kill(os.getpid(), 11)").run() == cluster_process.EXIT_CRASHED
    assert "signal 11 (SIGSEGV), 5 times in a row" in caplog.messages[-1]


def test_a_signal_ends_a_jobmanager_that_does_not_handle_it(provider: Provider) -> None:
    started = supervisor(provider, "import time; time.sleep(60)")

    def end() -> None:
        while started._child is None:
            time.sleep(0.01)
        started.end(15, None)

    thread = threading.Thread(target=end)
    thread.start()
    assert started.run() == 128 + 15
    thread.join()


@pytest.fixture
def pair(provider: Provider) -> Iterator[tuple[ClusterFunctions, RemoteClusterProvider, Connection]]:
    import socket

    here, there = socket.socketpair()
    functions = ClusterFunctions(provider, "f" * 32)  # type: ignore[arg-type]
    functions.connection = Connection(here, functions.named()).start()
    parent = Connection(there, {}).start()
    yield functions, RemoteClusterProvider(parent), parent
    parent.close()
    functions.connection.close()


Pair = tuple[ClusterFunctions, RemoteClusterProvider, Connection]


def test_a_jobmanager_reads_the_data_of_workers_from_its_parent(pair: Pair) -> None:
    _, remote, _ = pair
    assert remote.job_id() == "f" * 32
    assert remote.task_managers() == [Worker("tm", "127.0.0.1", 1, ("0.0", "0.1"))]
    assert remote.readings(None) == "readings of None"
    assert remote.readings("tm") == "readings of tm"
    logs = remote.logs("tm")
    assert [log.name for log in logs.listing()] == ["taskmanager.log"]
    assert b"a line of tm" in logs.read("taskmanager.log", 0, 1000).data
    with pytest.raises(NotFound, match=r"'other.log' does not exist"):
        logs.read("other.log", 0, 10)


def request(**environment: str) -> DriverRequest:
    return DriverRequest({"spark.some": "value", "execution.checkpointing.dir": "file:///c"}, ["/modules"], environment)


def test_the_driver_fits_the_settings_and_the_environment_of_the_program(
    pair: Pair, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, parent = pair
    monkeypatch.setenv("AWS_TEST_REGION", "old")
    assert parent.call("driver", request(AWS_TEST_REGION="new", OTHER="ignored"), result=Driver) == DRIVER
    (settings,) = provider.settings
    assert settings.python_path == ["/modules"]
    assert settings.configuration["spark.some"] == "value"
    assert settings.checkpoint_dir == "file:///c"
    assert "OTHER" not in os.environ
    parent.call("driver", request(), result=Driver)
    assert provider.environments == ["new", ""]


def test_the_slots_of_a_killed_jobmanager_are_free_and_its_tasks_are_cancelled(pair: Pair, provider: Provider) -> None:
    functions, _, parent = pair
    parent.call("driver", request(), result=Driver)
    owner, slots = RemoteOwner(parent), ["0.0", "0.1"]
    assert owner.place(1, 2, slots, {}) == slots
    assert provider.cluster.slots.available(object(), slots) == []
    functions.close(cancels_tasks=True)
    assert provider.cluster.slots.available(object(), slots) == slots
    assert provider.cluster.cancelled == 1
    with pytest.raises(ClusterError, match="has ended"):
        owner.place(2, 1, slots, {})
    with pytest.raises(ClusterError, match="has ended"):
        parent.call("driver", request(), result=Driver)


def test_jobs_with_dataframes_are_refused_with_a_remedy(pair: Pair) -> None:
    _, remote, _ = pair
    with pytest.raises(InvalidJob, match=r"from_spark.*penstock.jobmanager.keep-executors") as refused:
        remote.runner_for(1, 1, JobSettings.from_configuration({}), dataframes=True)
    assert "remove penstock.jobmanager.keep-executors" in refused.value.remedy


KEEP = {options.KEEP_EXECUTORS.key: "true"}


def test_only_a_master_that_keeps_executors_and_has_no_parent_becomes_the_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert launch.run_cluster(entry="job.py", configuration={}) is None
    monkeypatch.setenv(CONNECTION, "7")
    assert launch.run_cluster(entry="job.py", configuration=KEEP) is None


def test_kept_executors_exclude_standby_masters() -> None:
    with pytest.raises(ClusterError, match=r"keep-executors and high-availability.type exclude each other"):
        launch.run_cluster(entry="job.py", configuration=KEEP | {options.HIGH_AVAILABILITY.key: "file"})


def test_a_parent_needs_the_secret_of_the_cluster() -> None:
    with pytest.raises(ClusterError, match=r"security.spark.secret-file"):
        launch.run_cluster(entry="job.py", configuration=KEEP)


def test_a_jobmanager_without_its_parent_ends() -> None:
    import socket
    import subprocess

    here, there = socket.socketpair()
    script = (
        "from penstock.jobmanager.process.master.remote_cluster import RemoteClusterProvider; import time; "
        "RemoteClusterProvider.connect(); time.sleep(60)"
    )
    with there:
        child = subprocess.Popen(
            [sys.executable, "-c", script],
            pass_fds=(there.fileno(),),
            env={**os.environ, CONNECTION: str(there.fileno())},
        )
    here.close()
    assert child.wait(50) == 70
