"""Checkpoints and output on a real S3 server, which is down for some seconds."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING

import pytest

from tests.integration.engine.selfcheck.driver import configuration, settings_for, start
from tests.integration.engine.selfcheck.job import Plan
from tests.integration.engine.selfcheck.output import verify

if TYPE_CHECKING:
    from penstock.jobmanager.process.session.embedded import EmbeddedExecutor
    from tools.servers.s3 import S3Server

pytestmark = [pytest.mark.spark, pytest.mark.s3, pytest.mark.slow]

AWAY_S = 30.0


def test_a_job_survives_a_store_that_is_down_for_some_seconds(
    executor: EmbeddedExecutor, runner: str, s3: S3Server
) -> None:
    plan = Plan(per_key=3_000)
    folder = f"s3://engine/{uuid.uuid4().hex}"
    settings = {**configuration(runner, folder), **settings_for(s3)}
    driver = start(executor, plan, f"{folder}/output", settings).running()
    s3.pause()
    time.sleep(AWAY_S)
    s3.resume()
    driver.running(2)
    driver.finished()
    verify(plan, f"{folder}/output", s3.storage_options())
    assert driver.master.history.restarts == 0, driver.describe()
