"""Several slots in one executor: the effects of its death, and the processes that keep their state."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil
import pytest

from penstock.jobmanager.runners.spark_runner import SparkRunner
from tests.integration.engine.selfcheck import processes
from tests.integration.engine.selfcheck.driver import Driver, start
from tests.integration.engine.selfcheck.job import Plan
from tests.integration.engine.selfcheck.output import verify

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.jobmanager.process.session.embedded import EmbeddedExecutor

pytestmark = [pytest.mark.spark, pytest.mark.slow]

LEVELS = 3


def slots_by_executor(driver: Driver) -> list[int]:
    return sorted(driver.executors.count(executor) for executor in set(driver.executors))


def pid_of(driver: Driver, executor: str) -> int:
    return processes.executor(driver.workers, executor)


def workers_in(driver: Driver, executor: str) -> list[psutil.Process]:
    """Return the Python workers of tasks below this executor."""
    found = [psutil.Process(pid) for pid in processes.python_workers([pid_of(driver, executor)])]
    return [process for process in found if process.environ().get("PENSTOCK_TASKS")]


def test_a_killed_executor_ends_all_of_its_slots(
    executor: EmbeddedExecutor, settings: dict[str, str], output: str
) -> None:
    plan = Plan(per_key=1_000)
    driver = start(executor, plan, output, settings).running()
    [used] = set(driver.executors)
    driver.hurt(driver.kill_executor)
    assert used not in driver.executors
    assert slots_by_executor(driver) == [2]
    driver.finished()
    verify(plan, output)


def test_a_killed_python_worker_does_not_end_the_executor_or_its_other_slots(
    executor: EmbeddedExecutor, settings: dict[str, str], output: str
) -> None:
    plan = Plan(per_key=1_000)
    driver = start(executor, plan, output, settings).running()
    runner = driver.master.runner
    assert isinstance(runner, SparkRunner)
    [used], places = set(driver.executors), runner.placement
    jvm = pid_of(driver, used)
    driver.hurt(driver.kill_python_worker)
    assert runner.placement == places
    assert pid_of(driver, used) == jvm
    driver.finished()
    verify(plan, output)


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_job_is_rescaled_over_executors_and_back(
    executor: EmbeddedExecutor, settings: dict[str, str], output: str, backend: str
) -> None:
    plan = Plan(per_key=1_800)
    driver = start(executor, plan, output, {**settings, "state.backend.type": backend}).running(1)
    assert slots_by_executor(driver) == [2]
    assert driver.ask("rescale", parallelism=4).result == 4
    driver.running(1)
    assert slots_by_executor(driver) == [2, 2]
    driver.hurt(driver.kill_executor)
    assert slots_by_executor(driver) == [2, 2]
    assert driver.ask("rescale", parallelism=2).result == 2
    driver.running(1)
    driver.hurt(driver.kill_python_worker)
    driver.finished()
    verify(plan, output)


def test_every_slot_has_separate_python_workers(
    executor: EmbeddedExecutor, settings: dict[str, str], output: str, tmp_path: Path
) -> None:
    """Batched: one worker, which every epoch uses again. Pipelined: one for each level, forked from one process."""
    plan = Plan(per_key=1_500, crash_when=str(tmp_path / "crash"))
    driver = start(executor, plan, output, settings).running(4)
    [used] = set(driver.executors)
    batched = settings["penstock.runner"] == "batched"
    count = 2 if batched else 2 * LEVELS
    before = workers_in(driver, used)
    assert len({pid for _, pid in driver.master.metrics.workers}) == count
    if batched:
        assert {process.environ()["PENSTOCK_SLOT"] for process in before} >= {f"{used}.0", f"{used}.1"}
    else:
        own = [process for process in before if "PENSTOCK_SLOT" not in process.environ()]
        assert len({process.ppid() for process in own}) == 1

    driver.hurt((tmp_path / "crash").touch)
    after = [p for p in workers_in(driver, used) if batched == ("PENSTOCK_SLOT" in p.environ())]
    assert len(after) <= count + 1, "workers of the failed attempt are left, in addition to an idle one"
    driver.finished()
    verify(plan, output)
