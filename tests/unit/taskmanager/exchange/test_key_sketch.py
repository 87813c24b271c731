"""The sketch of frequent keys: its estimates, its sampling rate, and the writers that feed it."""

from __future__ import annotations

import random
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.graph.job_graph import ExchangeSpec
from penstock.graph.transformation import Exchange, Partitioning
from penstock.records.batch import Batch, ColumnBatch, RowBatch
from penstock.state.key_groups import key_group
from penstock.taskmanager.exchange.key_group import KeyGroupWriter, OneKeyedTargetWriter
from penstock.taskmanager.exchange.key_sketch import SAMPLES_PER_S, KeySketch
from penstock.taskmanager.exchange.writers import create_writer
from tests.unit.taskmanager.support import MAX_PARALLELISM


class Time:
    """A clock that the test moves."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def fed(sketch: KeySketch, time: Time, keys: list[Any], *, batch: int, seconds: float) -> int:
    """Give keys to a sketch, in batches that are evenly distributed over the time. Return the number of samples."""
    sampled = 0
    for begin in range(0, len(keys), batch):
        part = keys[begin : begin + batch]
        time.now += seconds * len(part) / len(keys)
        picked = sketch.pick(len(part))
        if picked is not None:
            sampled += len(part[picked])
            sketch.add(part[picked])
    return sampled


def test_the_share_of_a_frequent_key_is_estimated_within_three_percent() -> None:
    time, rng = Time(), random.Random(3)
    sketch = KeySketch(128, time, time)
    keys = ["hot" if rng.random() < 0.3 else f"k{rng.randrange(5000)}" for _ in range(400_000)]
    fed(sketch, time, keys, batch=700, seconds=10.0)
    counts = sketch.take()
    assert counts is not None
    [(text, group, records)] = counts.keys
    assert (text, group) == ("'hot'", key_group("hot", 128))
    assert records / counts.total == pytest.approx(0.3, abs=0.03)
    assert counts.total == pytest.approx(400_000, rel=0.35)
    assert counts.groups[0][0] == key_group("hot", 128)


@pytest.mark.parametrize("period", [3, 8, 16, 64, 100])
@pytest.mark.parametrize("batch", [1, 64, 1000])
def test_keys_in_a_regular_order_have_equal_shares(period: int, batch: int) -> None:
    """A sample of every n-th key would contain only one of the keys if n is a multiple of the period."""
    time = Time()
    sketch = KeySketch(128, time, time)
    fed(sketch, time, [n % period for n in range(200_000)], batch=batch, seconds=5.0)
    counts = sketch.take()
    assert counts is not None
    largest = max((records for _, _, records in counts.keys), default=0)
    assert largest / counts.total < 1.4 / period + 0.02


def test_the_number_of_samples_per_second_does_not_depend_on_the_rate() -> None:
    time = Time()
    sketch = KeySketch(128, time, time)
    for rate in (1_000_000, 200_000, 2_000_000):
        keys = ["a", "b"] * (rate // 2)
        fed(sketch, time, keys, batch=1000, seconds=5.0)
        sampled = fed(sketch, time, keys, batch=1000, seconds=5.0)
        assert SAMPLES_PER_S / 2 < sampled / 5 < SAMPLES_PER_S * 2
    quiet = ["a"] * 100
    for _ in range(12):
        sampled = fed(sketch, time, quiet, batch=1, seconds=2.5)
        sketch.take()
    assert sampled == len(quiet)


def test_the_sketch_has_a_limited_number_of_keys() -> None:
    time = Time()
    sketch = KeySketch(128, time, time)
    keys: list[Any] = [n if n % 4 else "hot" for n in range(100_000)]
    for begin in range(0, len(keys), 100):
        time.now += 0.1
        sketch.add(keys[begin : begin + 100])
        assert len(sketch._counts) <= 2048
    time.now += 10
    counts = sketch.take()
    assert counts is not None
    assert [text for text, _, _ in counts.keys] == ["'hot'"]
    assert counts.keys[0][2] / counts.total == pytest.approx(0.25, abs=0.02)


def test_a_report_covers_only_the_time_since_the_last_one_and_comes_every_two_seconds() -> None:
    time = Time()
    sketch = KeySketch(128, time, time)
    sketch.add(["a"] * 100)
    assert sketch.take() is None
    time.now += 3
    first = sketch.take()
    assert first is not None
    assert first.keys[0][0] == "'a'"
    sketch.add(["b"] * 100)
    time.now += 3
    second = sketch.take()
    assert second is not None
    assert [text for text, _, _ in second.keys] == ["'b'"]
    time.now += 3
    assert sketch.take() is None


def test_the_text_of_a_key_is_short() -> None:
    time = Time()
    sketch = KeySketch(128, time, time)
    sketch.add(["x" * 100_000] * 10)
    time.now += 3
    counts = sketch.take()
    assert counts is not None
    assert len(counts.keys[0][0]) < 90


def test_keys_that_cannot_be_counted_stop_the_sketch_without_an_error() -> None:
    time = Time()
    sketch = KeySketch(128, time, time)
    sketch.add([["a list"]] * 600)
    sketch.add([["a list"]] * 600)
    time.now += 3
    assert sketch.take() is None
    assert sketch.pick(1000) is None


def keyed(parallelism: int, *, columns: bool) -> ExchangeSpec:
    partitioning = Partitioning(Exchange.KEY_GROUP, itemgetter("k"), "k")
    return ExchangeSpec(
        id=0,
        source_stage=0,
        side_tag=None,
        level=1,
        partitioning=partitioning,
        parallelism=parallelism,
        max_parallelism=MAX_PARALLELISM,
        source_parallelism=1,
        takes_columns=columns,
    )


@pytest.mark.parametrize("parallelism", [1, 4, 12])
@pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
def test_the_writers_count_the_keys_of_rows_and_of_columns(parallelism: int, columns: bool) -> None:
    time, rng = Time(), random.Random(5)
    writer = create_writer(keyed(parallelism, columns=columns), 0, lambda target, row: None)
    assert isinstance(writer, KeyGroupWriter | OneKeyedTargetWriter)
    writer._sketch = KeySketch(MAX_PARALLELISM, time, time)
    records = [{"k": "hot" if rng.random() < 0.6 else f"k{rng.randrange(500)}", "v": n} for n in range(20_000)]
    for begin in range(0, len(records), 1000):
        time.now += 0.2
        part = records[begin : begin + 1000]
        batch: Batch = RowBatch(part)
        if columns:
            batch = ColumnBatch(pa.RecordBatch.from_pylist(part), np.arange(1000), lambda rows: rows.to_pylist())
        writer.write(batch)
    counts = writer.take_key_counts()
    assert counts is not None
    text, group, found = counts.keys[0]
    assert (text, group) == ("'hot'", key_group("hot", MAX_PARALLELISM))
    assert found / counts.total == pytest.approx(0.6, abs=0.05)
