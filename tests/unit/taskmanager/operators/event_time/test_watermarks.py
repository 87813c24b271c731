"""Timestamps, watermarks and idleness: the strategy, its generators, the operator."""

from __future__ import annotations

import pickle
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.common.errors import InvalidJob, RecordFormatError, UserFunctionError
from penstock.common.time import Duration, Instant
from penstock.common.types import Row
from penstock.common.watermark_strategy import TimestampAssigner, WatermarkGenerator, WatermarkStrategy
from penstock.records.batch import MAX_TIMESTAMP, MIN_TIMESTAMP, ColumnBatch, RowBatch
from penstock.records.columns import rows_as_dicts
from penstock.taskmanager.operators.event_time.watermark_generator import create_generator
from penstock.taskmanager.operators.event_time.watermarks import TimestampsAndWatermarksOperator
from penstock.testing.operator_run import IDLE, WATERMARK, OperatorRun

BOUNDED = WatermarkStrategy.for_bounded_out_of_orderness(timedelta(seconds=10)).with_timestamp_assigner("ts")


def reading(ts: int, sensor: str = "s") -> dict[str, Any]:
    return {"ts": ts, "id": sensor}


def run_of(strategy: WatermarkStrategy, **options: Any) -> OperatorRun:
    return OperatorRun(TimestampsAndWatermarksOperator(strategy), **options)


def watermarks(run: OperatorRun) -> list[int]:
    return [value for kind, value in run.events if kind == WATERMARK]


def test_bounded_strategy_keeps_its_distance_to_the_newest_record() -> None:
    """The bound is 10 s. The watermark is the same as in PyFlink: the newest timestamp minus the bound minus 1 ms."""
    run = run_of(BOUNDED)
    for now, ts in enumerate((10_000, 25_000, 14_000), 1):
        run.push(reading(ts)).at_time(now * 200)
    assert run.events == [
        (reading(10_000), 10_000),
        (WATERMARK, -1),
        (reading(25_000), 25_000),
        (WATERMARK, 14_999),
        (reading(14_000), 14_000),
    ]


def test_monotonous_strategy_keeps_a_distance_of_1_ms() -> None:
    run = run_of(WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("ts"))
    run.push(reading(1), reading(5)).at_time(200).push(reading(9)).at_time(400)
    assert watermarks(run) == [4, 8]


def test_descending_records_of_one_interval_are_all_on_time() -> None:
    run = run_of(WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("ts"))
    for ts in range(90, 0, -10):
        run.push(reading(ts)).at_time(run.clock.now + 20)
    assert watermarks(run) == []
    assert run.operator.next_processing_time() == 200
    assert watermarks(run.at_time(200)) == [89]
    assert run.operator.next_processing_time() is None, "a task without a pending watermark is not woken"


def test_no_watermarks_strategy_emits_only_the_final_watermark() -> None:
    run = run_of(WatermarkStrategy.no_watermarks().with_timestamp_assigner("ts")).push(reading(5)).at_time(10_000).end()
    assert run.results == [(reading(5), 5)]
    assert watermarks(run) == [MAX_TIMESTAMP]


class MinuteBehind(WatermarkGenerator):
    """A generator whose watermark is one minute behind the newest record."""

    def __init__(self) -> None:
        self.newest = MIN_TIMESTAMP + 60_000

    def on_event(self, value: Any, timestamp: int) -> None:
        self.newest = max(self.newest, timestamp)

    def on_periodic_emit(self) -> int:
        return self.newest - 60_000


def test_periodic_generator_is_called_at_the_interval_only() -> None:
    """The interval is 5,000 ms. No watermark is emitted between two calls, and the watermark never decreases."""
    strategy = WatermarkStrategy.for_generator(MinuteBehind).with_timestamp_assigner("ts")
    run = run_of(strategy, auto_watermark_interval_ms=5000)
    run.push(reading(100_000)).at_time(4999)
    assert watermarks(run) == []
    run.at_time(5000)
    assert watermarks(run) == [40_000]
    run.push(reading(90_000)).at_time(10_000)
    assert watermarks(run) == [40_000]
    run.push(reading(200_000)).at_time(14_999)
    assert watermarks(run) == [40_000]
    assert run.operator.next_processing_time() == 15_000
    assert watermarks(run.at_time(15_000)) == [40_000, 140_000]


class OfSensorOne(WatermarkGenerator):
    """A generator that emits a watermark for the records of sensor_1."""

    def on_event(self, value: Any, timestamp: int) -> int | None:
        return timestamp - 60_000 if value["id"] == "sensor_1" else None


def test_punctuated_watermarks_directly_follow_their_record() -> None:
    """Only sensor_1 emits watermarks, and those that do not rise are dropped. The batch is split at each of them."""
    strategy = WatermarkStrategy.for_generator(OfSensorOne).with_timestamp_assigner("ts")
    records = [
        reading(70_000, "sensor_2"),
        reading(80_000, "sensor_1"),
        reading(75_000, "sensor_1"),
        reading(90_000, "sensor_2"),
        reading(85_000, "sensor_1"),
    ]
    run = run_of(strategy).push(*records)
    assert run.events == [
        (records[0], 70_000),
        (records[1], 80_000),
        (WATERMARK, 20_000),
        (records[2], 75_000),
        (records[3], 90_000),
        (records[4], 85_000),
        (WATERMARK, 25_000),
    ]


def test_punctuated_watermarks_also_split_columns() -> None:
    strategy = WatermarkStrategy.for_generator(OfSensorOne).with_timestamp_assigner("ts")
    columns = pa.RecordBatch.from_pydict({"ts": [61_000, 62_000, 63_000], "id": ["sensor_1", "x", "sensor_1"]})
    run = run_of(strategy).push_batch(ColumnBatch(columns, None, rows_as_dicts))
    assert [event if event[0] == WATERMARK else event[1] for event in run.events] == [
        61_000,
        (WATERMARK, 1000),
        62_000,
        63_000,
        (WATERMARK, 3000),
    ]
    assert all(isinstance(batch, ColumnBatch) for batch in run.output.batches)


class FromTuple(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


def plus_one(value: Any, record_timestamp: int) -> int:
    return record_timestamp + 1


@pytest.mark.parametrize(
    ("assigner", "record", "previous", "expected"),
    [
        (FromTuple(), ("a", 7), None, 7),
        (lambda value: value[1], ("a", 7), None, 7),
        (plus_one, "x", 41, 42),
        (plus_one, "x", None, MIN_TIMESTAMP + 1),
        ("ts", Row(ts=7), None, 7),
        ("ts", {"ts": datetime(1970, 1, 1, 0, 0, 1)}, None, 1000),
        ("ts", {"ts": datetime(1970, 1, 1, 1, tzinfo=UTC)}, None, 3_600_000),
        ("ts", {"ts": Instant.of_epoch_milli(5)}, None, 5),
        ("ts", {"ts": np.int64(5)}, None, 5),
        ("ts", {"ts": date(1970, 1, 2)}, None, 86_400_000),
        ("ts", {"ts": datetime(1969, 12, 31, 23, 59, 59, 999_500)}, None, -1),
        ("ts", {"ts": np.datetime64("1969-12-31T23:59:59.999500")}, None, -1),
        ("ts", {"ts": np.datetime64("1970-01-01T00:00:01.500")}, None, 1500),
    ],
)
def test_timestamps_are_assigned_by_objects_functions_and_fields(
    assigner: Any, record: Any, previous: int | None, expected: int
) -> None:
    run = run_of(WatermarkStrategy.no_watermarks().with_timestamp_assigner(assigner)).push(record, at=previous)
    assert run.results == [(record, expected)]


def test_records_keep_their_timestamps_without_an_assigner() -> None:
    run = run_of(WatermarkStrategy.for_monotonous_timestamps()).push("a", "b", at=[5, 7]).at_time(200)
    assert run.events == [("a", 5), ("b", 7), (WATERMARK, 6)]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1000, 2000], pa.int64()),
        pa.array([1000, 2000], pa.int32()),
        pa.array([1000, 2000], pa.timestamp("ms")),
        pa.array([1_000_000, 2_000_000], pa.timestamp("us", "UTC")),
        pa.array([1_000_000_999, 2_000_000_000], pa.timestamp("ns")),
    ],
)
def test_timestamps_of_columns_create_no_records(column: Any) -> None:
    def never(batch: Any) -> list[Any]:
        raise AssertionError("a record was created")

    batch = ColumnBatch(pa.RecordBatch.from_arrays([column], ["ts"]), None, never)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("ts")
    generator = create_generator(strategy)
    ((stamped, _),) = generator.process(batch)
    assert isinstance(stamped, ColumnBatch)
    assert stamped.timestamps is not None
    assert stamped.timestamps.tolist() == [1000, 2000]
    assert stamped.timestamps.dtype == np.int64
    assert generator.emit_periodic() == 1999


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([{"ts": np.datetime64("NaT")}], "is not a point of time"),
        ([{"ts": 1}, {"other": 2}], "no field 'ts' in the record {'other': 2}.*fields other"),
        ([{"ts": 1}, {"ts": None}], "None of type NoneType is not a point of time: the record is {'ts': None}"),
        ([{"ts": "12:00"}], "'12:00' of type str"),
    ],
)
def test_records_without_a_usable_timestamp_are_named(records: list[Any], message: str) -> None:
    run = run_of(BOUNDED)
    with pytest.raises(RecordFormatError, match=message) as caught:
        run.push(*records)
    assert caught.value.operator == "operator under test"
    assert caught.value.location == "job.py:7"


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([-500, -1000, -1001], pa.timestamp("us")), [-1, -1, -2]),
        (pa.array([-1, -1_000_000], pa.timestamp("ns")), [-1, -1]),
        (pa.array([-3], pa.timestamp("s")), [-3000]),
        (pa.array([-1], pa.date32()), [-86_400_000]),
        (pa.array([-7, 5], pa.int16()), [-7, 5]),
        (pa.array([-7, 5]).dictionary_encode(), [-7, 5]),
    ],
)
def test_times_before_1970_round_down_in_columns_and_rows(column: pa.Array, expected: list[int]) -> None:
    strategy = WatermarkStrategy.no_watermarks().with_timestamp_assigner("ts")
    columns = pa.RecordBatch.from_arrays([column], ["ts"])
    ((by_columns, _),) = create_generator(strategy).process(ColumnBatch(columns, None, rows_as_dicts))
    assert list(by_columns.timestamps) == expected  # type: ignore[arg-type]
    if not pa.types.is_timestamp(column.type) or column.type.unit != "ns":  # Python has no such time
        ((by_rows, _),) = create_generator(strategy).process(RowBatch(columns.to_pylist()))
        assert by_rows.timestamps == expected


@pytest.mark.parametrize("column", [pa.array([2**63], pa.uint64()), pa.array([2**60], pa.timestamp("s"))])
def test_a_column_of_times_beyond_64_bits_of_ms_is_refused(column: pa.Array) -> None:
    batch = ColumnBatch(pa.RecordBatch.from_arrays([column], ["ts"]), None, rows_as_dicts)
    with pytest.raises(RecordFormatError, match=r"'ts' .* in ms that exceeds 64 bits"):
        run_of(BOUNDED).push_batch(batch)


@pytest.mark.parametrize(("column", "message"), [([1, None], "null in the record"), ([1.5, 2.5], "type double")])
def test_columns_without_usable_timestamps_are_named(column: list[Any], message: str) -> None:
    batch = ColumnBatch(pa.RecordBatch.from_pydict({"ts": column}), None, rows_as_dicts)
    with pytest.raises(RecordFormatError, match=message):
        run_of(BOUNDED).push_batch(batch)


def test_an_assigner_that_raises_is_named_with_its_record() -> None:
    run = run_of(WatermarkStrategy.no_watermarks().with_timestamp_assigner(lambda v: 1 // v))
    with pytest.raises(UserFunctionError, match=r"ZeroDivisionError.*on the record 0"):
        run.push(1, 0)


def test_a_generator_that_raises_is_named_with_its_record() -> None:
    run = run_of(WatermarkStrategy.for_generator(OfSensorOne).with_timestamp_assigner(lambda v: 5))
    with pytest.raises(UserFunctionError, match=r"OfSensorOne\.on_event raised KeyError: 'id' on the record {'x': 1}"):
        run.push({"x": 1})


IDLE_AFTER_A_SECOND = BOUNDED.with_idleness(timedelta(seconds=1))


def test_an_input_is_idle_after_the_timeout_and_active_with_the_next_record() -> None:
    run = run_of(IDLE_AFTER_A_SECOND).push(reading(20_000)).at_time(0).at_time(200)
    assert run.operator.next_processing_time() == 1000
    run.at_time(999)
    assert (IDLE, True) not in run.events
    run.at_time(1000).at_time(5001).push(reading(30_000)).at_time(5999)
    assert run.events == [
        (reading(20_000), 20_000),
        (WATERMARK, 9_999),
        (IDLE, True),
        (IDLE, False),
        (reading(30_000), 30_000),
        (WATERMARK, 19_999),
    ]


def test_the_final_watermark_ends_idleness() -> None:
    run = run_of(IDLE_AFTER_A_SECOND).at_time(0).at_time(1000).end()
    assert run.events == [(IDLE, True), (IDLE, False), (WATERMARK, MAX_TIMESTAMP)]
    assert run.at_time(9000).operator.next_processing_time() is None


def test_watermarks_and_idleness_from_upstream_are_overwritten() -> None:
    run = run_of(BOUNDED).watermark(5)
    run.operator.process_idle(True)
    assert run.events == []


def test_event_time_does_not_go_back_after_a_restore() -> None:
    run = run_of(BOUNDED).push(reading(50_000)).at_time(200)
    again = run.restart().at_time(0).push(reading(20_000))
    assert again.events == [(WATERMARK, 39_999), (reading(20_000), 20_000)]


def test_after_rescaling_the_slowest_subtask_sets_the_time() -> None:
    fast, slow = run_of(BOUNDED, parallelism=2).push(reading(90_000)), run_of(BOUNDED, subtask=1, parallelism=2)
    fast.at_time(200)
    slow.push(reading(50_000)).at_time(200)
    for again in OperatorRun.rescale([fast, slow], 3):
        assert watermarks(again.at_time(0)) == [39_999]
    own = OperatorRun.rescale([fast, slow], 2)
    assert [watermarks(again.at_time(0)) for again in own] == [[79_999], [39_999]]


def test_snapshots_of_generators_can_be_encoded_as_json() -> None:
    generator = create_generator(BOUNDED)
    list(generator.process(RowBatch([reading(50_000)])))
    other = create_generator(BOUNDED)
    other.restore(generator.snapshot())
    assert (other.current(), other.reached()) == (None, 39_999)
    assert other.emit_periodic() == generator.emit_periodic() == other.current() == 39_999
    assert create_generator(BOUNDED).current() is None


def test_an_interval_of_zero_switches_periodic_watermarks_off() -> None:
    run = run_of(BOUNDED, auto_watermark_interval_ms=0).push(reading(50_000)).at_time(10_000)
    assert watermarks(run) == []


def test_strategies_are_compared_by_value() -> None:
    base = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(20))
    aligned = base.with_watermark_alignment("group", timedelta(seconds=5))
    assert base.alignment is None
    assert aligned.alignment is not None
    assert (aligned.alignment.max_drift_ms, aligned.alignment.update_interval_ms) == (5000, 1000)
    assert aligned.with_timestamp_assigner("ts").alignment == aligned.alignment
    assert pickle.loads(pickle.dumps(aligned)) == aligned


@pytest.mark.parametrize(
    "make",
    [
        lambda: WatermarkStrategy.for_bounded_out_of_orderness(-1),
        lambda: BOUNDED.with_idleness(0),
        lambda: BOUNDED.with_timestamp_assigner(5),  # type: ignore[arg-type]
        lambda: WatermarkStrategy.for_generator(5),  # type: ignore[arg-type]
        lambda: WatermarkStrategy.for_bounded_out_of_orderness("10 s"),  # type: ignore[arg-type]
        lambda: create_generator(WatermarkStrategy.for_generator(dict)),  # type: ignore[arg-type]
    ],
)
def test_impossible_strategies_are_refused(make: Any) -> None:
    with pytest.raises(InvalidJob):
        make()
