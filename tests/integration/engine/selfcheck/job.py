"""The self-verifying job.

Every key gets the numbers 0, 1, 2, … in order. A keyed function remembers the last one, and writes each number together with
the remembered one. Windows add the numbers up, and their sums are known. The output therefore shows every lost, repeated or
reordered record. It also shows every restored state that does not match the restored positions.

It has three levels: source -> by key: sequence check -> by key again: windows. Both branches end in an exactly-once file sink.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.formats.encode import JsonLinesEncoder
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.datastream.connectors.file_system import FileSink, RollingPolicy
from penstock.datastream.functions import AggregateFunction, KeyedProcessFunction, ProcessWindowFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.datastream.streams.data_stream import DataStream
from penstock.datastream.window import TumblingEventTimeWindows

STEP_MS = 100
"""Event time between two numbers of one key."""
WINDOW_MS = 1_000
PER_WINDOW = WINDOW_MS // STEP_MS


@dataclass(frozen=True)
class Plan:
    """The input.

    `keys` is a multiple of `splits`, so that all numbers of a key come from one split, in order.
    """

    per_key: int = 200
    keys: int = 20
    splits: int = 4
    rate: float | None = 1_000.0
    """Records per second of all splits together."""
    crash_at: int = -1
    """The user's function raises at this number of key 0, once."""
    marker: str = ""
    """The file that records it."""
    crash_when: str = ""
    """The user's function raises whenever it finds this file, which it removes."""

    @property
    def total(self) -> int:
        return self.per_key * self.keys


class Numbered(NamedTuple):
    key: int
    number: int
    time: int
    """Event time, ms."""


class Numbers:
    """A function from an index to a record. Split n of a bounded generator is the n-th of equal ranges."""

    def __init__(self, plan: Plan) -> None:
        self.range = plan.total // plan.splits
        self.keys = plan.keys // plan.splits

    def __call__(self, index: int) -> Numbered:
        split, place = divmod(index, self.range)
        number, key = divmod(place, self.keys)
        return Numbered(split * self.keys + key, number, number * STEP_MS)


class CheckSequence(KeyedProcessFunction):
    """A function that adds the previous number and the count in its state to every number."""

    def __init__(self, plan: Plan) -> None:
        self.crash_at = plan.crash_at
        self.marker = plan.marker
        self.crash_when = plan.crash_when

    def open(self, runtime_context: Any) -> None:
        self.last = runtime_context.get_state(ValueStateDescriptor("last", int))
        self.count = runtime_context.get_state(ValueStateDescriptor("count", int))

    def process_element(self, value: Numbered, ctx: Any) -> Iterator[dict[str, int]]:
        last = self.last.value()
        count = (self.count.value() or 0) + 1
        if value.key == 0 and value.number == self.crash_at and not os.path.exists(self.marker):
            Path(self.marker).touch()
            raise ValueError(f"number {value.number} is refused, once")
        if value.key == 0 and self.crash_when and os.path.exists(self.crash_when):
            os.remove(self.crash_when)
            raise ValueError(f"number {value.number} is refused, because {self.crash_when} existed")
        self.last.update(value.number)
        self.count.update(count)
        yield {"key": value.key, "number": value.number, "last": -1 if last is None else last, "count": count}


class Sum(AggregateFunction):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: dict[str, int], accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value["number"], accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class WithWindow(ProcessWindowFunction):
    def process(self, key: int, context: Any, elements: Any) -> Iterator[dict[str, int]]:
        for total, count in elements:
            yield {"key": key, "start": context.window().start, "sum": total, "count": count}


def event_time(value: Numbered, record_timestamp: int | None) -> int:
    return value.time


def key_of(value: Numbered) -> int:
    return value.key


def key_of_checked(value: dict[str, int]) -> int:
    return value["key"]


def checked(env: StreamExecutionEnvironment, plan: Plan) -> DataStream:
    """Return the stream after source and sequence check."""
    source = DataGeneratorSource(Numbers(plan), plan.total, plan.rate, splits=plan.splits)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(event_time)
    return (
        env.from_source(source, strategy, "numbers")
        .uid("numbers")
        .key_by(key_of)
        .process(CheckSequence(plan))
        .name("check")
        .uid("check")
    )


def build(env: StreamExecutionEnvironment, plan: Plan, output: str) -> None:
    """Build the whole job, which writes to `output`/numbers and `output`/windows."""
    numbers = checked(env, plan)
    windows = (
        numbers.key_by(key_of_checked)
        .window(TumblingEventTimeWindows.of(timedelta(milliseconds=WINDOW_MS)))
        .aggregate(Sum(), WithWindow())
        .name("sums")
        .uid("sums")
    )
    numbers.sink_to(_files(f"{output}/numbers")).uid("numbers-sink")
    windows.sink_to(_files(f"{output}/windows")).uid("windows-sink")


def _files(folder: str) -> FileSink:
    """Return a sink whose files become visible after a second or so, and stay open during several checkpoints."""
    policy = RollingPolicy.default_rolling_policy(rollover_interval=1_000, inactivity_interval=1_000)
    return FileSink.for_row_format(folder, JsonLinesEncoder()).with_rolling_policy(policy).build()
