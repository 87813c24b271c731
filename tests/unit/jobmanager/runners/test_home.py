"""Whether a job may soon have slots again on the machine whose disk has its state."""

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
    """Two TaskManagers of two slots, each on a machine of its own, and one more on the first's."""

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


def test_nothing_is_expected_while_all_are_there(cluster: Cluster, runner: SparkRunner) -> None:
    del cluster.running["2"]
    assert not runner.expects_home()
    runner.place(3)
    assert [slot.id for slot in runner.placement] == ["0.0", "0.1", "1.0"]
    assert not runner.expects_home()


def test_an_executor_that_is_started_again_is(cluster: Cluster, runner: SparkRunner) -> None:
    del cluster.running["2"]
    runner.place(2)
    del cluster.running["0"]
    assert runner.expects_home()
    cluster.start("first", "a")
    assert not runner.expects_home()
    runner.place(2)
    assert [slot.id for slot in runner.placement] == ["3.0", "3.1"]


def test_others_on_the_same_machine_will_do(cluster: Cluster, runner: SparkRunner) -> None:
    runner.place(2)
    del cluster.running["0"]
    assert not runner.expects_home()
    runner.place(2)
    assert [slot.id for slot in runner.placement] == ["2.0", "2.1"]


def test_a_taskmanager_that_is_gone_is_not_waited_for(cluster: Cluster, runner: SparkRunner) -> None:
    del cluster.running["2"]
    cluster.registry.remove("beside")
    runner.place(2)
    del cluster.running["0"]
    cluster.registry.remove("first")
    assert not runner.expects_home()
