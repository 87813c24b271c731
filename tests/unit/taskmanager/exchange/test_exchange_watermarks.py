"""A record never passes a watermark. If it was emitted after the watermark, it is processed after it, wherever buffers
end."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from penstock.common.watermark_strategy import WatermarkGenerator, WatermarkStrategy
from penstock.datastream.functions import ProcessWindowFunction
from penstock.datastream.output_tag import OutputTag
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.graph.transformation import Exchange, Partitioning
from penstock.records.batch import Batch, ColumnBatch, RowBatch
from penstock.taskmanager.exchange.rows import decode_buffer
from penstock.taskmanager.exchange.writers import create_writer
from penstock.testing import JobHarness
from tests.unit.taskmanager.support import exchange


def first(value: Any) -> Any:
    return value[0]


PARTITIONINGS = {
    "key group": Partitioning(Exchange.KEY_GROUP, first, 0),
    "rebalance": Partitioning(Exchange.REBALANCE),
    "rescale": Partitioning(Exchange.RESCALE),
    "shuffle": Partitioning(Exchange.SHUFFLE),
    "broadcast": Partitioning(Exchange.BROADCAST),
    "global": Partitioning(Exchange.GLOBAL),
    "forward": Partitioning(Exchange.FORWARD),
    "custom": Partitioning(Exchange.CUSTOM, first, partitioner=lambda key, n: key % n),
}


def rows(values: list[tuple[int, int]]) -> Batch:
    return RowBatch(values, [time for _, time in values])


def columns(values: list[tuple[int, int]]) -> Batch:
    keys, times = zip(*values, strict=True)
    return ColumnBatch(pa.record_batch({"key": list(keys), "time": list(times)}), None, to_rows)


def to_rows(batch: pa.RecordBatch) -> list[Any]:
    return list(zip(*(column.to_pylist() for column in batch.columns), strict=True))


@pytest.mark.parametrize("make", [rows, columns])
@pytest.mark.parametrize("parallelism", [1, 3, 12])
@pytest.mark.parametrize("partitioning", PARTITIONINGS.values(), ids=PARTITIONINGS)
def test_every_target_gets_the_watermark_before_the_records_after_it(
    partitioning: Partitioning, parallelism: int, make: Any
) -> None:
    clock: dict[int, int] = {}
    arrived = 0

    def emit(target: int, row: bytes) -> None:
        nonlocal arrived
        buffer = decode_buffer(row)
        batch = buffer.batch()
        for _, time in [] if batch is None else batch.rows().values:
            arrived += 1
            assert clock.get(target, -1) == time - 1, "the record was emitted after another watermark"
        clock[target] = max(buffer.watermark, -1)

    writer = create_writer(exchange(partitioning, parallelism), 0, emit)
    for time in range(5):
        writer.write(make([(key, time) for key in range(40)]))
        writer.write(make([(key, time) for key in range(40)]))
        writer.watermark(time)
    writer.flush()
    assert arrived == 5 * 80 * (parallelism if partitioning.exchange is Exchange.BROADCAST else 1)


class Marked(WatermarkGenerator):
    """A punctuated generator: the records contain the watermarks."""

    def on_event(self, value: Any, timestamp: int) -> int | None:
        return timestamp if value[2] else None

    def on_periodic_emit(self) -> int | None:
        return None


class Counted(ProcessWindowFunction):
    def process(self, key: str, context: Any, elements: Any) -> Iterator[tuple[str, int, int, str]]:
        updated = context.window_state().get_state(ValueStateDescriptor("updated", bool))
        yield key, context.window().end, len(list(elements)), "update" if updated.value() else "first"
        updated.update(True)

    def clear(self, context: Any) -> None:
        context.window_state().get_state(ValueStateDescriptor("updated", bool)).clear()


@pytest.mark.parametrize("parallelism", [1, 2])
def test_records_after_a_punctuated_watermark_are_late(parallelism: int) -> None:
    """All records are read at the same time. The records behind the watermark are late all the same."""
    late = OutputTag("late")
    strategy = WatermarkStrategy.for_generator(Marked).with_timestamp_assigner(lambda record: record[1])
    with JobHarness(parallelism) as harness:
        windows = (
            harness.source("readings", strategy)
            .key_by(lambda record: record[0])
            .window(TumblingEventTimeWindows.of(timedelta(seconds=10)))
            .allowed_lateness(timedelta(seconds=5))
            .side_output_late_data(late)
            .process(Counted())
        )
        harness.collect(windows, "counts")
        harness.collect(windows.get_side_output(late), "late")
        for time in (1000, 2000, 3000, 10_000, 12_000):
            harness.push("readings", ("a", time, True))
        harness.push("readings", ("a", 5000, False), ("a", 15_001, True), ("a", 5001, False))
        assert harness.outputs("counts") == [("a", 10_000, 3, "first"), ("a", 10_000, 4, "update")]
        assert harness.outputs("late") == [("a", 5001, False)]
