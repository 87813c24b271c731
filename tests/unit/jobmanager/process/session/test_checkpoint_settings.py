"""`checkpoints/config` reports the effective mode."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.graph.executor import executing_on
from penstock.jobmanager.process.session.gateway import DispatcherGateway
from penstock.jobmanager.process.session.session import Session
from penstock.rest.views.checkpoints import checkpoint_config
from tests.in_process import InProcess, environment


@pytest.mark.parametrize(
    ("configured", "message"), [("EXACTLY_ONCE", "exactly_once"), ("AT_LEAST_ONCE", "at_least_once")]
)
def test_the_mode_is_the_configured_one(tmp_path: Path, configured: str, message: str) -> None:
    env = environment(tmp_path, **{"execution.checkpointing.mode": configured})
    env.from_collection([1]).print()
    session = Session(InProcess())
    with executing_on(session):
        env.execute("job")
    gateway = DispatcherGateway(session.dispatcher, {}, session.cluster.task_managers, session.stop)
    (job,) = session.dispatcher.jobs()
    assert checkpoint_config(gateway.checkpoint_settings(job.job_id)).mode == message
