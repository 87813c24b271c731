"""Random programs in batch mode: the outputs equal those of the reference interpreter for sorted input."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.connectors.core.function import FunctionSource
from penstock.datastream import RuntimeExecutionMode
from penstock.datastream.functions import ProcessFunction, SinkFunction, SourceFunction
from tests.in_process import environment, run
from tests.semantics.programs import KEYS, as_job, as_read, programs
from tests.semantics.reference import END, History, Record, Watermark

records = st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 20)), min_size=5, max_size=40)
"""Keys and numbers. Each record gets a different time, so that only one order of time exists."""

FOUND: dict[str, Counter[Any]] = defaultdict(Counter)


class Disordered(SourceFunction):
    """A source of a history, with watermarks that would make most records late in streaming mode."""

    def __init__(self, history: History) -> None:
        self.history = history

    def run(self, ctx: Any) -> None:
        for item in self.history:
            if isinstance(item, Record):
                ctx.collect_with_timestamp(item.value, item.time)
                ctx.emit_watermark(item.time)

    def cancel(self) -> None:
        """Do nothing, because the source ends without a call."""


class Timed(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value, ctx.timestamp()


class Keeps(SinkFunction):
    def __init__(self, name: str) -> None:
        self.name = name

    def invoke(self, value: Any, context: Any) -> None:
        FOUND[self.name][value] += 1


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    programs(), records, st.randoms(use_true_random=False), st.integers(1, 3), st.sampled_from(["hashmap", "rocksdb"])
)
def test_a_batch_job_has_the_results_of_its_program(
    tmp_path_factory: pytest.TempPathFactory, program: Any, values: Any, chance: Any, parallelism: int, backend: str
) -> None:
    history: History = [
        *(Record(value, 7 * time) for value, time in zip(values, chance.sample(range(100), len(values)), strict=True)),
        Watermark(END),
    ]
    FOUND.clear()
    env = environment(tmp_path_factory.mktemp("batch"), **{"state.backend.type": backend})
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    env.set_parallelism(parallelism)
    names: list[str] = []

    def collect(stream: Any, name: str) -> None:
        names.append(name)
        stream.process(Timed()).add_sink(Keeps(name))

    as_job(env.from_source(FunctionSource(Disordered(history), bounded=True), None, "history"), program, collect)
    run(env)
    read = as_read(history, program, batch=True)
    expected = {name: Counter((record.value, record.time) for record in found) for name, found in read.items()}
    assert {name: FOUND[name] for name in names} == expected
