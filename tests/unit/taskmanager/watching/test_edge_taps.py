"""The last records on an edge of a job in this process."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pytest

from penstock.common.stacks.edge_records import MAX_CHARS, EdgeQuestion, EdgeRecord
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.simple.datagen import DataGeneratorSource
from penstock.datastream import OutputTag
from penstock.graph.executor import executing_on
from penstock.jobmanager.job.requests import Operation
from penstock.jobmanager.process.session.session import Session
from penstock.records.batch import ColumnBatch
from penstock.records.columns import rows_as_dicts
from penstock.taskmanager.chain import ChainedOutput
from penstock.taskmanager.watching.edge_taps import _as_text, _Tap
from tests.in_process import InProcess, environment, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ODD = OutputTag("odd")


class Unprintable:
    def __repr__(self) -> str:
        raise ValueError("no text")


def split(value: int, ctx: Any) -> Iterator[Any]:
    yield (ODD, value) if value % 2 else value


class Job:
    """A job of numbers at 200 records/s, with a chain, a side output, a `key_by` and an edge without records."""

    def __init__(self, folder: Path, what: Callable[[int], Any] = int) -> None:
        env = environment(folder)
        env.set_parallelism(2)
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: value * 1000)
        numbers = env.from_source(DataGeneratorSource(int, None, 200.0), strategy, "numbers").uid("numbers")
        parts = numbers.process(split).name("split").uid("split")
        parts.get_side_output(ODD).map(what).name("odd").uid("odd").filter(lambda value: False).print()
        even = parts.key_by(lambda value: f"key {value % 3}").map(lambda value: -value).name("even").uid("even")
        even.filter(lambda value: value > 0).name("none").uid("none").print()
        self.cluster = InProcess()
        session = Session(self.cluster)
        session.on_line = None
        with executing_on(session):
            env.execute_async("numbers")
        self.master = session.dispatcher.jobs()[0]
        until(lambda: len(self.outputs("split")) == 2, self.master)

    def peek(self, uid: str, tag: str | None = None, count: int = 4, seconds: float = 20.0) -> list[EdgeRecord]:
        return self.cluster.records("", EdgeQuestion(self.master.job_id, uid, tag, count, seconds))

    def outputs(self, uid: str) -> list[ChainedOutput]:
        tasks = [task for runner in self.cluster.runners for task in runner.tasks()]
        found = [subtask.output_of(uid) for task in tasks for subtask in task.subtasks]
        return [output for output in found if output is not None]

    def close(self) -> None:
        self.master.request(Operation("cancel"))
        self.master.wait(20)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    found = Job(tmp_path)
    yield found
    found.close()


def test_an_edge_inside_of_a_chain_shows_the_last_records_with_their_event_time(job: Job) -> None:
    found = job.peek("numbers")
    assert len(found) == 4
    assert [record.timestamp for record in found] == [int(record.text) * 1000 for record in found]
    assert {record.key for record in found} == {None}
    assert all(abs(record.seen_at - time.time() * 1000) < 20_000 for record in found)
    assert [record.seen_at for record in found] == sorted(record.seen_at for record in found)


def test_the_records_of_a_question_are_those_after_it(job: Job) -> None:
    first = max(int(record.text) for record in job.peek("numbers"))
    assert min(int(record.text) for record in job.peek("numbers")) > first - 20


def test_an_exchange_shows_the_key(job: Job) -> None:
    for record in job.peek("split"):
        assert int(record.text) % 2 == 0
        assert record.key == repr(f"key {int(record.text) % 3}")


def test_a_side_output_has_its_own_records(job: Job) -> None:
    assert all(int(record.text) % 2 for record in job.peek("split", "odd"))


def test_an_edge_without_records_has_no_answer_after_the_wait(job: Job) -> None:
    began = time.monotonic()
    assert job.peek("none", seconds=0.3) == []
    assert time.monotonic() - began < 5


def test_nothing_observes_an_edge_after_the_answer(job: Job) -> None:
    job.peek("split")
    job.peek("split", "odd")
    for output in job.outputs("split"):
        assert len(output._main) == 1
        assert [len(consumers) for consumers in output._sides.values()] == [1]


def test_a_record_that_has_no_text_is_shown_with_the_reason_and_the_job_keeps_running(tmp_path: Path) -> None:
    job = Job(tmp_path, lambda value: Unprintable() if value % 4 == 1 else "x" * 10_000)
    try:
        texts = {record.text for record in job.peek("odd", count=20)}
        assert "<Unprintable without a text: ValueError('no text')>" in texts
        assert all(len(text) <= MAX_CHARS for text in texts)
        assert not job.master.history.failures
    finally:
        job.close()


def test_records_in_columns_are_shown_as_the_rows_that_functions_get() -> None:
    output, enough = ChainedOutput(), threading.Event()
    seen: list[Any] = []
    output._add(None, seen.append)
    question = EdgeQuestion("job", "uid", count=3)
    tap = _Tap(cast("Any", SimpleNamespace(index=1)), question, output, enough)
    columns = pa.record_batch({"a": list(range(8)), "b": ["x"] * 8})
    batch = ColumnBatch(columns, np.arange(8) * 1000, rows_as_dicts)
    output.emit(batch.slice(0, 2))
    assert not enough.is_set()
    output.emit(batch.slice(2, 8))
    assert enough.is_set()
    tap.detach()
    output.emit(batch)
    found = _as_text(tap.take(lambda row: row["a"] % 2))
    assert [(record.text, record.timestamp, record.key, record.subtask) for record in found] == [
        (f"{{'a': {n}, 'b': 'x'}}", n * 1000, str(n % 2), 1) for n in (5, 6, 7)
    ]
    assert [len(one) for one in seen] == [2, 6, 8], "the consumers get every batch once"
