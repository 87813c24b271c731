"""The JobManager dies, or freezes and resumes after another one has taken over."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.engine.selfcheck.job import Plan
from tests.integration.engine.selfcheck.main import argument
from tests.integration.engine.selfcheck.masters import Master, latest_checkpoint, wait_for_checkpoint
from tests.integration.engine.selfcheck.output import verify

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PLAN = Plan(per_key=2_000)


def test_a_killed_jobmanager_is_replaced(
    settings: dict[str, str], output: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    job_id = uuid.uuid4().hex
    spec = argument(PLAN, output, settings, job_id)
    with Master(spec, tmp_path / "first.log") as first:
        wait_for_checkpoint(tmp_path, job_id, 3, first)
        first.kill()
        reached = latest_checkpoint(tmp_path, job_id)
        with Master(spec, tmp_path / "second.log") as second:
            seconds = wait_for_checkpoint(tmp_path, job_id, reached + 1, second)
            record_property("recovery_s", round(seconds, 2))
            print(f"{settings['penstock.runner']}: output resumed {seconds:.1f} s after the JobManager was killed")
            assert second.wait() == 0, second.describe()
    verify(PLAN, output)


def test_a_zombie_jobmanager_changes_nothing(settings: dict[str, str], output: str, tmp_path: Path) -> None:
    job_id = uuid.uuid4().hex
    spec = argument(PLAN, output, settings, job_id)
    with Master(spec, tmp_path / "first.log") as zombie:
        wait_for_checkpoint(tmp_path, job_id, 3, zombie)
        zombie.stop()
        reached = latest_checkpoint(tmp_path, job_id)
        with Master(spec, tmp_path / "second.log") as second:
            wait_for_checkpoint(tmp_path, job_id, reached + 2, second)
            zombie.go_on()
            assert zombie.wait() == 3, zombie.describe()
            assert "Fenced" in zombie.describe()
            assert second.wait() == 0, second.describe()
    verify(PLAN, output)
