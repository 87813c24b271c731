"""Logs of a TaskManager, and records of its tasks, that are read over its connection to the master."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, cast

import pytest

from penstock.common.logs.log_file import LogFile
from penstock.common.stacks.edge_records import EdgeQuestion, EdgeRecord
from penstock.common.stacks.listener import listen
from penstock.common.stacks.sampling import nowhere
from penstock.jobmanager.cluster.executor.executor_process import Launch
from penstock.jobmanager.cluster.logs import requests as log_requests
from penstock.jobmanager.cluster.logs.files import LogFiles
from penstock.jobmanager.cluster.members import pending_requests
from penstock.jobmanager.cluster.resource_manager import ResourceManager
from penstock.jobmanager.process.worker.master_link import Child
from penstock.jobmanager.process.worker.worker_process import WorkerProcess
from penstock.rest.errors import NotFound, Unavailable
from tests.unit.jobmanager.cluster.manager_door import SECRET, Driver

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
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
def master(log: LogFile, tmp_path: Path) -> Iterator[ResourceManager]:
    """Start a resource manager with one worker that has the given log."""
    driver = Driver()
    server = ResourceManager("127.0.0.1", 0, cast("SparkCluster", driver))
    server.start()
    worker = WorkerProcess(server.address, SECRET, 1, 2**29, start, logs=LogFiles([log]), stacks=f"{tmp_path}/stacks")
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


def test_records_on_an_edge_come_from_the_python_workers_of_the_taskmanager(
    master: ResourceManager, tmp_path: Path
) -> None:
    questions = []

    def records(question: EdgeQuestion) -> Generator[list[EdgeRecord], None, None]:
        questions.append(question)
        yield [EdgeRecord(n, 2, f"{n} {'x' * 1990}", timestamp=n, key="'k'") for n in range(100)]

    listen(f"{tmp_path}/stacks", nowhere, records)
    question = EdgeQuestion("job", "uid", "side", count=100, seconds=0.1)
    found = master.records(only_worker(master), question)
    assert questions == [question]
    assert found[-1] == EdgeRecord(99, 2, f"99 {'x' * 1990}", 99, "'k'")
    assert 50 < len(found) < 100, "the answer has a limited size and keeps the newest records"
    assert [record.seen_at for record in found] == list(range(100 - len(found), 100))


def test_a_taskmanager_without_python_workers_has_no_records(master: ResourceManager) -> None:
    assert master.records(only_worker(master), EdgeQuestion("job", "uid", seconds=0.1)) == []
