"""A table's changes into another table in Spark's Python workers. Both end up equal.

A worker and an executor are killed. The job is rescaled, stopped with a savepoint and restored from it."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING

import pytest

from penstock.jobmanager.process.session.session import SubmitOptions
from tests.integration.engine.selfcheck.driver import Driver, configuration, environment, submitted
from tests.integration.postgres.cdc.captures import CapturedTable, logical
from tests.integration.postgres.cdc.mirrored_job import mirrors
from tests.integration.postgres.tables import Table

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.jobmanager.process.session.embedded import EmbeddedExecutor
    from tools.servers.postgres import PostgresServer

__all__ = ["logical"]
pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]


def test_the_tables_are_equal_after_killed_workers_a_rescale_and_a_restored_savepoint(
    logical: PostgresServer, executor: EmbeddedExecutor, runner: str, tmp_path: Path
) -> None:
    chance = random.Random(7)
    table, mirror = CapturedTable(logical), Table(logical, "id bigint primary key, key text, n bigint")
    table.load(chance, 200)

    def started(parallelism: int, restore: str = "") -> Driver:
        env = environment(configuration(runner, tmp_path.as_uri()), parallelism)
        mirrors(env, logical.conninfo, table.name, mirror.name)
        return submitted(executor, env, "mirrored", SubmitOptions(restore_path=restore))

    def loading() -> threading.Thread:
        load = threading.Thread(target=table.load, args=(random.Random(chance.random()), 200))
        load.start()
        return load

    def equal(driver: Driver) -> None:
        driver.wait_for(
            lambda: mirror.execute(f"select * from {mirror.name} order by 1") == table.rows(), "it is equal"
        )

    driver = started(2)
    load = loading()
    driver.wait_for(lambda: bool(mirror.ids()), "rows were committed")
    driver.hurt(driver.kill_python_worker)
    load.join()
    equal(driver)
    load = loading()
    assert driver.ask("rescale", parallelism=1).result == 1
    load.join()
    load = loading()
    driver.hurt(driver.kill_executor)
    load.join()
    equal(driver)
    savepoint = driver.ask("stop").location
    assert savepoint is not None
    driver.finished()
    table.load(chance, 100)
    restored = started(2, savepoint)
    equal(restored)
    restored.ask("stop")
    restored.finished()
    table.forget()
