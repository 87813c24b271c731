"""Changes of a job by its operator: stop with a savepoint and start elsewhere, rescale while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.common.job_status import JobStatus
from penstock.jobmanager.process.session.session import SubmitOptions
from tests.integration.engine.selfcheck.driver import start
from tests.integration.engine.selfcheck.job import Plan
from tests.integration.engine.selfcheck.output import verify

if TYPE_CHECKING:
    from penstock.jobmanager.process.session.embedded import EmbeddedExecutor

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_a_job_is_stopped_with_a_savepoint_and_restored_at_another_parallelism(
    executor: EmbeddedExecutor, settings: dict[str, str], output: str
) -> None:
    plan = Plan(per_key=1_200)
    first = start(executor, plan, output, settings, parallelism=2).running()
    location = first.ask("stop").location
    first.master.wait(30)
    assert first.master.history.status is JobStatus.FINISHED
    assert location is not None
    verify(plan, output, complete=False)
    submit = SubmitOptions(restore_path=location)
    start(executor, plan, output, settings, parallelism=3, submit=submit).finished()
    verify(plan, output)


def test_a_savepoint_is_taken_while_the_job_continues(
    executor: EmbeddedExecutor, settings: dict[str, str], output: str
) -> None:
    plan = Plan(per_key=900)
    driver = start(executor, plan, output, settings).running()
    location = driver.ask("savepoint").location
    assert location is not None
    driver.finished()
    verify(plan, output)
    assert driver.master.history.restarts == 0
    # The savepoint is a separate branch: another output, which starts at the savepoint.
    branch = start(executor, plan, f"{output}-2", settings, parallelism=1, submit=SubmitOptions(restore_path=location))
    branch.finished()
    assert branch.master.history.restarts == 0


def test_a_job_is_rescaled_live(executor: EmbeddedExecutor, settings: dict[str, str], output: str) -> None:
    plan = Plan(per_key=1_500)
    driver = start(executor, plan, output, settings, parallelism=2).running()
    for parallelism in (3, 1):
        assert driver.ask("rescale", parallelism=parallelism).result == parallelism
        driver.running(1)
    driver.finished()
    verify(plan, output)
    assert [r.new_parallelism for r in driver.master.history.rescales] == [3, 1]
    assert driver.master.history.restarts == 0


def test_a_job_is_rescaled_beyond_the_available_slots(
    executor: EmbeddedExecutor, settings: dict[str, str], output: str
) -> None:
    plan = Plan(per_key=2_000)
    driver = start(executor, plan, output, settings, parallelism=1).running()
    more = sum(len(worker.slots) for worker in executor.provider.task_managers()) + 1
    assert driver.ask("rescale", parallelism=more).result == more
    driver.finished()
    verify(plan, output)
    assert driver.master.history.restarts == 0
