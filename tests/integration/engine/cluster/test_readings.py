"""The gauges of a running job's JVMs are visible to readers of metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest

from penstock.common.configuration import Configuration
from penstock.common.job_status import JobStatus
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.graph.executor import executing_on
from penstock.rest.views.ids import vertex_id
from tests.in_process import until
from tests.integration.engine.selfcheck.driver import environment

if TYPE_CHECKING:
    from penstock.jobmanager.process.session.embedded import EmbeddedExecutor

pytestmark = pytest.mark.spark

JVM = (
    "Status.JVM.Memory.Heap.Used",
    "Status.JVM.Memory.NonHeap.Committed",
    "Status.JVM.Memory.Metaspace.Used",
    "Status.JVM.Memory.Direct.MemoryUsed",
    "Status.JVM.GarbageCollector.All.Count",
    "Status.JVM.Threads.Count",
    "Status.JVM.CPU.Time",
)


def values(read: httpx.Client, path: str) -> dict[str, float]:
    names = [metric["id"] for metric in read.get(path).json()]
    return {m["id"]: float(m["value"]) for m in read.get(path, params={"get": ",".join(names)}).json()}


def test_metrics_of_jvms_exchanges_and_python_workers_are_visible(
    executor: EmbeddedExecutor, settings: dict[str, str]
) -> None:
    env = environment(settings | {"metrics.latency.interval": "50 ms"}, 2)
    numbers = env.from_source(DataGeneratorSource(int, None, 1_000.0), None, "numbers")
    numbers.key_by(lambda value: value % 64).map(lambda value: value + 1).name("plus").print()
    with executing_on(executor):
        env.execute_async("seen")
    master = executor.session.dispatcher.jobs()[-1]
    until(lambda: master.history.status is JobStatus.RUNNING and bool(master.metrics.usage_by_slot()), master)
    server = executor.session.serve(Configuration({"rest.port": "0"}))
    assert server is not None
    try:
        with httpx.Client(base_url=server.url, timeout=30) as read:
            driver = values(read, "/jobmanager/metrics")
            assert all(driver[name] > 0 for name in JVM), driver
            managers = [worker["id"] for worker in read.get("/taskmanagers").json()["taskmanagers"]]
            every = [values(read, f"/taskmanagers/{manager}/metrics") for manager in managers]
            of_executors = [one for one in every if JVM[0] in one]  # only executors that have had a task
            assert of_executors, every
            for found in of_executors:
                assert all(found[name] > 0 for name in JVM), found
                assert found["Status.JVM.CPU.Load"] >= 0.0
            assert sum(one["Status.Python.CPU.Time"] for one in every) > 0.01
            first, last = master.graph.stages[0], master.graph.stages[-1]
            of_sources = values(read, f"/jobs/{master.job_id}/vertices/{vertex_id(str(first.id))}/subtasks/0/metrics")
            assert of_sources["idleTimeMs"] > 0
            assert of_sources["idleTimeMs"] + of_sources["busyTimeMs"] < 120_000
            if settings["penstock.runner"] == "pipelined":
                of_plus = values(read, f"/jobs/{master.job_id}/vertices/{vertex_id(str(last.id))}/subtasks/1/metrics")
                assert 0.0 <= of_plus["inPoolUsage"] <= 1.0
                assert of_plus["inputQueueLength"] >= 0
                assert 0.0 <= of_sources["outPoolUsage"] <= 1.0
                memory = [one["Status.Shuffle.Netty.TotalMemory"] for one in of_executors]
                assert max(memory) > 0, "no executor with a task of this job reports memory"
                assert min(memory) >= 0
            of_last = f"/jobs/{master.job_id}/vertices/{vertex_id(str(last.id))}/subtasks/0/metrics"
            [uid] = [node.uid for node in master.graph.operators if node.source is not None]
            seen = f"plus.source_id.{uid}.latency"
            until(lambda: values(read, of_last).get(f"{seen}_count", 0) >= 10, master)
            assert 0 < values(read, of_last)[f"{seen}_median"] < 10_000
            page = read.get("/metrics").text
            assert "penstock_taskmanager_job_task_operator_source_id_latency_count{" in page
            assert "penstock_taskmanager_Status_JVM_Memory_Heap_Used{" in page
            assert "penstock_jobmanager_Status_JVM_Threads_Count" in page
            assert "penstock_taskmanager_job_task_idleTimeMsPerSecond{" in page
    finally:
        server.stop()
