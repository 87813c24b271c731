"""Batch mode: keyed operators get their input key by key in order of time, and all timers fire at the end of a key."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Types, WatermarkStrategy
from penstock.common.configuration import Configuration
from penstock.common.errors import StateTypeError
from penstock.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.datastream.data_stream import DataStream
from penstock.datastream.functions import (
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessJoinFunction,
    RuntimeContext,
    SinkFunction,
)
from penstock.datastream.state import MapStateDescriptor, ValueStateDescriptor
from penstock.datastream.window import TumblingEventTimeWindows, TumblingProcessingTimeWindows
from penstock.graph.executor import executing_on
from penstock.graph.job_graph_builder import JobGraphBuilder
from penstock.jobmanager.process.session.session import Session
from penstock.records.batch import MAX_TIMESTAMP, MIN_TIMESTAMP
from tests.in_process import InProcess, environment, run

DISORDERED = [("a", 30), ("b", 20), ("a", 10), ("a", 20), ("b", 5), ("a", 1)]
"""Key and time in ms. In streaming mode most of these records would be late."""


@pytest.fixture(params=["hashmap", "rocksdb"])
def env(request: pytest.FixtureRequest, tmp_path: Path) -> StreamExecutionEnvironment:
    env = environment(tmp_path, **{"state.backend.type": request.param})
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    env.set_parallelism(2)
    return env


def first(value: Any) -> Any:
    return value[0]


def timed(stream: DataStream) -> DataStream:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value: value[1])
    return stream.assign_timestamps_and_watermarks(strategy)


def results(stream: DataStream) -> list[Any]:
    with executing_on(Session(InProcess())):
        return list(stream.execute_and_collect())


class EmitCalls(KeyedProcessFunction):
    """A function that emits its calls in order, with the clock."""

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        timers = ctx.timer_service()
        timers.register_event_time_timer(value[1] + 1000)
        yield value[0], "value", value[1], timers.current_watermark()

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield ctx.get_current_key(), "timer", timestamp, ctx.timer_service().current_watermark()


def test_a_key_gets_its_records_in_order_of_time_and_then_its_timers(env: StreamExecutionEnvironment) -> None:
    found = results(timed(env.from_collection(DISORDERED)).key_by(first).process(EmitCalls()))
    for key in "ab":
        times = sorted(t for k, t in DISORDERED if k == key)
        assert [record[1:] for record in found if record[0] == key] == [
            *(("value", t, MIN_TIMESTAMP) for t in times),
            *(("timer", t + 1000, MAX_TIMESTAMP) for t in times),
        ]
    keys = [record[0] for record in found]
    assert keys in (sorted(keys), sorted(keys, reverse=True)), "the keys are not processed one after the other"


class Again(KeyedProcessFunction):
    """A function that registers a timer for every second."""

    def process_element(self, value: Any, ctx: Any) -> None:
        ctx.timer_service().register_processing_time_timer(ctx.timer_service().current_processing_time() + 3_600_000)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        ctx.timer_service().register_processing_time_timer(timestamp + 1000)
        yield ctx.get_current_key()


def test_processing_time_timers_fire_once_at_the_end(env: StreamExecutionEnvironment) -> None:
    began = time.monotonic()
    assert sorted(results(env.from_collection([("a", 1), ("b", 1)]).key_by(first).process(Again()))) == ["a", "b"]
    assert time.monotonic() - began < 600


def test_processing_time_windows_fire_when_the_input_ends(env: StreamExecutionEnvironment) -> None:
    days = TumblingProcessingTimeWindows.of(timedelta(days=1))
    sums = env.from_collection([("a", 1), ("a", 2), ("b", 5)]).key_by(first).window(days).reduce(add)
    assert sorted(results(sums)) == [("a", 3), ("b", 5)]


def add(a: Any, b: Any) -> Any:
    return a[0], a[1] + b[1]


def test_no_record_is_late(env: StreamExecutionEnvironment) -> None:
    windows = timed(env.from_collection(DISORDERED)).key_by(first).window(TumblingEventTimeWindows.of(10))
    assert sorted(results(windows.reduce(add))) == [("a", 1), ("a", 10), ("a", 20), ("a", 30), ("b", 5), ("b", 20)]


def test_windows_of_the_whole_stream_get_it_in_order_of_time(env: StreamExecutionEnvironment) -> None:
    windows = timed(env.from_collection(DISORDERED)).window_all(TumblingEventTimeWindows.of(1000))
    assert results(windows.reduce(lambda a, b: (a[0] + b[0], b[1]))) == [("ababaa", 30)]


class Latest(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.before = runtime_context.get_state(ValueStateDescriptor("before", int))

    def map(self, value: Any) -> Any:
        before = self.before.value()
        self.before.update(value[1])
        return value[0], before, value[1]


def test_a_map_function_with_keyed_state_gets_records_in_order_of_time(env: StreamExecutionEnvironment) -> None:
    found = results(timed(env.from_collection(DISORDERED)).key_by(first).map(Latest()))
    assert [record for record in found if record[0] == "a"] == [
        ("a", None, 1),
        ("a", 1, 10),
        ("a", 10, 20),
        ("a", 20, 30),
    ]


def test_a_reduce_processes_records_in_order_of_time_and_emits_the_last_result(env: StreamExecutionEnvironment) -> None:
    reduced = timed(env.from_collection(DISORDERED)).key_by(first).reduce(lambda a, b: (a[0] + b[0], b[1]))
    assert sorted(results(reduced)) == [("aaaa", 30), ("bb", 20)]


class Both(KeyedCoProcessFunction):
    def process_element1(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield value[0], "left", value[1]

    def process_element2(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield value[0], "right", value[1]


def test_the_inputs_of_a_key_are_merged_by_time(env: StreamExecutionEnvironment) -> None:
    left = timed(env.from_collection([("a", 30), ("a", 10), ("b", 1)]))
    right = timed(env.from_collection([("a", 20), ("b", 2), ("a", 5)]))
    found = results(left.connect(right).key_by(first, first).process(Both()))
    assert [record for record in found if record[0] == "a"] == [
        ("a", "right", 5),
        ("a", "left", 10),
        ("a", "right", 20),
        ("a", "left", 30),
    ]


class Pairs(ProcessJoinFunction):
    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterator[Any]:
        yield left[0], left[1], right[1]


def test_an_interval_join_finds_all_pairs_of_any_delay(env: StreamExecutionEnvironment) -> None:
    left = timed(env.from_collection([("a", 1000), ("a", 10)])).key_by(first)
    right = timed(env.from_collection([("a", 1001), ("a", 11), ("b", 10)])).key_by(first)
    joined = left.interval_join(right).between(timedelta(milliseconds=-5), timedelta(milliseconds=5)).process(Pairs())
    assert sorted(results(joined)) == [("a", 10, 11), ("a", 1000, 1001)]


RULES = MapStateDescriptor("rules", str, int)


class Ruled(BroadcastProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield value[0], value[1], ctx.get_broadcast_state(RULES).get("factor")

    def process_broadcast_element(self, value: int, ctx: Any) -> None:
        time.sleep(0.01)
        ctx.get_broadcast_state(RULES).put("factor", value)


class KeyedRuled(KeyedBroadcastProcessFunction):
    process_element = Ruled.process_element
    process_broadcast_element = Ruled.process_broadcast_element


@pytest.mark.parametrize("keyed", [False, True])
def test_broadcast_records_are_processed_first(env: StreamExecutionEnvironment, *, keyed: bool) -> None:
    values: Any = env.from_collection(DISORDERED)
    rules = env.from_collection(list(range(20))).broadcast(RULES)
    if keyed:
        found = results(values.key_by(first).connect(rules).process(KeyedRuled()))
    else:
        found = results(values.connect(rules).process(Ruled()))
    assert sorted(found) == sorted((key, t, 19) for key, t in DISORDERED)


@dataclass
class Reading:
    station: str
    celsius: float


def test_objects_of_a_class_are_stored_by_their_type(env: StreamExecutionEnvironment) -> None:
    readings = env.from_collection([Reading("KJFK", 21.5), Reading("EDDB", 9.0)])
    found = results(readings.key_by(lambda reading: reading.station).process(Same()))
    assert sorted(found, key=lambda reading: reading.station) == [Reading("EDDB", 9.0), Reading("KJFK", 21.5)]


class Plain:
    """A class without an encoding."""

    def __init__(self, number: int) -> None:
        self.number = number


def test_objects_that_cannot_be_stored_are_refused_with_their_class(env: StreamExecutionEnvironment) -> None:
    objects = env.from_collection([1]).map(Plain)
    with pytest.raises(StateTypeError, match=r"Plain has no encoding(.|\n)*operator: Keyed Process(.|\n)*dataclass"):
        results(objects.key_by(lambda value: value.number).process(Same()))


class Same(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield value


FAILURES: list[int] = []


class FailsOnce(MapFunction):
    def map(self, value: Any) -> Any:
        time.sleep(0.002)
        if value[1] == 180 and not FAILURES:
            FAILURES.append(value[1])
            raise RuntimeError("once")
        return value


def test_stored_input_is_part_of_checkpoints(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    FAILURES.clear()
    env.configure(Configuration({"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "1 ms"}))
    env.set_parallelism(1)
    values = env.from_collection([("ab"[n % 2], n) for n in range(200)]).map(FailsOnce())
    ordered = timed(values).key_by(first).reduce(lambda a, b: (a[0], a[1] + b[1]))
    GOT.clear()
    ordered.add_sink(Keeps())
    master = run(env)
    assert FAILURES
    assert master.history.restarts == 1
    assert sorted(GOT) == [("a", sum(range(0, 200, 2))), ("b", sum(range(1, 200, 2)))]


GOT: list[Any] = []


class Keeps(SinkFunction):
    def invoke(self, value: Any, context: Any) -> None:
        GOT.append(value)


@pytest.mark.parametrize(("mode", "expected"), [("AUTOMATIC", [("a", 3)]), ("STREAMING", [("a", 1), ("a", 3)])])
def test_bounded_programs_run_in_batch_mode_if_the_mode_is_automatic(
    mode: str, expected: list[Any], env: StreamExecutionEnvironment
) -> None:
    env.set_runtime_mode(RuntimeExecutionMode[mode])
    assert sorted(results(env.from_collection([("a", 1), ("a", 2)]).key_by(first).reduce(add))) == expected


@pytest.mark.parametrize("mode", ["BATCH", "AUTOMATIC", "STREAMING"])
def test_the_plan_contains_the_mode_of_the_job(mode: str, env: StreamExecutionEnvironment) -> None:
    env.from_collection([1]).print()
    plan = JobGraphBuilder(env.get_program().transformations, mode=mode).build().to_json()
    assert plan["type"] == ("STREAMING" if mode == "STREAMING" else "BATCH")


def test_an_operator_without_keys_processes_records_as_they_arrive(env: StreamExecutionEnvironment) -> None:
    env.set_parallelism(1)
    assert results(env.from_collection([3, 1, 2], Types.INT()).map(str, Types.STRING())) == ["3", "1", "2"]
