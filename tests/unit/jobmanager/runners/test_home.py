"""The check whether a job may soon regain slots on the machine whose disk has its state."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.jobmanager.cluster.members.registry import Member, Registry
from penstock.jobmanager.cluster.slot_pool import SlotPool
from penstock.jobmanager.cluster.slots import ExecutorInfo, slots_of
from penstock.jobmanager.runners.spark_runner import SparkRunner


class Cluster:
    """A cluster with two TaskManagers of two slots on separate machines, and a third one on the first machine."""

    config = SimpleNamespace(host="127.0.0.1")
    sql = None

    def __init__(self) -> None:
        self.slots = SlotPool()
        self.registry = Registry()
        self.running: dict[str, str] = {}
        for member, host in (("first", "a"), ("second", "b"), ("beside", "a")):
            self.start(member, host)

    def start(self, member: str, host: str) -> None:
        executor = self.registry.new_executor_id()
        self.registry.put(Member(member, host, 2, 0, executor))
        self.running[executor] = host

    def executors(self) -> list[ExecutorInfo]:
        return [ExecutorInfo(name, host, 0, 2) for name, host in sorted(self.running.items())]

    def all_slots(self) -> Any:
        return slots_of(self.executors())

    def workers(self) -> list[Any]:
        return []


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def runner(cluster: Cluster) -> Iterator[SparkRunner]:
    made: Any = SparkRunner(cluster)  # type: ignore[arg-type]
    yield made
    made._server.close()


def test_no_slots_are_expected_while_all_are_available(cluster: Cluster, runner: SparkRunner) -> None:
    del cluster.running["2"]
    assert not runner.expects_returning_slots()
    runner.place(3)
    assert [slot.id for slot in runner.placement] == ["0.0", "0.1", "1.0"]
    assert not runner.expects_returning_slots()


def test_a_restarted_executor_is_expected(cluster: Cluster, runner: SparkRunner) -> None:
    del cluster.running["2"]
    runner.place(2)
    del cluster.running["0"]
    assert runner.expects_returning_slots()
    cluster.start("first", "a")
    assert not runner.expects_returning_slots()
    runner.place(2)
    assert [slot.id for slot in runner.placement] == ["3.0", "3.1"]


def test_other_slots_on_the_same_machine_suffice(cluster: Cluster, runner: SparkRunner) -> None:
    runner.place(2)
    del cluster.running["0"]
    assert not runner.expects_returning_slots()
    runner.place(2)
    assert [slot.id for slot in runner.placement] == ["2.0", "2.1"]


def test_a_lost_taskmanager_is_not_expected(cluster: Cluster, runner: SparkRunner) -> None:
    del cluster.running["2"]
    cluster.registry.remove("beside")
    runner.place(2)
    del cluster.running["0"]
    cluster.registry.remove("first")
    assert not runner.expects_returning_slots()
