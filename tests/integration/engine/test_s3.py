"""Checkpoints and output on a real S3 server, which goes away for some seconds."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING

import pytest

from tests.integration.engine.selfcheck.driver import configuration, settings_for, start
from tests.integration.engine.selfcheck.job import Plan
from tests.integration.engine.selfcheck.output import verify

if TYPE_CHECKING:
    from penstock.jobmanager.process.embedded import EmbeddedExecutor
    from tools.s3server import S3Server

pytestmark = [pytest.mark.spark, pytest.mark.s3, pytest.mark.slow]

AWAY_S = 30.0


def test_the_store_is_away_for_some_seconds(executor: EmbeddedExecutor, runner: str, s3: S3Server) -> None:
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
    assert driver.master.history.restarts == 0, driver.told()
