"""The description of a running JobManager for REST."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.graph.executor import executing_on
from penstock.jobmanager.cluster.task_managers import Worker
from penstock.jobmanager.job.job_master import JobMaster
from penstock.jobmanager.job.requests import Operation
from penstock.jobmanager.process.session.gateway import DispatcherGateway
from penstock.jobmanager.process.session.session import Session
from penstock.rest import facts
from penstock.rest.views.checkpoints import checkpoint_config
from tests.in_process import InProcess, environment, until


@pytest.fixture
def session() -> Iterator[Session]:
    session = Session(InProcess())
    yield session
    session.stop()


def start(session: Session, folder: Path, **settings: str) -> JobMaster:
    env = environment(folder, **settings)
    env.from_source(DataGeneratorSource(int, None, 100.0), None, "numbers").print()
    with executing_on(session):
        env.execute_async("numbers")
    return session.dispatcher.jobs()[-1]


def gateway_of(session: Session) -> DispatcherGateway:
    return DispatcherGateway(session.dispatcher, {}, session.cluster.task_managers, lambda: None)


def test_one_task_manager_has_the_slots_of_all_jobs(tmp_path: Path) -> None:
    session = Session(InProcess(slots=8))
    try:
        gateway = gateway_of(session)
        first = start(session, tmp_path / "first", **{"parallelism.default": "2"})
        second = start(session, tmp_path / "second", **{"parallelism.default": "3"})
        for job in (first, second):
            until(lambda job=job: bool(job.metrics.usage_by_slot()), job)
        cluster = gateway.cluster()
        (manager,) = cluster.task_managers
        assert (cluster.slots_total, cluster.slots_available) == (8, 3)
        assert (manager.slots, manager.free_slots) == (8, 3)
        assert manager.slots_by_job == {first.job_id: 2, second.job_id: 3}
        assert manager.memory > manager.memory_free > 0
        assert manager.memory_used > 0
        assert manager.cpu_cores >= 1
        assert {subtask.tm_id for subtask in gateway.job(second.job_id).vertices[0].subtasks} == {manager.id}

        second.request(Operation("cancel"))
        second.wait(30)
        assert gateway.cluster().slots_available == 6
    finally:
        session.stop()


def test_the_division_of_memory_is_reported(tmp_path: Path) -> None:
    session = Session(InProcess(slots=2))
    settings = {"taskmanager.memory.process.size": "2gb", "taskmanager.numberOfTaskSlots": "2"}
    gateway = DispatcherGateway(session.dispatcher, settings, session.cluster.task_managers, lambda: None)
    try:
        (before,) = gateway.cluster().task_managers
        assert before.memory_configuration["managedMemory"] == 0
        start(session, tmp_path, **{"state.backend.type": "rocksdb"})
        (manager,) = gateway.cluster().task_managers
        shares = {name: size >> 20 for name, size in manager.memory_configuration.items()}
        assert shares["totalProcessMemory"] == 2048
        assert (shares["taskHeap"], shares["managedMemory"]) == (677, 458)
        assert abs(2048 - sum(size for name, size in shares.items() if name != "totalProcessMemory")) < 4
        assert gateway.configuration()["penstock.executor.memory-mb"] == "677"
        assert gateway.configuration()["jobmanager.memory.heap.size"] == "640mb"
    finally:
        session.stop()


def test_a_cluster_that_shuts_down_has_no_task_managers(session: Session) -> None:
    def gone() -> list[Worker]:
        raise ConnectionError("the gateway is closed")

    cluster = DispatcherGateway(session.dispatcher, {}, gone, lambda: None).cluster()
    assert (cluster.slots_total, cluster.slots_available, list(cluster.task_managers)) == (0, 0, [])


def test_the_checkpoint_configuration_is_the_effective_one(session: Session, tmp_path: Path) -> None:
    job = start(
        session,
        tmp_path,
        **{
            "execution.checkpointing.mode": "AT_LEAST_ONCE",
            "execution.checkpointing.max-concurrent-checkpoints": "3",
            "execution.checkpointing.timeout": "1 min",
            "execution.checkpointing.num-retained": "2",
        },
    )
    gateway = gateway_of(session)
    shown = checkpoint_config(gateway.checkpoint_settings(job.job_id))
    assert (shown.mode, shown.max_concurrent) == ("at_least_once", 1)
    assert (shown.interval, shown.timeout, shown.retained_checkpoints) == (100, 60_000, 2)
    assert (shown.externalization.enabled, shown.externalization.delete_on_cancellation) == (True, False)


def test_checkpoints_without_a_directory_do_not_outlive_their_job(session: Session, tmp_path: Path) -> None:
    job = start(session, tmp_path, **{"execution.checkpointing.dir": "", "execution.checkpointing.interval": "0"})
    gateway = gateway_of(session)
    shown = checkpoint_config(gateway.checkpoint_settings(job.job_id))
    assert shown.interval == 0
    assert (shown.externalization.enabled, shown.externalization.delete_on_cancellation) == (False, True)


SECRET = "hunter22-from-the-environment"


def test_texts_of_exceptions_have_no_secrets_of_the_environment(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", SECRET)
    job = start(session, tmp_path)
    until(lambda: job.history.status.value == "RUNNING", job)
    message = f"cannot log in with {SECRET}"
    job.history.failures.append(facts.Failure(1, "OSError", message, f"Traceback\nOSError: {message}"))
    job.history.event(2, message)
    request: Any = SimpleNamespace(checkpoint_id=99, timestamp=3, wall_offset_ms=0, is_savepoint=False, is_final=False)
    description: Any = SimpleNamespace(operators=[], vertices={})
    statistics = job.checkpoints.coordinator.history
    statistics.triggered(request, description)
    statistics.failed(99, 4, message)
    gateway = gateway_of(session)
    operation = Operation("savepoint")
    session.dispatcher.add_operation(operation)
    operation.fail(message)
    answers = {
        "job": gateway.job(job.job_id),
        "jobs": gateway.jobs(),
        "checkpoints": gateway.checkpoints(job.job_id),
        "checkpoint": gateway.checkpoint(job.job_id, 99),
        "past checkpoints": gateway.insight.past_checkpoints(job.job_id),
        "operation": gateway.operation(operation.id),
    }
    for route, answer in answers.items():
        assert SECRET not in repr(answer), route
        assert "cannot log in with ******" in repr(answer), route
    found = gateway.job(job.job_id)
    assert all("******" in text for text in (found.failures[0].message, found.failures[0].traceback))
    assert any("******" in event.text for event in found.events)
