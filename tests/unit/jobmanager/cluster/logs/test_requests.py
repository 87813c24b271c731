"""Logs of a TaskManager that are read over its connection to the master."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, cast

import pytest

from penstock.common.logs.log_file import LogFile
from penstock.jobmanager.cluster.executor.executor_process import Launch
from penstock.jobmanager.cluster.logs import requests as log_requests
from penstock.jobmanager.cluster.logs.files import LogFiles
from penstock.jobmanager.cluster.members import pending_requests
from penstock.jobmanager.cluster.resource_manager import ResourceManager
from penstock.jobmanager.process.worker.worker_process import Child, WorkerProcess
from penstock.rest.errors import NotFound, Unavailable
from tests.unit.jobmanager.cluster.test_resource_manager import SECRET, Driver

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.jobmanager.cluster.spark_cluster import SparkCluster


class Idle:
    """An executor that does nothing."""

    pid = -1

    def __init__(self) -> None:
        self._code: int | None = None

    def poll(self) -> int | None:
        return self._code

    def terminate(self) -> None:
        self._code = 0

    def wait(self, timeout: float | None = None) -> int:
        return 0


def start(launch: Launch, host: str) -> Child:
    return Idle()


@pytest.fixture
def log(tmp_path: Path) -> LogFile:
    return LogFile(str(tmp_path / "taskmanager.log"))


@pytest.fixture
def master(log: LogFile) -> Iterator[ResourceManager]:
    """Start a resource manager with one worker that has the given log."""
    driver = Driver()
    server = ResourceManager("127.0.0.1", 0, cast("SparkCluster", driver))
    server.start()
    worker = WorkerProcess(server.address, SECRET, 1, 2**29, start, logs=LogFiles([log]))
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 20
    while not driver.registry.members():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    yield server
    worker.end()
    thread.join(20)
    server.close()


def only_worker(master: ResourceManager) -> str:
    return master._spark.registry.members()[0].id


def test_logs_are_listed_and_read_on_their_worker(master: ResourceManager, log: LogFile) -> None:
    log.write(b"one\ntwo\n")
    logs = master.logs(only_worker(master))
    assert [(file.name, file.size) for file in logs.listing()] == [("taskmanager.log", 8)]
    assert logs.read("taskmanager.log", 0, 100).data == b"one\ntwo\n"
    assert logs.read("taskmanager.log", 4, 100).data == b"two\n"


def test_a_long_log_is_read_in_parts(master: ResourceManager, log: LogFile) -> None:
    text = b"0123456789abcde\n" * 40_000
    log.write(text)
    logs, found = master.logs(only_worker(master)), b""
    while (part := logs.read("taskmanager.log", len(found), 1 << 30)).data:
        found += part.data
    assert found == text


def test_a_missing_log_is_not_found(master: ResourceManager) -> None:
    with pytest.raises(NotFound, match=r"the log 'x' does not exist; existing logs: taskmanager\.log"):
        master.logs(only_worker(master)).read("x", 0, 100)


def test_logs_of_a_lost_or_silent_worker_are_unavailable(
    master: ResourceManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Unavailable, match="disconnected"):
        master.logs("another").listing()
    monkeypatch.setattr(pending_requests, "PATIENCE_S", 0.05)
    with pytest.raises(Unavailable, match="has not responded"):
        log_requests.RemoteLogs(pending_requests.PendingRequests(), lambda question: True).listing()
