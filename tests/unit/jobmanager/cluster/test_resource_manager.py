"""TaskManagers that register with the JobManager and leave.

Other clients are rejected. A double replaces the driver.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import msgspec
import pytest

from penstock.common.errors import ClusterError
from penstock.jobmanager.cluster import resource_manager
from penstock.jobmanager.cluster.members.registration import (
    PURPOSE,
    AskReadings,
    Beat,
    BeatAnswer,
    Ended,
    Killed,
    ReadingsAnswer,
    Register,
    Running,
    Start,
    ToTaskManager,
)
from penstock.jobmanager.cluster.resource_manager import ResourceManager
from penstock.jobmanager.cluster.sealed_server import MAX_UNAUTHENTICATED, Peer
from penstock.jobmanager.cluster.spark_cluster import SparkCluster
from penstock.jobmanager.failover.crash import MemoryKill
from penstock.rest.errors import Unavailable
from penstock.taskmanager.control.channel import ControlConnection, Hello
from penstock.taskmanager.control.sealed_channel import CONTROL_CHANNEL, HELLO_BYTES
from tests.unit.jobmanager.cluster.manager_door import SECRET, Door, Visitor, wait_until


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    monkeypatch.setattr(resource_manager, "CHECK_INTERVAL_S", 0.05)
    monkeypatch.setattr(resource_manager, "SHORT_CHECK_INTERVAL_S", 0.02)
    made = Door()
    yield made
    made.server.close()


def test_a_worker_that_registers_receives_its_executor_and_its_acceptance_by_the_driver(door: Door) -> None:
    visitor = door.come()
    received = visitor.receive()
    assert isinstance(received, Start)
    assert received.launch.environment == {"PYTHONPATH": "/app"}
    [member] = door.driver.registry.members()
    assert (member.id, member.slots, member.executor, member.registered) == (
        "tm",
        2,
        received.launch.executor_id,
        False,
    )
    door.driver.there = {received.launch.executor_id}
    assert visitor.receive() == Running(received.launch.executor_id)
    assert door.driver.registry.members()[0].registered


def test_an_executor_that_has_ended_is_replaced_under_another_name(door: Door) -> None:
    visitor = door.come()
    first = visitor.started()
    visitor.send_message(Ended(first, 137))
    second = visitor.started()
    assert second != first
    assert door.driver.removed == [first]


def test_a_memory_kill_in_a_workers_container_is_remembered_for_a_moment(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    visitor = door.come()
    visitor.started()
    registry = door.driver.registry
    assert registry.killed_on("10.0.0.1") is None
    visitor.send_message(Killed(2**28))
    wait_until(lambda: registry.killed_on("10.0.0.1") is not None)
    assert (registry.killed_on("10.0.0.1"), registry.killed_on("10.0.0.2")) == (MemoryKill(2**28), None)
    monkeypatch.setattr("penstock.jobmanager.cluster.members.registry.RECENT_S", 0.0)
    assert registry.killed_on("10.0.0.1") is None, "it has nothing to do with what ends later"


def test_an_executor_that_the_driver_has_lost_is_replaced(door: Door) -> None:
    visitor = door.come()
    first = visitor.started()
    door.driver.there = {first}
    assert visitor.receive() == Running(first)
    door.driver.there = set()
    assert visitor.started() != first


def test_an_executor_that_ended_and_that_the_driver_has_lost_is_replaced_once(door: Door) -> None:
    visitor = door.come()
    first = visitor.started()
    door.driver.there = {first}
    assert visitor.receive() == Running(first)
    door.driver.launch_s = 0.3
    door.driver.there = set()
    visitor.send_message(Ended(first, 1))
    time.sleep(1.0)
    received = visitor.started()
    while (frame := visitor.connection.poll(0.1)) is not None:  # the same message may arrive twice
        resent = msgspec.msgpack.decode(frame, type=ToTaskManager)
        assert isinstance(resent, Start)
        assert resent.launch.executor_id == received
    [member] = door.driver.registry.members()
    assert member.executor == received
    assert int(received) == int(first) + 1


def test_a_worker_that_leaves_while_its_executor_is_replaced_is_removed(door: Door) -> None:
    visitor = door.come()
    first = visitor.started()
    door.driver.there = {first}
    assert visitor.receive() == Running(first)
    door.driver.launch_s = 0.3
    door.driver.there = set()
    time.sleep(0.15)
    visitor.connection.close()
    time.sleep(0.5)
    assert door.driver.registry.members() == []


def test_a_worker_that_reports_a_wrong_executor_receives_the_right_one_again(door: Door) -> None:
    visitor = door.come()
    first = visitor.started()
    visitor.send_message(Ended("an unknown task", 1))
    assert visitor.started() == first


def test_a_worker_that_leaves_takes_its_executor_with_it(door: Door) -> None:
    visitor = door.come()
    executor = visitor.started()
    visitor.connection.close()
    wait_until(lambda: door.driver.removed == [executor])
    assert door.driver.registry.members() == []


def test_a_worker_that_reconnects_replaces_its_dead_connection(door: Door) -> None:
    before = door.come()
    left = before.started()
    again = door.come()
    executor = again.started()
    assert before.receives_end()
    time.sleep(0.2)
    assert [member.executor for member in door.driver.registry.members()] == [executor]
    assert door.driver.removed == [left]
    again.send_message(Ended(executor, 1))
    assert again.started() != executor


def test_a_worker_that_is_silent_for_too_long_is_lost(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource_manager, "SILENT_S", 0.5)
    silent, other = door.come("silent"), door.come("other")
    executor = silent.started()
    deadline = time.monotonic() + 10
    while executor not in door.driver.removed:
        assert time.monotonic() < deadline
        other.send_message(Beat())
        time.sleep(0.02)
    assert silent.receives_end()
    assert [member.id for member in door.driver.registry.members()] == ["other"]


def test_a_jobmanager_that_was_stopped_itself_loses_no_worker(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    visitor = door.come()
    visitor.started()
    now, stood_still = time.monotonic, 1_000.0
    monkeypatch.setattr("time.monotonic", lambda: now() + stood_still)
    time.sleep(0.3)
    assert [member.id for member in door.driver.registry.members()] == ["tm"]


@pytest.mark.parametrize(("secret", "purpose"), [("o" * 32, PURPOSE), (SECRET, CONTROL_CHANNEL)])
def test_a_client_without_the_key_is_refused(door: Door, secret: str, purpose: bytes) -> None:
    with pytest.raises(ConnectionError):
        door.come(secret=secret, purpose=purpose)
    visitor = door.come()
    visitor.started()
    assert len(door.driver.registry.members()) == 1
    visitor.connection.close()


@pytest.mark.parametrize("sent", [Hello(1, 0, 0), Register("tm", "10.0.0.1", 0, 1)])
def test_a_client_with_an_invalid_message_is_refused(door: Door, sent: Any) -> None:
    with contextlib.suppress(ConnectionError):
        connection = ControlConnection(door.server.address, SECRET, sent, purpose=PURPOSE, connect_s=5)
        Visitor(connection).receives_end()
    assert door.driver.registry.members() == []
    door.come().started()


def test_an_unauthenticated_client_receives_only_random_bytes(door: Door, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    with door.unauthenticated_client() as unauthenticated_client:
        unauthenticated_client.sendall(b"\x00" * 4_096)
        received = b""
        with contextlib.suppress(ConnectionError):
            while piece := unauthenticated_client.recv(65_536):
                received += piece
        assert len(received) == HELLO_BYTES
    door.come().started()


def test_many_unauthenticated_clients_do_not_block_workers(door: Door, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    with contextlib.ExitStack() as stack:
        for _ in range(min(MAX_UNAUTHENTICATED, 200)):
            stack.enter_context(door.unauthenticated_client())
        door.come().started()


def test_a_worker_that_sends_too_much_is_disconnected(door: Door, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    visitor = door.come()
    with contextlib.suppress(ConnectionError):
        visitor.connection.send(b"x" * 100_000)
    assert visitor.receives_end()


def test_a_port_in_use_is_named(door: Door) -> None:
    port = int(door.server.address.rpartition(":")[2])
    with pytest.raises(ClusterError, match=rf"{port}.*Address already in use"):
        ResourceManager("127.0.0.1", port, cast(SparkCluster, door.driver))


def test_a_master_in_an_election_answers_heartbeats(door: Door) -> None:
    alone, elected = door.come("alone"), door.come("elected")
    for visitor in (alone, elected):
        visitor.started()
    alone.send_message(Beat())
    assert alone.connection.poll(0.5) is None
    door.server._patience_s = 10.0
    elected.send_message(Beat())
    assert elected.receive() == BeatAnswer(10.0)


def test_the_owner_is_notified_when_the_manager_stops_serving(
    door: Door, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    error = MemoryError("no more")

    def broken() -> None:
        raise error

    monkeypatch.setattr(door.server, "_turn", broken)
    wait_until(lambda: door.failures == [error])


def test_the_owner_is_not_notified_when_it_closes_the_manager(door: Door) -> None:
    door.come().started()
    door.server.close()
    time.sleep(0.1)
    assert door.failures == []


def test_a_driver_that_fails_to_remove_an_executor_does_not_end_the_manager(
    door: Door, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(executor_id: str, reason: str) -> None:
        raise RuntimeError("Py4JNetworkError")

    monkeypatch.setattr(door.driver, "remove_executor", refused)
    visitor = door.come()
    visitor.started()
    visitor.connection.close()
    wait_until(lambda: "failed to process the end of the connection of" in caplog.text)
    door.come().started()
    assert door.server.failure is None


def test_an_error_while_serving_a_worker_does_not_end_the_manager(
    door: Door, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    visitor = door.come()
    visitor.started()

    def broken(peer: Peer, now: float) -> float:
        raise KeyError("is not registered")

    monkeypatch.setattr(Peer, "stalled_s", broken)
    [peer] = door.server._peers.values()
    door.server._stuck.add(peer)
    assert visitor.receives_end()
    door.come("other").started()
    assert door.server.failure is None


def test_the_metrics_of_a_workers_jvm_are_requested_with_a_short_timeout(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    visitor = door.come()
    visitor.started()
    with ThreadPoolExecutor(1) as asking:
        answer = asking.submit(door.server.readings, "tm")
        question = visitor.receive()
        assert isinstance(question, AskReadings)
        visitor.send_message(ReadingsAnswer(question.request, "Status.JVM.Threads.Count 34"))
        assert answer.result(10) == "Status.JVM.Threads.Count 34"
    monkeypatch.setattr(resource_manager, "READINGS_S", 0.2)
    began = time.monotonic()
    with pytest.raises(Unavailable, match="has not responded"):
        door.server.readings("tm")
    assert time.monotonic() - began < 5
    with pytest.raises(Unavailable, match="disconnected"):
        door.server.readings("another")
