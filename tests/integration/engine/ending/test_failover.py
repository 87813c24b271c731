"""One fault at a time: the job recovers without help, and its output is exactly once."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.engine.selfcheck.driver import Driver, start
from tests.integration.engine.selfcheck.job import Plan
from tests.integration.engine.selfcheck.output import verify, verify_at_least_once

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.jobmanager.process.session.embedded import EmbeddedExecutor

pytestmark = [pytest.mark.spark, pytest.mark.slow]

LONG = Plan(per_key=1_000)
FAULTS: dict[str, Callable[[Driver], object]] = {
    "python-worker": Driver.kill_python_worker,
    "executor": Driver.kill_executor,
    "task-manager": Driver.kill_worker,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_job_recovers_from_a_fault(
    fault: str,
    executor: EmbeddedExecutor,
    settings: dict[str, str],
    output: str,
    record_property: Callable[[str, object], None],
) -> None:
    driver = start(executor, LONG, output, settings).running()
    seconds = driver.hurt(lambda: FAULTS[fault](driver))
    record_property("recovery_s", round(seconds, 2))
    print(f"{settings['penstock.runner']}, {fault}: output resumed after {seconds:.1f} s")
    driver.finished()
    verify(LONG, output)


def test_state_in_rocksdb_recovers_and_is_rescaled(
    executor: EmbeddedExecutor, settings: dict[str, str], output: str
) -> None:
    plan = Plan(per_key=1_500)
    driver = start(executor, plan, output, {**settings, "state.backend.type": "rocksdb"}).running()
    driver.hurt(driver.kill_python_worker)
    assert driver.ask("rescale", parallelism=3).result == 3
    driver.running(1)
    driver.hurt(driver.kill_executor)
    driver.finished()
    verify(plan, output)


def test_at_least_once_checkpoints_lose_nothing(
    executor: EmbeddedExecutor, settings: dict[str, str], output: str
) -> None:
    driver = start(executor, LONG, output, {**settings, "execution.checkpointing.mode": "AT_LEAST_ONCE"}).running()
    driver.hurt(driver.kill_python_worker)
    assert driver.ask("rescale", parallelism=3).result == 3
    driver.running(1)
    driver.hurt(driver.kill_python_worker)
    driver.finished()
    verify_at_least_once(LONG, output)


def test_subtasks_in_the_wrong_place_are_reported(
    executor: EmbeddedExecutor, settings: dict[str, str], output: str
) -> None:
    driver = start(executor, LONG, output, {**settings, "penstock.runner": "batched"}).running()
    driver.hurt(driver.misplace)
    assert any("state after epoch" in failure for failure in driver.failures), driver.failures
    driver.finished()
    verify(LONG, output)


def test_an_exception_in_user_code_is_reported_and_survived(
    executor: EmbeddedExecutor, settings: dict[str, str], output: str, tmp_path: Path
) -> None:
    plan = dataclasses.replace(Plan(per_key=250), crash_at=120, marker=str(tmp_path / "raised"))
    driver = start(executor, plan, output, settings).finished()
    verify(plan, output)
    assert driver.master.history.restarts == 1
    failure = driver.master.history.failures[0]
    assert failure.name == "UserFunctionError"
    assert "ValueError: number 120 is refused, once" in failure.message
    assert "selfcheck/job.py" in failure.message
    assert "process_element" in failure.traceback
