"""Metrics of the JVMs: how they are queried, and what happens if a JVM does not answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.graph.executor import executing_on
from penstock.jobmanager.cluster.executor.jvm_readings import JvmReadings
from penstock.jobmanager.cluster.task_managers import Worker
from penstock.jobmanager.job.job_master import JobMaster
from penstock.jobmanager.process.reading.measurements import Measurements
from penstock.jobmanager.process.session.session import Session
from penstock.rest import facts
from penstock.rest.errors import Unavailable
from tests.in_process import InProcess, environment, until


@pytest.fixture
def session() -> Iterator[Session]:
    session = Session(InProcess())
    yield session
    session.stop()


class Cluster:
    """A cluster with two TaskManagers. The second one does not answer."""

    def __init__(self, job: JobMaster) -> None:
        self.job = job
        self.now = 0.0
        self.queried: list[str | None] = []

    def task_managers(self) -> list[Worker]:
        return [Worker("tm-0", "10.0.0.1", 1, ("0",)), Worker("tm-1", "10.0.0.2", 1, ("1",))]

    def ask(self, task_manager: str | None) -> str:
        self.queried.append(task_manager)
        if task_manager is None:
            return "Status.JVM.Threads.Count 12\n"
        if task_manager == "tm-1":
            raise Unavailable("the TaskManager has not responded")
        job = self.job.job_id
        lines = f"in {job} 1 0 3 1024 4096\nout {job} 0 0 512 4096\nin {job} 1 99 1 1 4096\nin other 1 0 1 1 4096\n"
        return "Status.JVM.Threads.Count 34\nStatus.JVM.CPU.Load 0.25\n" + lines


def test_all_jvms_are_queried_together_and_at_most_once_a_second(session: Session, tmp_path: Path) -> None:
    env = environment(tmp_path)
    numbers = env.from_source(DataGeneratorSource(int, None, 100.0), None, "numbers")
    numbers.key_by(lambda value: value % 8).map(lambda value: value).print()
    with executing_on(session):
        env.execute_async("numbers")
    job = session.dispatcher.jobs()[-1]
    until(lambda: bool(job.metrics.usage_by_slot()), job)
    cluster = Cluster(job)
    measurements = Measurements(cluster.ask, cluster.task_managers, session.dispatcher.jobs, clock=lambda: cluster.now)

    found = measurements.take()
    assert found.job_manager == {"Status.JVM.Threads.Count": 12}
    assert list(found.task_managers) == ["tm-0"]
    assert found.task_managers["tm-0"]["Status.JVM.CPU.Load"] == 0.25
    assert found.task_managers["tm-0"]["Status.Shuffle.Netty.UsedMemory"] == 1024 + 512 + 1 + 1
    source, last = job.graph.stages[0], job.graph.stages[-1]
    assert found.subtasks == {
        (job.job_id, str(last.id), 0): {"inPoolUsage": 0.25, "inputQueueSize": 1024, "inputQueueLength": 3},
        (job.job_id, str(source.id), 0): {"outPoolUsage": 0.125, "outputQueueSize": 512},
    }

    assert measurements.take() is found
    assert sorted(map(str, cluster.queried)) == ["None", "tm-0", "tm-1"]
    cluster.now = 1.5
    measurements.take()
    assert len(cluster.queried) == 6


def test_jobs_of_other_processes_have_the_metrics_of_their_level() -> None:
    cluster = Cluster(cast("JobMaster", SimpleNamespace(job_id="mine")))
    vertices = [facts.Vertex(str(level), f"level {level}", 1, 128, level=level) for level in range(3)]
    jobs = [facts.Job("other", "other", "RUNNING", 0, 1, 128, vertices=vertices)]
    found = Measurements(cluster.ask, cluster.task_managers, list, lambda: jobs).take()
    assert list(found.subtasks) == [("other", "1", 0)]
    assert found.subtasks["other", "1", 0]["inputQueueLength"] == 1


@pytest.mark.parametrize("line", ["in j", "Status.JVM.CPU.Load NaN", "in j 1 0 3 10", "out j 0 x 1 2"])
def test_an_invalid_line_does_not_affect_other_lines(line: str) -> None:
    assert JvmReadings.parse(f"Status.JVM.Threads.Count 3\n{line}").values == {"Status.JVM.Threads.Count": 3}
