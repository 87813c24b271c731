"""A job that has ended can be inspected while its JobManager runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.common.job_status import JobStatus
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.graph.executor import executing_on
from penstock.jobmanager.job.job_master import JobMaster
from penstock.jobmanager.process.session.gateway import DispatcherGateway
from penstock.jobmanager.process.session.session import Session
from penstock.rest.errors import NotFound
from penstock.rest.server import RestServer
from tests.in_process import InProcess, environment, until
from tests.unit.cli.terminal import Terminal


@pytest.fixture
def session() -> Iterator[Session]:
    session = Session(InProcess())
    yield session
    session.stop()


@pytest.fixture
def terminal(session: Session) -> Iterator[Terminal]:
    gateway = DispatcherGateway(session.dispatcher, {}, session.cluster.task_managers, lambda: None)
    with RestServer(gateway, port=0) as server:
        yield Terminal({"PENSTOCK_MASTER": server.url})


def start(session: Session, folder: Path, name: str, *, fails: bool = False) -> JobMaster:
    def work(n: int) -> int:
        if fails:
            raise ValueError("no luck")
        return n

    env = environment(folder, **{"restart-strategy.type": "none"})
    numbers = DataGeneratorSource(int, None, 100.0)
    env.from_source(numbers, None, "numbers").map(work).print()
    with executing_on(session):
        env.execute_async(name)
    return next(job for job in session.dispatcher.jobs() if job.program.name == name)


def test_a_stopped_job_keeps_its_facts(session: Session, terminal: Terminal, tmp_path: Path) -> None:
    master = start(session, tmp_path, "one")
    until(lambda: master.history.status is JobStatus.RUNNING, master)
    assert terminal("stop", "one").code == 0
    assert master.wait(60) is JobStatus.FINISHED

    info = terminal("info", "one")
    assert info.code == 0, info.err
    assert master.job_id in info.out
    assert "FINISHED" in info.out
    checkpoints = terminal("checkpoints", "one")
    assert checkpoints.code == 0, checkpoints.err
    assert "savepoint" in checkpoints.out
    refused = terminal("stop", "one")
    assert refused.code == 1
    assert f"job {master.job_id} is FINISHED" in refused.err


def test_a_failed_job_reports_the_reason(session: Session, terminal: Terminal, tmp_path: Path) -> None:
    master = start(session, tmp_path, "two", fails=True)
    assert master.wait(60) is JobStatus.FAILED
    info = terminal("info", "two")
    assert info.code == 0, info.err
    assert "no luck" in info.out


def test_the_memory_of_ended_jobs_is_bounded(session: Session, tmp_path: Path) -> None:
    gateway = DispatcherGateway(session.dispatcher, {}, session.cluster.task_managers, lambda: None)
    ids = []
    for number in range(8):
        env = environment(tmp_path, **{"jobstore.max-capacity": "3"})
        env.from_collection([number]).add_sink(lambda n: None)
        with executing_on(session):
            ids.append(str(env.execute(f"job {number}").get_job_id()))
    assert [job.id for job in gateway.jobs()] == ids[-4:]
    assert gateway.job(ids[-1]).name == "job 7"
    with pytest.raises(NotFound):
        gateway.job(ids[0])
    known = {found.labels.get("job_id") for found in session.dispatcher.metric_store.collect()}
    assert known.isdisjoint(ids[:4])
    assert known.issuperset(ids[-4:])


def test_an_ended_job_is_kept_for_its_time_and_until_another_ends(session: Session, tmp_path: Path) -> None:
    ids = []
    for _ in range(2):
        env = environment(tmp_path, **{"jobstore.expiration-time": "0 s"})
        env.from_collection([1]).add_sink(lambda n: None)
        with executing_on(session):
            ids.append(str(env.execute("short").get_job_id()))
        time.sleep(0.01)
    assert [job.job_id for job in session.dispatcher.jobs()] == ids[-1:]
