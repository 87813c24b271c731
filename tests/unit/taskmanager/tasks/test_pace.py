"""A slow function gets small batches, so that the work between two batches does not wait for thousands of calls."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.connectors.simple.datagen import DataGeneratorSource
from penstock.records.batch import Batch, RowBatch
from penstock.taskmanager.operators.connectors.source import READ_BYTES, READ_RECORDS, SourceOperator
from penstock.taskmanager.pace import FEW, GOOD_S, LONGEST_S, Pace
from penstock.taskmanager.protocol import SplitAssignment


class Behind:
    """The operators after the source, which take this long per record."""

    def __init__(self, clock: SimpleNamespace, seconds: float) -> None:
        self.clock = clock
        self.seconds = seconds
        self.sizes: list[int] = []
        self.values: list[Any] = []

    def emit(self, batch: Batch) -> None:
        self.sizes.append(len(batch))
        self.values += batch.rows().values
        self.clock.at += self.seconds * len(batch)

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    fake = SimpleNamespace(at=0.0)
    monkeypatch.setattr(
        "penstock.taskmanager.operators.connectors.source.time",
        SimpleNamespace(perf_counter=lambda: fake.at, time=time.time),
    )
    return fake


def source_into(behind: Behind, record: Any = int) -> SourceOperator:
    source = SourceOperator(DataGeneratorSource(record, splits=1), None)
    split = source.source.create_enumerator().discover()[0]
    context: Any = SimpleNamespace(
        subtask=0,
        parallelism=1,
        uid="source",
        object_store_options={},
        clock=SimpleNamespace(now_ms=lambda: 0, monotonic_ms=lambda: 0),
        auto_watermark_interval_ms=200,
        named_in_errors=pytest.MonkeyPatch.context,
    )
    source.setup(context, behind)
    source.assign([SplitAssignment(split.id, split.properties)], ends=True)
    return source


def read(source: SourceOperator, batches: int) -> None:
    reader = source.read(0)
    for _ in range(batches):
        next(reader)


def test_a_function_of_50_ms_allows_commands_after_a_few_records(clock: SimpleNamespace) -> None:
    behind = Behind(clock, 0.05)
    source = source_into(behind)
    read(source, 20)
    assert max(behind.sizes) <= LONGEST_S / 0.05
    [position] = source.progress().positions.values()
    assert position == len(behind.values)
    assert behind.values == list(range(position))


def test_a_fast_function_quickly_gets_full_batches(clock: SimpleNamespace) -> None:
    behind = Behind(clock, 1e-7)
    read(source_into(behind), 20)
    assert behind.sizes[-1] == READ_RECORDS


@pytest.mark.parametrize("record_s", [1e-6, 3e-6, 8e-6])
def test_a_batch_of_many_records_does_not_exceed_its_time_limit(clock: SimpleNamespace, record_s: float) -> None:
    behind = Behind(clock, record_s)
    read(source_into(behind), 30)
    assert all(size * record_s <= GOOD_S * 1.001 for size in behind.sizes)
    assert behind.sizes[-1] * record_s > GOOD_S * 0.9


def test_fast_records_do_not_get_small_batches(clock: SimpleNamespace) -> None:
    behind = Behind(clock, 1e-4)
    read(source_into(behind), 30)
    assert behind.sizes[-1] == FEW


def test_a_function_that_becomes_slow_gets_small_batches_from_the_next_one_on(clock: SimpleNamespace) -> None:
    behind = Behind(clock, 1e-7)
    source = source_into(behind)
    read(source, 20)
    behind.seconds = 0.01
    read(source, 2)
    assert behind.sizes[-1] <= LONGEST_S / 0.01
    behind.seconds = 1e-7
    read(source, 20)
    assert behind.sizes[-1] == READ_RECORDS


def test_large_records_make_small_batches(clock: SimpleNamespace) -> None:
    """The reader creates records one by one and does not know their size."""
    behind = Behind(clock, 0)
    read(source_into(behind, lambda index: bytes(1_000_000)), 10)
    assert max(behind.sizes) * 1_000_000 <= READ_BYTES


def test_an_epoch_ends_with_its_records_or_its_bytes(clock: SimpleNamespace) -> None:
    behind = Behind(clock, 0)
    source = source_into(behind)
    source.begin_epoch(max_records=100)
    assert sum(source.read(0)) == 100
    assert not list(source.read(0))
    assert source.has_spent_budget
    source.begin_epoch(max_records=50)
    assert sum(source.read(0)) == 50
    large = source_into(behind, lambda index: bytes(100_000))
    large.begin_epoch(max_bytes=10_000_000)
    assert 50 <= sum(large.read(0)) <= 200


@pytest.mark.parametrize("fixed_s", [0.01, 0.15, 0.5, 3.0])
def test_a_fixed_cost_per_batch_does_not_make_batches_small(fixed_s: float) -> None:
    """Examples are a request to an object store, and the transfer of the output."""
    pace = Pace(10_000)
    for _ in range(30):
        pace.record_batch(pace.records, fixed_s + 1e-6 * pace.records)
    assert pace.records > 5_000


def test_a_reader_that_returns_slightly_fewer_records_than_allowed_gets_full_batches() -> None:
    pace = Pace(10_000)
    for _ in range(20):
        pace.record_batch(max(1, int(0.9 * pace.records)), 1e-7 * pace.records)
    assert pace.records == 10_000


@pytest.mark.parametrize("record_s", [0.001, 0.05, 0.3, 2.0])
def test_slow_records_make_small_batches_despite_a_fixed_cost(record_s: float) -> None:
    pace = Pace(10_000)
    took = []
    for _ in range(40):
        took.append(0.1 + record_s * pace.records)
        pace.record_batch(pace.records, took[-1])
    assert max(took[10:]) <= 0.11 + 2 * max(LONGEST_S, record_s)


def test_a_pace_is_never_zero() -> None:
    pace = Pace(10, max_bytes=100)
    for seconds, size in ((100.0, 10**9), (0.0, 0), (0.0, 10**9)):
        pace.record_batch(pace.records, seconds, size)
        assert 1 <= pace.records <= 10
    pace.record_batch(0, 5.0)
    assert pace.records >= 1


def test_a_batch_reports_its_approximate_size() -> None:
    assert RowBatch([]).approximate_bytes() == 0
    for value in (bytes(100_000), ("key", [bytes(50_000), bytes(50_000)]), {"content": "x" * 100_000}):
        assert 100_000 <= RowBatch([value] * 10).approximate_bytes() / 10 <= 101_000
