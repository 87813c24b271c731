"""Jobs without faults, on real processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.graph.executor import executing_on
from tests.integration.engine.selfcheck.driver import environment, start
from tests.integration.engine.selfcheck.job import Plan, checked
from tests.integration.engine.selfcheck.output import verify

if TYPE_CHECKING:
    from penstock.jobmanager.process.session.embedded import EmbeddedExecutor

pytestmark = pytest.mark.spark


def test_a_bounded_job_ends(executor: EmbeddedExecutor, settings: dict[str, str], output: str) -> None:
    plan = Plan(rate=4_000)
    driver = start(executor, plan, output, settings).finished()
    verify(plan, output)
    assert driver.master.history.restarts == 0
    assert driver.completed >= 1


def test_results_return_to_the_program(executor: EmbeddedExecutor, settings: dict[str, str]) -> None:
    plan = Plan(per_key=20, rate=None)
    env = environment(settings, 2)
    with executing_on(executor), checked(env, plan).execute_and_collect() as results:
        found = [(r["key"], r["number"], r["last"]) for r in results]
    assert sorted(found) == [(key, number, number - 1) for key in range(plan.keys) for number in range(plan.per_key)]


def test_a_limit_bounds_the_number_of_results(executor: EmbeddedExecutor, settings: dict[str, str]) -> None:
    env = environment(settings, 2)
    with executing_on(executor):
        assert len(checked(env, Plan(per_key=5_000, rate=2_000)).execute_and_collect(limit=10)) == 10
