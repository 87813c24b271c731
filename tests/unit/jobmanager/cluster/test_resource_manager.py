"""TaskManagers come and go at the JobManager's door; strangers do not get in. The driver is a double."""

from __future__ import annotations

import contextlib
import logging
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import msgspec
import pytest

from penstock.common.errors import ClusterError
from penstock.jobmanager.cluster import resource_manager
from penstock.jobmanager.cluster.executor.executor_process import Launch
from penstock.jobmanager.cluster.members.registration import (
    PURPOSE,
    AskReadings,
    Beat,
    Ended,
    Killed,
    ReadingsAnswer,
    Register,
    Running,
    Start,
    ToTaskManager,
)
from penstock.jobmanager.cluster.members.registry import Member, Registry
from penstock.jobmanager.cluster.resource_manager import ResourceManager
from penstock.jobmanager.cluster.sealed_server import STRANGERS, Peer
from penstock.jobmanager.cluster.spark_cluster import SparkCluster
from penstock.jobmanager.failover.crash import MemoryKill
from penstock.rest.errors import Unavailable
from penstock.taskmanager.control.channel import ControlConnection, Hello
from penstock.taskmanager.control.sealed_channel import CONTROL_CHANNEL, HELLO_BYTES

SECRET = "s" * 32


class Driver:
    """What a SparkCluster says of its executors."""

    def __init__(self) -> None:
        self.credentials = type("Credentials", (), {"secret": SECRET})()
        self.registry = Registry()
        self.there: set[str] = set()
        self.removed: list[str] = []
        self.launch_s = 0.0
        """How long it thinks about an executor."""

    def launch(self) -> Launch:
        time.sleep(self.launch_s)
        executor_id = self.registry.new_executor_id()
        return Launch(executor_id, "spark://driver", "app", [], "", {"spark.rpc.x": "1"}, {"PYTHONPATH": "/app"})

    def look(self) -> tuple[list[Member], list[Member]]:
        return self.registry.seen(self.there)

    def remove_executor(self, executor_id: str, why: str) -> None:
        self.removed.append(executor_id)


class Door:
    def __init__(self) -> None:
        self.driver = Driver()
        self.failures: list[Exception] = []
        spark = cast(SparkCluster, self.driver)
        self.server = ResourceManager("127.0.0.1", 0, spark, on_failure=self.failures.append)
        self.server.start()

    def come(self, name: str = "tm", slots: int = 2, secret: str = SECRET, purpose: bytes = PURPOSE) -> Visitor:
        register = Register(name, "10.0.0.1", slots, 2**29)
        return Visitor(ControlConnection(self.server.address, secret, register, purpose=purpose))

    def stranger(self) -> socket.socket:
        host, _, port = self.server.address.rpartition(":")
        return socket.create_connection((host, int(port)), timeout=5)


class Visitor:
    def __init__(self, connection: ControlConnection) -> None:
        self.connection = connection

    def heard(self) -> ToTaskManager:
        frame = None
        deadline = time.monotonic() + 10
        while frame is None:
            assert time.monotonic() < deadline
            frame = self.connection.poll(0.1)
        return msgspec.msgpack.decode(frame, type=ToTaskManager)

    def started(self) -> str:
        told = self.heard()
        assert isinstance(told, Start)
        return told.launch.executor_id

    def say(self, what: Any) -> None:
        self.connection.send(msgspec.msgpack.encode(what))

    def is_told_to_go(self) -> bool:
        with contextlib.suppress(ConnectionError):
            while True:
                self.connection.poll(5)
        return True


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    monkeypatch.setattr(resource_manager, "LOOK_S", 0.05)
    monkeypatch.setattr(resource_manager, "LOOK_SOON_S", 0.02)
    made = Door()
    yield made
    made.server.close()


def wait_until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_worker_that_comes_is_told_what_to_start_and_when_the_driver_has_it(door: Door) -> None:
    visitor = door.come()
    told = visitor.heard()
    assert isinstance(told, Start)
    assert told.launch.environment == {"PYTHONPATH": "/app"}
    [member] = door.driver.registry.members()
    assert (member.id, member.slots, member.executor, member.registered) == ("tm", 2, told.launch.executor_id, False)
    door.driver.there = {told.launch.executor_id}
    assert visitor.heard() == Running(told.launch.executor_id)
    assert door.driver.registry.members()[0].registered


def test_an_executor_that_has_ended_is_followed_by_one_of_another_name(door: Door) -> None:
    visitor = door.come()
    first = visitor.started()
    visitor.say(Ended(first, 137))
    second = visitor.started()
    assert second != first
    assert door.driver.removed == [first]


def test_what_the_system_has_killed_in_a_workers_container_is_known_for_a_moment(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    visitor = door.come()
    visitor.started()
    registry = door.driver.registry
    assert registry.killed_on("10.0.0.1") is None
    visitor.say(Killed(2**28))
    wait_until(lambda: registry.killed_on("10.0.0.1") is not None)
    assert (registry.killed_on("10.0.0.1"), registry.killed_on("10.0.0.2")) == (MemoryKill(2**28), None)
    monkeypatch.setattr("penstock.jobmanager.cluster.members.registry.RECENT_S", 0.0)
    assert registry.killed_on("10.0.0.1") is None, "it has nothing to do with what ends later"


def test_an_executor_that_the_driver_has_given_up_is_replaced(door: Door) -> None:
    visitor = door.come()
    first = visitor.started()
    door.driver.there = {first}
    assert visitor.heard() == Running(first)
    door.driver.there = set()
    assert visitor.started() != first


def test_an_executor_that_has_ended_and_that_the_driver_has_lost_is_replaced_once(door: Door) -> None:
    visitor = door.come()
    first = visitor.started()
    door.driver.there = {first}
    assert visitor.heard() == Running(first)
    door.driver.launch_s = 0.3
    door.driver.there = set()
    visitor.say(Ended(first, 1))
    time.sleep(1.0)
    told = visitor.started()
    while (frame := visitor.connection.poll(0.1)) is not None:  # the same may be said twice
        told_again = msgspec.msgpack.decode(frame, type=ToTaskManager)
        assert isinstance(told_again, Start)
        assert told_again.launch.executor_id == told
    [member] = door.driver.registry.members()
    assert member.executor == told
    assert int(told) == int(first) + 1


def test_a_worker_that_goes_while_its_executor_is_replaced_is_not_kept(door: Door) -> None:
    visitor = door.come()
    first = visitor.started()
    door.driver.there = {first}
    assert visitor.heard() == Running(first)
    door.driver.launch_s = 0.3
    door.driver.there = set()
    time.sleep(0.15)
    visitor.connection.close()
    time.sleep(0.5)
    assert door.driver.registry.members() == []


def test_who_tells_of_an_executor_that_is_not_its_own_hears_again_which_is(door: Door) -> None:
    visitor = door.come()
    first = visitor.started()
    visitor.say(Ended("nobody's", 1))
    assert visitor.started() == first


def test_who_goes_takes_its_executor_with_it(door: Door) -> None:
    visitor = door.come()
    executor = visitor.started()
    visitor.connection.close()
    wait_until(lambda: door.driver.removed == [executor])
    assert door.driver.registry.members() == []


def test_who_comes_again_takes_the_place_of_the_connection_that_nobody_missed(door: Door) -> None:
    before = door.come()
    left = before.started()
    again = door.come()
    executor = again.started()
    assert before.is_told_to_go()
    time.sleep(0.2)
    assert [member.executor for member in door.driver.registry.members()] == [executor]
    assert door.driver.removed == [left]
    again.say(Ended(executor, 1))
    assert again.started() != executor


def test_who_says_nothing_for_too_long_has_gone(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource_manager, "SILENT_S", 0.5)
    silent, other = door.come("silent"), door.come("other")
    executor = silent.started()
    deadline = time.monotonic() + 10
    while executor not in door.driver.removed:
        assert time.monotonic() < deadline
        other.say(Beat())
        time.sleep(0.02)
    assert silent.is_told_to_go()
    assert [member.id for member in door.driver.registry.members()] == ["other"]


def test_a_jobmanager_that_stood_still_itself_blames_nobody(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    visitor = door.come()
    visitor.started()
    now, stood_still = time.monotonic, 1_000.0
    monkeypatch.setattr(resource_manager.time, "monotonic", lambda: now() + stood_still)
    time.sleep(0.3)
    assert [member.id for member in door.driver.registry.members()] == ["tm"]


@pytest.mark.parametrize(("secret", "purpose"), [("o" * 32, PURPOSE), (SECRET, CONTROL_CHANNEL)])
def test_who_has_not_the_key_for_this_door_is_refused(door: Door, secret: str, purpose: bytes) -> None:
    with pytest.raises(ConnectionError):
        door.come(secret=secret, purpose=purpose)
    visitor = door.come()
    visitor.started()
    assert len(door.driver.registry.members()) == 1
    visitor.connection.close()


@pytest.mark.parametrize("said", [Hello(1, 0, 0), Register("tm", "10.0.0.1", 0, 1)])
def test_who_says_what_no_worker_says_is_refused(door: Door, said: Any) -> None:
    with contextlib.suppress(ConnectionError):
        connection = ControlConnection(door.server.address, SECRET, said, purpose=PURPOSE, connect_s=5)
        Visitor(connection).is_told_to_go()
    assert door.driver.registry.members() == []
    door.come().started()


def test_a_stranger_gets_random_bytes_and_nothing_else(door: Door, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    with door.stranger() as stranger:
        stranger.sendall(b"\x00" * 4_096)
        received = b""
        with contextlib.suppress(ConnectionError):
            while piece := stranger.recv(65_536):
                received += piece
        assert len(received) == HELLO_BYTES
    door.come().started()


def test_many_strangers_keep_no_worker_out(door: Door, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    with contextlib.ExitStack() as stack:
        for _ in range(min(STRANGERS, 200)):
            stack.enter_context(door.stranger())
        door.come().started()


def test_a_worker_that_says_too_much_is_sent_away(door: Door, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    visitor = door.come()
    with contextlib.suppress(ConnectionError):
        visitor.connection.send(b"x" * 100_000)
    assert visitor.is_told_to_go()


def test_a_port_that_is_taken_is_named(door: Door) -> None:
    port = int(door.server.address.rpartition(":")[2])
    with pytest.raises(ClusterError, match=rf"{port}.*Address already in use"):
        ResourceManager("127.0.0.1", port, cast(SparkCluster, door.driver))


def test_its_owner_is_told_when_it_serves_no_more(
    door: Door, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    why = MemoryError("no more")

    def broken() -> None:
        raise why

    monkeypatch.setattr(door.server, "_turn", broken)
    wait_until(lambda: door.failures == [why])


def test_its_owner_is_not_told_when_it_is_closed(door: Door) -> None:
    door.come().started()
    door.server.close()
    time.sleep(0.1)
    assert door.failures == []


def test_the_driver_that_does_not_take_an_executor_away_ends_nothing(
    door: Door, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(executor_id: str, why: str) -> None:
        raise RuntimeError("Py4JNetworkError")

    monkeypatch.setattr(door.driver, "remove_executor", refused)
    visitor = door.come()
    visitor.started()
    visitor.connection.close()
    wait_until(lambda: "has not come to terms with the end of" in caplog.text)
    door.come().started()
    assert door.server.failure is None


def test_a_worker_that_cannot_be_looked_after_ends_nothing(
    door: Door, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    visitor = door.come()
    visitor.started()

    def broken(peer: Peer, now: float) -> float:
        raise KeyError("is not registered")

    monkeypatch.setattr(Peer, "stalled_s", broken)
    [peer] = door.server._peers.values()
    door.server._stuck.add(peer)
    assert visitor.is_told_to_go()
    door.come("other").started()
    assert door.server.failure is None


def test_a_worker_is_asked_what_its_jvm_reads_and_not_waited_for_long(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    visitor = door.come()
    visitor.started()
    with ThreadPoolExecutor(1) as asking:
        answer = asking.submit(door.server.readings, "tm")
        asked = visitor.heard()
        assert isinstance(asked, AskReadings)
        visitor.say(ReadingsAnswer(asked.request, "Status.JVM.Threads.Count 34"))
        assert answer.result(10) == "Status.JVM.Threads.Count 34"
    monkeypatch.setattr(resource_manager, "READINGS_S", 0.2)
    began = time.monotonic()
    with pytest.raises(Unavailable, match="has not answered"):
        door.server.readings("tm")
    assert time.monotonic() - began < 5
    with pytest.raises(Unavailable, match="has gone"):
        door.server.readings("another")
