"""Rows in an iteration while workers are killed and the job is rescaled: each number's path to 1, exactly once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.common.typeinfo import Types
from penstock.connectors.simple.datagen import DataGeneratorSource
from penstock.datastream.connectors.file_system import FileSink
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.output_tag import OutputTag
from penstock.datastream.state import ValueStateDescriptor
from tests.integration.engine.selfcheck.driver import environment, submitted

if TYPE_CHECKING:
    from penstock.jobmanager.process.session.embedded import EmbeddedExecutor

pytestmark = pytest.mark.spark

COUNT = 600
RATE = 60.0
MET = OutputTag("met", Types.STRING())


class Collatz(KeyedProcessFunction):
    """A function whose state counts how often each number was seen."""

    def open(self, runtime_context: Any) -> None:
        self._met = runtime_context.get_state(ValueStateDescriptor("met", Types.LONG()))

    def process_element(self, value: int, ctx: Any) -> Iterator[Any]:
        met = (self._met.value() or 0) + 1
        self._met.update(met)
        yield MET, f"{value} {met}"
        if value > 1:
            yield value // 2 if value % 2 == 0 else 3 * value + 1


def expected() -> Counter[str]:
    met: Counter[int] = Counter()
    for number in range(1, COUNT + 1):
        met[number] += 1
        while number > 1:
            number = number // 2 if number % 2 == 0 else 3 * number + 1
            met[number] += 1
    return Counter(f"{value} {count}" for value, most in met.items() for count in range(1, most + 1))


@pytest.mark.parametrize(
    "runner", [pytest.param("batched", marks=pytest.mark.slow), "pipelined"], indirect=True, scope="session"
)
def test_rows_iterate_exactly_once_over_kills_and_a_rescale(
    executor: EmbeddedExecutor, settings: dict[str, str], tmp_path: Path
) -> None:
    env = environment(settings, 2)
    source = DataGeneratorSource(lambda index: index + 1, COUNT, RATE, splits=2, type_info=Types.LONG())
    iteration = env.from_source(source, None, "numbers").uid("numbers").iterate().uid("again")
    stepped = iteration.key_by(lambda number: number).process(Collatz(), Types.LONG()).uid("collatz")
    iteration.close_with(stepped)
    folder = tmp_path / "output"
    stepped.get_side_output(MET).sink_to(FileSink.for_row_format(f"file://{folder}", str).build()).uid("end")
    driver = submitted(executor, env, "collatz").running(2)
    driver.wait_for(lambda: driver.master.parts.sources["again"].has_splits, "a first iteration")
    driver.hurt(driver.kill_python_worker)
    assert driver.ask("rescale", parallelism=1).result == 1
    driver.running(1)
    driver.hurt(driver.kill_python_worker)
    driver.finished()
    lines = Counter(line for path in folder.rglob("part-*") for line in path.read_text().splitlines())
    assert lines == expected()
