"""Executors on this machine that are started, and restarted when they end.

A double replaces the driver, and sleeping processes replace the executors.
"""

from __future__ import annotations

import errno
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from penstock.common.errors import NotEnoughSlots
from penstock.common.folders.owned_folder import OwnedFolder
from penstock.jobmanager.cluster import local_cluster
from penstock.jobmanager.cluster.executor import start_backoff
from penstock.jobmanager.cluster.executor.executor_process import Launch
from penstock.jobmanager.cluster.local_cluster import LocalCluster
from penstock.jobmanager.cluster.members.registry import Member, Registry
from penstock.jobmanager.cluster.spark_cluster import SparkCluster


class Driver:
    """The executors as a SparkCluster knows them: those whose processes run."""

    def __init__(self) -> None:
        self.credentials = None
        self.registry = Registry()
        self.executors: dict[str, subprocess.Popen[bytes]] = {}
        self.has_any = True

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def launch(self) -> Launch:
        return Launch(self.registry.new_executor_id(), "spark://driver", "app", [], "", {}, {})

    def _existing(self) -> set[str]:
        return {name for name, child in self.executors.items() if self.has_any and child.poll() is None}

    def executor_changes(self) -> tuple[list[Member], list[Member]]:
        return self.registry.compare_executors(self._existing())

    def wait_for_slots(self, count: int, timeout_s: float) -> set[str]:
        deadline = time.monotonic() + timeout_s
        while len(self._existing()) < count and time.monotonic() < deadline:
            time.sleep(0.01)
        return self._existing()


class Machine:
    """A machine that starts sleeping processes instead of executors."""

    def __init__(self, driver: Driver, directory: str) -> None:
        self.driver = driver
        self.directory = directory
        self.command = "sleep 60"
        self.start_times: list[float] = []
        self.failures = 0
        """The number of starts that fail from now on."""

    def start_executor(self, launch: Launch, **_: Any) -> tuple[subprocess.Popen[bytes], OwnedFolder]:
        self.start_times.append(time.monotonic())
        if self.failures > 0:
            self.failures -= 1
            raise OSError(errno.ENOSPC, "No space left on device")
        child = subprocess.Popen(["/bin/bash", "-c", self.command], stdout=subprocess.PIPE, start_new_session=True)
        self.driver.executors[launch.executor_id] = child
        return child, OwnedFolder(self.directory, "executor-")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCluster]:
    monkeypatch.setattr(local_cluster, "WATCH_S", 0.01)
    monkeypatch.setattr(local_cluster, "CHECK_INTERVAL_S", 0.02)
    monkeypatch.setattr(local_cluster, "WAIT_S", 0.02)
    monkeypatch.setattr(start_backoff, "FIRST_S", 0.1)
    made = LocalCluster(slots_per_worker=1)
    made.spark.stop()
    made.spark = cast(SparkCluster, Driver())
    made.start()
    yield made
    made.stop()


@pytest.fixture
def machine(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(cast(Driver, cluster.spark), cluster.directory)
    monkeypatch.setattr(local_cluster, "start_executor", made.start_executor)
    return made


def wait_until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_executor_that_ends_is_restarted(cluster: LocalCluster, machine: Machine) -> None:
    cluster.ensure_slots(2)
    before = cluster.workers
    wait_until(lambda: all(member.registered for member in cluster.spark.registry.members()))
    cluster.kill_worker(0)
    wait_until(lambda: cluster.workers.get(0, before[0]) != before[0])
    assert cluster.workers[1] == before[1]


def test_the_start_of_an_executor_is_retried_without_effect_on_the_others(
    cluster: LocalCluster, machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.ensure_slots(1)
    first = cluster.workers[0]
    machine.failures = 2
    cluster.ensure_slots(2, 10.0)
    assert cluster.workers[0] == first
    assert caplog.text.count("the executor of worker-1 cannot be started: [Errno 28] No space left on device") == 2
    pauses = [after - before for before, after in zip(machine.start_times[1:], machine.start_times[2:], strict=False)]
    assert pauses[0] >= 0.1
    assert pauses[1] >= 0.2


def test_a_job_that_waits_for_slots_reports_why_executors_cannot_be_started(
    cluster: LocalCluster, machine: Machine
) -> None:
    machine.failures = 1_000
    with pytest.raises(NotEnoughSlots, match=r"0 of 1 slots came up: .*worker-0 cannot be started: .*No space left"):
        cluster.ensure_slots(1, 60.0)
    machine.failures = 0
    cluster.ensure_slots(1, 10.0)


def test_a_job_that_waits_for_slots_reports_executors_that_end_before_they_register(
    cluster: LocalCluster, machine: Machine
) -> None:
    cast(Driver, cluster.spark).has_any = False
    machine.command = "exit 3"
    with pytest.raises(NotEnoughSlots, match="worker-0 ended with code 3 before it was registered with the driver"):
        cluster.ensure_slots(1, 60.0)
    # the retries continue in the background
    assert start_backoff.HOPELESS <= len(machine.start_times) <= start_backoff.HOPELESS + 2


def session_of(leader: int) -> list[str]:
    """Return the processes of the executor's session that are alive."""
    found = subprocess.run(["ps", "-o", "pid=,stat=", "-s", str(leader)], capture_output=True, text=True, check=False)
    return [line for line in found.stdout.splitlines() if "Z" not in line.split()[1]]


DAEMON = "set -m; (sleep 60 & wait) & echo; wait"
"""An executor with a child in a separate process group."""


def test_the_python_daemon_of_a_killed_executor_ends(cluster: LocalCluster, machine: Machine) -> None:
    machine.command = DAEMON
    cluster.ensure_slots(1)
    first = cluster.workers[0]
    wait_until(lambda: len(session_of(first)) == 3)
    cluster.kill_worker(0)
    wait_until(lambda: session_of(first) == [])


def test_no_process_of_a_stopped_cluster_remains(cluster: LocalCluster, machine: Machine) -> None:
    machine.command = f"trap '' TERM; {DAEMON}; wait; wait"
    cluster.ensure_slots(1)
    first = cluster.workers[0]
    wait_until(lambda: len(session_of(first)) == 3)
    cluster.stop()
    wait_until(lambda: session_of(first) == [])
