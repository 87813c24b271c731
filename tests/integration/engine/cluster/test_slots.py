"""Jobs of one cluster have separate slots, and REST counts them by worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.common.job_status import JobStatus
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.graph.executor import executing_on
from penstock.jobmanager.process.session.gateway import DispatcherGateway
from penstock.jobmanager.runners.spark_runner import SparkRunner
from tests.in_process import until
from tests.integration.engine.selfcheck.driver import environment

if TYPE_CHECKING:
    from penstock.jobmanager.job.job_master import JobMaster
    from penstock.jobmanager.process.session.embedded import EmbeddedExecutor

pytestmark = pytest.mark.spark


def started(executor: EmbeddedExecutor, settings: dict[str, str], parallelism: int) -> JobMaster:
    """Start a job without end, and wait until it has reported its memory."""
    env = environment(settings, parallelism)
    env.from_source(DataGeneratorSource(int, None, 100.0), None, "numbers").rebalance().map(str).print()
    with executing_on(executor):
        env.execute_async("numbers")
    master = executor.session.dispatcher.jobs()[-1]
    until(lambda: master.history.status is JobStatus.RUNNING and bool(master.metrics.usage_by_slot()), master)
    return master


def slots_of(master: JobMaster) -> list[str]:
    assert isinstance(master.runner, SparkRunner)
    return [slot.id for slot in master.runner.placement]


def test_two_jobs_in_one_cluster_have_separate_slots(executor: EmbeddedExecutor, settings: dict[str, str]) -> None:
    first, second = started(executor, settings, 2), started(executor, settings, 1)
    assert not set(slots_of(first)).intersection(slots_of(second))

    session = executor.session
    gateway = DispatcherGateway(session.dispatcher, {}, session.cluster.task_managers, lambda: None)
    cluster = gateway.cluster()
    assert cluster.slots_total - cluster.slots_available == 3
    assert len({manager.id for manager in cluster.task_managers}) == len(cluster.task_managers) >= 2
    used = [manager for manager in cluster.task_managers if manager.slots_by_job]
    assert sum(sum(manager.slots_by_job.values()) for manager in used) == 3
    for manager in used:
        assert manager.free_slots == manager.slots - sum(manager.slots_by_job.values())
        assert manager.port > 0
        assert manager.last_heartbeat > 0
        assert manager.heap >= 2**28
        assert manager.memory_used > 10_000_000
        assert manager.memory > manager.memory_free > 0
        assert manager.cpu_cores >= 1
    assert {subtask.tm_id for subtask in gateway.job(second.job_id).vertices[0].subtasks} == set(
        second.runner.task_managers
    )
