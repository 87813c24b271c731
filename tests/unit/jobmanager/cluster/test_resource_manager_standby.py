"""A resource manager whose master is on standby."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from penstock.jobmanager.cluster import resource_manager
from penstock.jobmanager.cluster.members.registration import (
    AskWarm,
    Beat,
    Ended,
    Follows,
    Leads,
    OnStandby,
    Running,
)
from tests.unit.jobmanager.cluster.manager_door import Door, wait_until


@pytest.fixture
def standby(monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    """A master on standby."""
    monkeypatch.setattr(resource_manager, "SHORT_CHECK_INTERVAL_S", 0.02)
    monkeypatch.setattr(resource_manager, "CHECK_INTERVAL_S", 0.05)
    made = Door("b")
    yield made
    made.server.close()


class TestStandby:
    """A master that does not lead yet."""

    def test_it_assigns_an_executor_only_on_request_and_reserves_its_slots(self, standby: Door) -> None:
        visitor = standby.come()
        assert visitor.receive() == OnStandby("b")
        assert visitor.connection.poll(0.3) is None
        visitor.send_message(AskWarm())
        executor = visitor.started()
        assert standby.driver.registry.reserved_executors() == {executor}
        standby.driver.there = {executor}
        assert visitor.receive() == Running(executor)
        wait_until(lambda: standby.warm == [executor])
        assert standby.driver.registry.reserved_executors() == {executor}

    def test_its_slots_are_free_when_the_worker_follows_it(self, standby: Door) -> None:
        visitor = standby.come()
        visitor.receive()
        visitor.send_message(AskWarm())
        executor = visitor.started()
        standby.driver.there = {executor}
        assert visitor.receive() == Running(executor)
        standby.server.lead(7)
        assert visitor.receive() == Leads("b", 7)
        time.sleep(0.2)
        assert standby.driver.registry.reserved_executors() == {executor}, "its worker still follows another master"
        visitor.send_message(Follows())
        wait_until(lambda: not standby.driver.registry.reserved_executors())
        [member] = standby.driver.registry.members()
        assert (member.executor, member.registered) == (executor, True)
        assert visitor.connection.poll(0.3) is None, "the warm executor stays"

    def test_a_worker_without_a_warm_executor_gets_one_when_it_follows(self, standby: Door) -> None:
        visitor = standby.come()
        visitor.receive()
        standby.server.lead(7)
        assert visitor.receive() == Leads("b", 7)
        assert visitor.connection.poll(0.2) is None
        visitor.send_message(Follows())
        executor = visitor.started()
        assert standby.driver.registry.reserved_executors() == set()
        assert standby.driver.registry.members()[0].executor == executor
        late = standby.come("late")
        assert late.receive() == Leads("b", 7)
        late.send_message(Follows())
        late.started()
        assert standby.warm == []

    def test_a_worker_cannot_follow_a_standby(self, standby: Door) -> None:
        visitor = standby.come()
        visitor.receive()
        visitor.send_message(Follows())
        visitor.send_message(AskWarm())
        executor = visitor.started()
        assert standby.driver.registry.reserved_executors() == {executor}

    def test_a_warm_executor_that_has_ended_is_replaced_and_stays_reserved(self, standby: Door) -> None:
        visitor = standby.come()
        visitor.receive()
        visitor.send_message(AskWarm())
        first = visitor.started()
        visitor.send_message(Ended(first, 1))
        second = visitor.started()
        assert second != first
        assert standby.driver.registry.reserved_executors() == {second}

    def test_a_second_connection_of_a_worker_does_not_replace_the_first(self, standby: Door) -> None:
        visitor = standby.come()
        visitor.receive()
        visitor.send_message(AskWarm())
        executor = visitor.started()
        again = standby.come(masters=("a", "b"))
        assert again.receive() == OnStandby("b")
        again.send_message(AskWarm())
        again.connection.close()
        time.sleep(0.3)
        assert [member.executor for member in standby.driver.registry.members()] == [executor]
        assert standby.driver.removed == []
        visitor.send_message(Beat())
        assert visitor.connection.poll(0.2) is None, "it is still connected"

    def test_a_heartbeat_of_a_second_connection_is_ignored_after_the_end_of_the_first(
        self, standby: Door, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(resource_manager, "SILENT_S", 0.2)
        visitor = standby.come()
        visitor.receive()
        again = standby.come(masters=("b",))
        again.receive()
        visitor.connection.close()
        wait_until(lambda: standby.driver.registry.members() == [])
        again.send_message(Beat())
        time.sleep(0.5)
        late = standby.come("late")
        late.receive()
        late.send_message(AskWarm())
        executor = late.started()
        standby.driver.there = {executor}
        assert late.receive() == Running(executor)
