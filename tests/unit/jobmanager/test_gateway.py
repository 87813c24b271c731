"""What REST is told of a JobManager that runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.common.executor import executing_on
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.jobmanager.gateway import DispatcherGateway
from penstock.jobmanager.job_master import JobMaster
from penstock.jobmanager.session import Session
from penstock.rest.views.checkpoints import checkpoint_config
from tests.in_process import InProcess, environment


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


def test_the_checkpoint_configuration_is_what_is_in_effect(session: Session, tmp_path: Path) -> None:
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
    gateway = DispatcherGateway(session.dispatcher, {}, lambda: 0, lambda: None)
    shown = checkpoint_config(gateway.checkpoint_settings(job.job_id))
    assert (shown.mode, shown.max_concurrent) == ("exactly_once", 1)
    assert (shown.interval, shown.timeout, shown.retained_checkpoints) == (100, 60_000, 2)
    assert (shown.externalization.enabled, shown.externalization.delete_on_cancellation) == (True, False)


def test_checkpoints_without_a_directory_do_not_outlive_their_job(session: Session, tmp_path: Path) -> None:
    job = start(session, tmp_path, **{"execution.checkpointing.dir": "", "execution.checkpointing.interval": "0"})
    gateway = DispatcherGateway(session.dispatcher, {}, lambda: 0, lambda: None)
    shown = checkpoint_config(gateway.checkpoint_settings(job.job_id))
    assert shown.interval == 0
    assert (shown.externalization.enabled, shown.externalization.delete_on_cancellation) == (False, True)
