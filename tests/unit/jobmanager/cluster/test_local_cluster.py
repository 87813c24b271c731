"""Executors on this machine are started, and again when they end. The driver is a double, executors are processes that sleep."""

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
from penstock.jobmanager.cluster.executor import start_brake
from penstock.jobmanager.cluster.executor.executor_process import Launch
from penstock.jobmanager.cluster.local_cluster import LocalCluster
from penstock.jobmanager.cluster.members.registry import Member, Registry
from penstock.jobmanager.cluster.spark_cluster import SparkCluster


class Driver:
    """What a SparkCluster knows of its executors: it has those whose processes run."""

    def __init__(self) -> None:
        self.credentials = None
        self.registry = Registry()
        self.executors: dict[str, subprocess.Popen[bytes]] = {}
        self.has_any = True

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def launch(self) -> Launch:
        return Launch(self.registry.new_executor_id(), "spark://driver", "app", [], "", {}, {})

    def _there(self) -> set[str]:
        return {name for name, child in self.executors.items() if self.has_any and child.poll() is None}

    def look(self) -> tuple[list[Member], list[Member]]:
        return self.registry.seen(self._there())

    def wait_for_slots(self, count: int, timeout_s: float) -> set[str]:
        deadline = time.monotonic() + timeout_s
        while len(self._there()) < count and time.monotonic() < deadline:
            time.sleep(0.01)
        return self._there()


class Machine:
    """Starts processes in the place of executors."""

    def __init__(self, driver: Driver, directory: str) -> None:
        self.driver = driver
        self.directory = directory
        self.command = "sleep 60"
        self.asked: list[float] = []
        self.failures = 0
        """So many starts fail from now on."""

    def start_executor(self, launch: Launch, **_: Any) -> tuple[subprocess.Popen[bytes], OwnedFolder]:
        self.asked.append(time.monotonic())
        if self.failures > 0:
            self.failures -= 1
            raise OSError(errno.ENOSPC, "No space left on device")
        child = subprocess.Popen(["/bin/bash", "-c", self.command], stdout=subprocess.PIPE, start_new_session=True)
        self.driver.executors[launch.executor_id] = child
        return child, OwnedFolder(self.directory, "executor-")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCluster]:
    monkeypatch.setattr(local_cluster, "WATCH_S", 0.01)
    monkeypatch.setattr(local_cluster, "LOOK_S", 0.02)
    monkeypatch.setattr(local_cluster, "WAIT_S", 0.02)
    monkeypatch.setattr(start_brake, "FIRST_S", 0.1)
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


def test_an_executor_that_ends_is_started_again(cluster: LocalCluster, machine: Machine) -> None:
    cluster.ensure_slots(2)
    before = cluster.workers
    wait_until(lambda: all(member.registered for member in cluster.spark.registry.members()))
    cluster.kill_worker(0)
    wait_until(lambda: cluster.workers.get(0, before[0]) != before[0])
    assert cluster.workers[1] == before[1]


def test_an_executor_that_cannot_be_started_is_tried_again_and_leaves_the_others_alone(
    cluster: LocalCluster, machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.ensure_slots(1)
    first = cluster.workers[0]
    machine.failures = 2
    cluster.ensure_slots(2, 10.0)
    assert cluster.workers[0] == first
    assert caplog.text.count("the executor of worker-1 cannot be started: [Errno 28] No space left on device") == 2
    pauses = [after - before for before, after in zip(machine.asked[1:], machine.asked[2:], strict=False)]
    assert pauses[0] >= 0.1
    assert pauses[1] >= 0.2


def test_who_waits_for_slots_is_told_why_executors_cannot_be_started(cluster: LocalCluster, machine: Machine) -> None:
    machine.failures = 1_000
    with pytest.raises(NotEnoughSlots, match=r"0 of 1 slots came up: .*worker-0 cannot be started: .*No space left"):
        cluster.ensure_slots(1, 60.0)
    machine.failures = 0
    cluster.ensure_slots(1, 10.0)


def test_who_waits_for_slots_is_told_that_executors_end_before_the_driver_has_them(
    cluster: LocalCluster, machine: Machine
) -> None:
    cast(Driver, cluster.spark).has_any = False
    machine.command = "exit 3"
    with pytest.raises(NotEnoughSlots, match="worker-0 ended with code 3 before the driver had it"):
        cluster.ensure_slots(1, 60.0)
    assert start_brake.HOPELESS <= len(machine.asked) <= start_brake.HOPELESS + 2  # it goes on meanwhile


def session_of(leader: int) -> list[str]:
    """Processes of the executor's session that are alive."""
    found = subprocess.run(["ps", "-o", "pid=,stat=", "-s", str(leader)], capture_output=True, text=True, check=False)
    return [line for line in found.stdout.splitlines() if "Z" not in line.split()[1]]


DAEMON = "set -m; (sleep 60 & wait) & echo; wait"
"""An executor with a child in a group of its own."""


def test_with_an_executor_that_is_killed_its_python_daemon_ends(cluster: LocalCluster, machine: Machine) -> None:
    machine.command = DAEMON
    cluster.ensure_slots(1)
    first = cluster.workers[0]
    wait_until(lambda: len(session_of(first)) == 3)
    cluster.kill_worker(0)
    wait_until(lambda: session_of(first) == [])


def test_no_process_is_left_of_a_cluster_that_has_stopped(cluster: LocalCluster, machine: Machine) -> None:
    machine.command = f"trap '' TERM; {DAEMON}; wait; wait"
    cluster.ensure_slots(1)
    first = cluster.workers[0]
    wait_until(lambda: len(session_of(first)) == 3)
    cluster.stop()
    wait_until(lambda: session_of(first) == [])
