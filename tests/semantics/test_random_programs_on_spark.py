"""Random programs as in `test_random_programs`, on clusters of real processes, with a killed worker and a rescale."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from penstock.connectors.core.function import FunctionSource
from penstock.datastream.connectors.file_system import FileSink
from penstock.datastream.functions import ProcessFunction, SourceFunction
from tests.integration.engine.selfcheck.driver import configuration, environment, submitted
from tests.semantics.programs import as_job, as_read, programs
from tests.semantics.reference import History, Record
from tests.semantics.test_random_programs import history_of, pushes, watermarks

if TYPE_CHECKING:
    from penstock.jobmanager.process.session.embedded import EmbeddedExecutor

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PAUSE_S = 0.05
"""Pause between two events (s). A history takes about 15 s, so that checkpoints, a kill and a rescale occur during it."""

histories = st.lists(st.one_of(pushes, pushes, pushes, watermarks), min_size=250, max_size=300).map(history_of)


class Replayed(SourceFunction):
    """A source of a history, which continues at the position of the last checkpoint."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.position = 0

    def initialize_state(self, state: int | None) -> None:
        self.position = state or 0

    def snapshot_state(self) -> int:
        return self.position

    def run(self, ctx: Any) -> None:
        while self.position < len(self.history) - 1:  # the end of the source emits the end of time
            item = self.history[self.position]
            with ctx.get_checkpoint_lock():
                self.position += 1
                if isinstance(item, Record):
                    ctx.collect_with_timestamp(item.value, item.time)
                else:
                    ctx.emit_watermark(item.time)
            time.sleep(PAUSE_S)

    def cancel(self) -> None:
        self.position = len(self.history)


class Described(ProcessFunction):
    """A function that emits a line with the output's name, the value and its event time."""

    def __init__(self, name: str) -> None:
        self.name = name

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield repr((self.name, value, ctx.timestamp()))


@settings(
    max_examples=2, deadline=None, derandomize=True, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)
@given(program=programs(), history=histories)
def test_a_job_has_the_results_of_its_program_in_spite_of_failures(
    executor: EmbeddedExecutor,
    runner: str,
    tmp_path_factory: pytest.TempPathFactory,
    program: Any,
    history: History,
) -> None:
    folder = tmp_path_factory.mktemp("random")
    env = environment(configuration(runner, f"file://{folder}"), 2)
    source = env.from_source(FunctionSource(Replayed(history), bounded=True), None, "history").uid("history")

    def collect(stream: Any, name: str) -> None:
        lines = stream.process(Described(name)).uid(f"told-{name}")
        lines.sink_to(FileSink.for_row_format(f"file://{folder}/out/{name}", str).build()).uid(f"sink-{name}")

    as_job(source, program, collect)
    driver = submitted(executor, env, "random").running(2)
    driver.hurt(driver.kill_python_worker)
    driver.ask("rescale", parallelism=3)
    driver.finished()
    read = as_read(history, program)
    expected = Counter(repr((name, r.value, r.time)) for name, records in read.items() for r in records)
    found = Counter(line for path in (folder / "out").rglob("part-*") for line in Path(path).read_text().splitlines())
    assert found == expected
