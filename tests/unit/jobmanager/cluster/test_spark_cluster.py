"""The shutdown of a Spark cluster. A double replaces the SparkContext."""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark import accumulators

from penstock.jobmanager.cluster.embedded_cluster import EmbeddedCluster
from penstock.jobmanager.cluster.members.registry import Member
from penstock.jobmanager.cluster.spark_cluster import SparkCluster
from penstock.jobmanager.cluster.spark_settings import ClusterConfig


def test_shutdown_does_not_wait_for_pysparks_accumulators(tmp_path: Path) -> None:
    """The accumulator server checks for its shutdown once a second, and the caller waits for that."""
    looks, ended = threading.Event(), threading.Event()

    def shutdown() -> None:
        if looks.wait(60):
            ended.set()

    server = SimpleNamespace(server_shutdown=False, shutdown=shutdown)
    cluster = SparkCluster(ClusterConfig(local_dir=str(tmp_path)))
    cluster.context = SimpleNamespace(_accumulatorServer=server)
    cluster._stop_accumulator_server()
    assert not ended.is_set()
    assert cluster.context._accumulatorServer is None
    assert server.server_shutdown
    looks.set()
    assert ended.wait(60)


def test_the_end_of_the_jvm_before_pysparks_accumulators_prints_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    server = accumulators._start_update_server("token", False)
    cluster = SparkCluster(ClusterConfig(local_dir=str(tmp_path)))
    cluster.context = SimpleNamespace(_accumulatorServer=server)
    with socket.create_connection(server.server_address) as jvm:
        jvm.sendall(b"token" + bytes(4))  # and no updates
        assert jvm.recv(1)
        jvm.sendall(bytes(2))  # it is in the middle of a number
        time.sleep(0.1)
        cluster._stop_accumulator_server()
    deadline = time.monotonic() + 60
    while server.socket.fileno() >= 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert "Exception" not in capfd.readouterr().err


def test_an_embedded_cluster_has_the_requested_slots_and_never_fewer(tmp_path: Path) -> None:
    cluster = EmbeddedCluster(ClusterConfig(local_dir=str(tmp_path)))
    for wanted, there in ((2, 2), (4, 4), (1, 4)):
        cluster.ensure_slots(wanted)
        assert list(cluster.spark.all_slots()) == [f"driver.{index}" for index in range(there)]
    [worker] = cluster.spark.workers()
    assert (worker.id, len(worker.slots)) == ("worker-0", 4)
    assert abs(worker.last_heartbeat - time.time() * 1000) < 60_000


def test_logs_of_an_embedded_cluster_are_those_of_its_only_task_manager(tmp_path: Path) -> None:
    cluster = EmbeddedCluster(ClusterConfig(local_dir=str(tmp_path)))
    reading, writing = os.pipe()
    cluster.spark._keep_output(os.fdopen(reading, "rb"))
    with os.fdopen(writing, "wb") as jvm:
        jvm.write(b"printed by a function\n")
    logs = cluster.logs("worker-0")
    deadline = time.monotonic() + 60
    while not logs.read("worker-0.out", 0, 100).data:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert logs.read("worker-0.out", 0, 100).data == b"printed by a function\n"
    assert "printed by a function" in cluster.spark._last_output()
    assert cluster.logs("worker-1").listing() == []


def test_a_memory_kill_is_reported_for_an_embedded_cluster(tmp_path: Path) -> None:
    cluster = EmbeddedCluster(ClusterConfig(local_dir=str(tmp_path)))

    def new() -> int:
        cluster._ended.set()
        return 1

    cluster._watch(SimpleNamespace(new=new, limit=2**30))  # type: ignore[arg-type]
    kill = cluster.spark.registry.killed_on(cluster.spark.config.host)
    assert kill is not None
    assert kill.limit == 2**30


def test_the_slots_of_a_reserved_executor_cannot_take_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = SparkCluster(ClusterConfig(local_dir=str(tmp_path)))
    cluster.context = SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: None))
    cluster._executors = SimpleNamespace(list=lambda context: "0 10.0.0.1 7079 32\n1 10.0.0.2 7079 32")
    cluster.registry.put(Member("warm", "10.0.0.1", 2, 1, "0", follows=False))
    cluster.registry.put(Member("other", "10.0.0.2", 2, 1, "1"))
    assert list(cluster.all_slots()) == ["1.0", "1.1"]
    assert {worker.id: worker.slots for worker in cluster.workers()} == {"warm": (), "other": ("1.0", "1.1")}
    come, _ = cluster.executor_changes()
    assert {member.id for member in come} == {"warm", "other"}, "both are registered with the driver"
    cluster.registry.put(Member("warm", "10.0.0.1", 2, 1, "0", registered=True, follows=True))
    assert list(cluster.all_slots()) == ["0.0", "0.1", "1.0", "1.1"]
