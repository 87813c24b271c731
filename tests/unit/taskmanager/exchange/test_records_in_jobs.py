"""Records do not change in a job. Values that users pass as numbers, truths and times are accepted or refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream.data_stream import DataStream
from penstock.datastream.functions import KeyedProcessFunction, MapFunction, ProcessFunction
from penstock.functions import accumulators as acc
from penstock.graph.executor import executing_on
from penstock.jobmanager.process.session.session import Session
from tests import round_trips
from tests.in_process import InProcess, environment
from tests.integration.engine.programs.refusals import Refused, refused
from tests.strategies import SAMPLES, Color, Level, Reading
from tests.value_difference import difference

NO_RESTART = {"restart-strategy.type": "none"}


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_every_record_is_unchanged_in_every_operator(tmp_path: Path, backend: str, parallelism: int) -> None:
    env = environment(tmp_path, **NO_RESTART, **{"state.backend.type": backend})
    round_trips.run(env, Session(InProcess()), SAMPLES, parallelism)


def collected(
    folder: Path, build: Callable[[DataStream], DataStream], values: list[Any], parallelism: int = 1
) -> list[Any]:
    env = environment(folder, **NO_RESTART).set_parallelism(parallelism)
    with executing_on(Session(InProcess())), build(env.from_collection(values)).execute_and_collect() as results:
        return list(results)


def refused_with(folder: Path, build: Callable[[DataStream], Any], values: list[Any], parallelism: int = 1) -> Refused:
    """Return the refusal, which names the line of this file that calls `build`."""
    env = environment(folder, **NO_RESTART).set_parallelism(parallelism)
    stream = build(env.from_collection(values))
    if isinstance(stream, DataStream):
        stream.print()
    refusal = refused(env)
    assert refusal.points_to(__file__)
    assert refusal.operator
    assert refusal.remedy
    return refusal


@pytest.mark.parametrize("parallelism", [1, 2])
def test_numpy_numbers_after_an_exchange_have_the_right_sums(tmp_path: Path, parallelism: int) -> None:
    def sums(stream: DataStream) -> DataStream:
        return stream.rebalance().key_by(lambda r: r[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))

    got = collected(tmp_path, sums, [("k", np.float64(1.5)), ("k", np.float64(2.0))], parallelism)
    assert difference(("k", np.float64(3.5)), max(got)) is None


ZONED = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1)
ALIKE = [
    np.int64(3),
    ("k", np.float64(1.5)),
    Level.LOW,
    ZONED,
    ("k", ZONED),
    [np.str_("a")],
    Reading("s", np.float32(1)),
    2**70,
]


@pytest.mark.parametrize("record", ALIKE, ids=repr)
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_records_of_one_type_keep_it_in_state_with_an_inferred_type(tmp_path: Path, backend: str, record: Any) -> None:
    env = environment(tmp_path, **NO_RESTART, **{"state.backend.type": backend})
    kept = env.from_collection([record, record]).key_by(lambda r: 0).reduce(lambda old, new: old)
    with executing_on(Session(InProcess())), kept.execute_and_collect() as results:
        assert difference([record, record], list(results)) is None


@pytest.mark.parametrize("parallelism", [1, 2])
def test_numpy_truths_after_an_exchange_are_accepted(tmp_path: Path, parallelism: int) -> None:
    records = [(1, np.bool_(False)), (2, np.bool_(True))]
    got = collected(tmp_path, lambda stream: stream.rebalance().filter(lambda r: r[1]), records, parallelism)
    assert got == [(2, np.True_)]


def test_a_filter_result_that_is_neither_true_nor_false_is_refused(tmp_path: Path) -> None:
    refusal = refused_with(tmp_path, lambda s: s.filter(lambda v: np.array([v > 1, v > 0]) if v == 2 else True), [1, 2])  # type: ignore[arg-type, return-value]
    assert "returned array([ True,  True]) for 2" in refusal.message
    assert "array.any() or array.all()" in refusal.remedy


def test_a_memoryview_in_a_collection_is_refused(tmp_path: Path) -> None:
    env = environment(tmp_path, **NO_RESTART)
    env.from_collection([memoryview(b"x")]).print()
    refusal = refused(env)
    assert "memoryview" in refusal.message
    assert refusal.points_to(__file__)


class Fails:
    """A class whose pickled objects raise an error when they are loaded."""

    def __reduce__(self) -> Any:
        return _no_more, ()


def _no_more() -> None:
    raise ValueError("no more")


def test_an_object_that_cannot_be_created_again_is_refused(tmp_path: Path) -> None:
    refusal = refused_with(tmp_path, lambda stream: stream.map(lambda v: Fails()).rebalance().map(str), [1])
    assert "cannot be created there" in refusal.message
    assert "ValueError: no more" in refusal.message


class NotATime(datetime):
    """A datetime whose arithmetic gives no number, as pandas' NaT."""

    def __sub__(self, other: Any) -> Any:
        return self

    def __floordiv__(self, other: Any) -> float:
        return math.nan


class Stamps(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield ctx.timestamp()


def stamped(time: Any) -> Callable[[DataStream], DataStream]:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, before: time)
    return lambda stream: stream.assign_timestamps_and_watermarks(strategy).process(Stamps())


@pytest.mark.parametrize("time", [np.int64(5), np.uint8(5), datetime(1970, 1, 1, 0, 0, 0, 5000)], ids=repr)
def test_a_valid_time_of_a_record_is_accepted(tmp_path: Path, time: Any) -> None:
    assert difference([5], collected(tmp_path, stamped(time), [1])) is None


@pytest.mark.parametrize(
    "time", [5.0, np.float64(5), True, np.True_, "5", NotATime(2026, 1, 1), np.uint64(2**63), Decimal(5)], ids=repr
)
def test_an_invalid_time_of_a_record_is_refused(tmp_path: Path, time: Any) -> None:
    assert "is not a point of time" in refused_with(tmp_path, stamped(time), [1]).message


class Alarms(KeyedProcessFunction):
    def __init__(self, time: Any) -> None:
        self.time = time

    def process_element(self, value: Any, ctx: Any) -> Any:
        ctx.timer_service().register_event_time_timer(self.time)
        ctx.timer_service().register_processing_time_timer(2**62)
        ctx.timer_service().delete_processing_time_timer(np.int64(2**62))
        return ()

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield timestamp, ctx.get_current_key()


@pytest.mark.parametrize("time", [7, np.int32(7), Level.LOW + 6], ids=repr)
def test_a_valid_time_of_a_timer_is_accepted(tmp_path: Path, time: Any) -> None:
    got = collected(tmp_path, lambda stream: stream.key_by(lambda v: v).process(Alarms(time)), ["k"])
    assert difference([(7, "k")], got) is None


@pytest.mark.parametrize(
    "time", [7.0, math.nan, True, None, "7", datetime(2026, 1, 1), timedelta(1), np.True_], ids=repr
)
def test_an_invalid_time_of_a_timer_is_refused(tmp_path: Path, time: Any) -> None:
    refusal = refused_with(tmp_path, lambda stream: stream.key_by(lambda v: v).process(Alarms(time)), ["k"])
    assert "is not a time" in refusal.message


NANS = [math.nan, np.float32("nan"), Decimal("nan"), ("a", math.nan), ("a", (1, np.float64("nan")))]


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("key", NANS, ids=repr)
def test_nan_is_refused_as_key(tmp_path: Path, key: Any, parallelism: int) -> None:
    def by_key(stream: DataStream) -> DataStream:
        like_it = ("a", 1.5) if isinstance(key, tuple) else 1.5
        return stream.key_by(lambda record: key if record == 3 else like_it).map(str)

    refusal = refused_with(tmp_path, by_key, [1, 2, 3], parallelism)
    assert "nan cannot be a key" in refusal.message
    assert refusal.code == "STATE_TYPE"


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize(
    ("one", "other"),
    [(np.int64(3), 3), (np.str_("k"), "k"), (np.True_, 1), (0.0, -0.0), (np.float64(2), Decimal("2.0"))],
)
def test_keys_that_are_equal_are_one_key(tmp_path: Path, one: Any, other: Any, parallelism: int) -> None:
    def counts(stream: DataStream) -> DataStream:
        return stream.key_by(lambda record: record[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))

    got = collected(tmp_path, counts, [(one, 1), (other, 1)], parallelism)
    assert sorted(count for _, count in got) == [1, 2]


class Adds(MapFunction):
    def __init__(self, accumulator: acc.Accumulator) -> None:
        self.accumulator = accumulator

    def open(self, runtime_context: Any) -> None:
        runtime_context.add_accumulator("all", self.accumulator)

    def map(self, value: Any) -> Any:
        self.accumulator.add(value)
        return value


LISTED = [(1, 2), {"a": (1,)}, b"x", {1}, 2**70, None, np.float32(0.1), Decimal("0.10")]


@pytest.mark.parametrize(
    ("accumulator", "values", "result"),
    [
        (acc.ListAccumulator, LISTED, LISTED),
        (acc.IntCounter, [np.int64(1), 2], 3),
        (acc.IntCounter, [2**70, 1], 2**70 + 1),
        (acc.DoubleCounter, [np.float64(0.5), 1], np.float64(1.5)),
        (acc.Histogram, [np.int64(1), 1], {1: 2}),
    ],
)
def test_accumulators_return_their_results(tmp_path: Path, accumulator: Any, values: list[Any], result: Any) -> None:
    env = environment(tmp_path, **NO_RESTART)
    env.from_collection(values).map(Adds(accumulator())).print()
    with executing_on(Session(InProcess())):
        counted = env.execute("counted").get_accumulator_result("all")
    assert counted == result
    assert accumulator is not acc.ListAccumulator or difference(result, counted) is None


@pytest.mark.parametrize("value", [Color.RED, Fraction(1, 3)], ids=repr)
def test_an_unsupported_accumulator_value_is_refused(tmp_path: Path, value: Any) -> None:
    refusal = refused_with(tmp_path, lambda stream: stream.map(Adds(acc.ListAccumulator())), [value])
    assert "the accumulator 'all' holds a" in refusal.message
