"""A resource manager with a double of the driver, and the TaskManagers that connect to it."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable
from typing import Any, cast

import msgspec

from penstock.jobmanager.cluster.executor.executor_process import Launch
from penstock.jobmanager.cluster.members.registration import (
    PURPOSE,
    Register,
    Start,
    ToTaskManager,
)
from penstock.jobmanager.cluster.members.registry import Member, Registry
from penstock.jobmanager.cluster.resource_manager import ResourceManager
from penstock.jobmanager.cluster.spark_cluster import SparkCluster
from penstock.taskmanager.control.channel import ControlConnection

SECRET = "s" * 32


class Driver:
    """The state of executors as a SparkCluster reports it."""

    def __init__(self) -> None:
        self.credentials = type("Credentials", (), {"secret": SECRET})()
        self.registry = Registry()
        self.there: set[str] = set()
        self.removed: list[str] = []
        self.launch_s = 0.0
        """The duration of the driver's answer about an executor."""

    def launch(self) -> Launch:
        time.sleep(self.launch_s)
        executor_id = self.registry.new_executor_id()
        return Launch(executor_id, "spark://driver", "app", [], "", {"spark.rpc.x": "1"}, {"PYTHONPATH": "/app"})

    def executor_changes(self) -> tuple[list[Member], list[Member]]:
        return self.registry.compare_executors(self.there)

    def remove_executor(self, executor_id: str, reason: str) -> None:
        self.removed.append(executor_id)


class Door:
    def __init__(self, master: str = "") -> None:
        self.driver = Driver()
        self.failures: list[Exception] = []
        self.warm: list[str] = []
        spark = cast(SparkCluster, self.driver)
        self.server = ResourceManager(
            "127.0.0.1", 0, spark, on_failure=self.failures.append, master=master, on_warm=self.warm.append
        )
        self.server.start()

    def come(
        self,
        name: str = "tm",
        slots: int = 2,
        secret: str = SECRET,
        purpose: bytes = PURPOSE,
        masters: tuple[str, ...] = (),
    ) -> Visitor:
        register = Register(name, "10.0.0.1", slots, 2**29, masters)
        return Visitor(ControlConnection(self.server.address, secret, register, purpose=purpose))

    def unauthenticated_client(self) -> socket.socket:
        host, _, port = self.server.address.rpartition(":")
        return socket.create_connection((host, int(port)), timeout=5)


class Visitor:
    def __init__(self, connection: ControlConnection) -> None:
        self.connection = connection

    def receive(self) -> ToTaskManager:
        frame = None
        deadline = time.monotonic() + 10
        while frame is None:
            assert time.monotonic() < deadline
            frame = self.connection.poll(0.1)
        return msgspec.msgpack.decode(frame, type=ToTaskManager)

    def started(self) -> str:
        received = self.receive()
        assert isinstance(received, Start)
        return received.launch.executor_id

    def send_message(self, message: Any) -> None:
        self.connection.send(msgspec.msgpack.encode(message))

    def receives_end(self) -> bool:
        with contextlib.suppress(ConnectionError):
            while True:
                self.connection.poll(5)
        return True


def wait_until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
