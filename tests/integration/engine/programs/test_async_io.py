"""A slow service behind an async function: every checkpoint has pending requests, and a killed worker loses and repeats no result."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.connectors.simple.datagen import DataGeneratorSource
from penstock.datastream import AsyncDataStream
from penstock.datastream.connectors.file_system import FileSink
from penstock.datastream.functions import AsyncFunction
from tests.integration.engine.selfcheck.driver import Driver, environment, submitted

if TYPE_CHECKING:
    from penstock.jobmanager.process.session.embedded import EmbeddedExecutor

pytestmark = pytest.mark.spark

COUNT = 800
RATE = 100.0
ANSWER_S = 1.5


class SlowService(AsyncFunction):
    """A function that takes longer than the time between two checkpoints."""

    async def async_invoke(self, value: int) -> list[str]:
        await asyncio.sleep(ANSWER_S * (1 + value % 3) / 3)
        return [f"{value}={value * value}"]


def in_flight(driver: Driver) -> int:
    """Return the number of inputs in the newest checkpoint."""
    attempt = driver.master.checkpoints.coordinator._attempt
    assert attempt is not None
    assert attempt.completed.newest is not None
    parts = attempt.completed.newest.states["asks"].operator
    return sum(len(part["async-in-flight"]["items"]) for part in parts if part)


@pytest.mark.parametrize(
    "runner", [pytest.param("batched", marks=pytest.mark.slow), "pipelined"], indirect=True, scope="session"
)
def test_pending_requests_survive_a_killed_worker(
    executor: EmbeddedExecutor, settings: dict[str, str], tmp_path: Path
) -> None:
    env = environment(settings, 2)
    numbers = env.from_source(DataGeneratorSource(int, COUNT, RATE, splits=2), None, "numbers").uid("numbers")
    answers = AsyncDataStream.unordered_wait(numbers.rebalance(), SlowService(), 60_000, capacity=200).uid("asks")
    folder = tmp_path / "output"
    answers.sink_to(FileSink.for_row_format(f"file://{folder}", str).build()).uid("end")
    driver = submitted(executor, env, "asks").running(2)
    driver.wait_for(lambda: in_flight(driver) > 0, "a checkpoint with requests")
    driver.hurt(driver.kill_python_worker)
    driver.finished()
    lines = Counter(line for path in folder.rglob("part-*") for line in path.read_text().splitlines())
    assert lines == Counter(f"{n}={n * n}" for n in range(COUNT))
