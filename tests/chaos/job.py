"""The soak's job: it verifies itself, and fails on order.

The job works like `tests.integration.engine.selfcheck.job`. Every key gets the numbers 0, 1, 2, … in order. A keyed function adds
the content of its state to each number, and windows add the numbers up. In addition, records have payloads of up to 1 MiB. State
keeps the last large payload, and the windows count the bytes. A folder of *orders* makes the user's functions raise, exit or
hang, and the sinks slow.

It has three levels: source -> by key: sequence check -> by key again: windows. Both branches end in an exactly-once sink: files, or
Kafka, which is then also the source (`tests.chaos.kafka_ends`). A second kind of window aggregates columns of floats.
Some keys have NaN, infinity or huge values, which must not affect the results of other keys.
"""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from penstock.common import Row, Types
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.core.sink import Sink
from penstock.connectors.core.source import ReadBounds, ReaderContext, Split, SplitReader
from penstock.connectors.formats.encode import JsonLinesEncoder
from penstock.connectors.simple.datagen import GeneratorReader, GeneratorSplitReader
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.datastream.connectors.file_system import FileSink, RollingPolicy
from penstock.datastream.data_stream import DataStream
from penstock.datastream.functions import AggregateFunction, KeyedProcessFunction, ProcessWindowFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.datastream.window import FieldAggregate, TumblingEventTimeWindows
from penstock.records.batch import RowBatch
from tests.chaos.faults.orders import Orders, SlowableSink

STEP_MS = 100
"""Event time between two numbers of one key."""
WINDOW_MS = 1_000
PER_WINDOW = WINDOW_MS // STEP_MS
LARGE = 8 << 10
HUGE = 1 << 20
_HURRIED = 8.0
"""Factor of the rate for the remaining input after its end is known."""


@dataclass(frozen=True)
class SoakPlan:
    """The input: at most `per_key` numbers for each key. An order sets the end of the input.

    `keys` is a multiple of `splits`, so that all numbers of a key come from one split, in order.
    """

    per_key: int
    orders: str
    """The folder of `Orders`."""
    rate: float = 500.0
    """Records per second of all splits together."""
    keys: int = 20
    splits: int = 4
    kafka: str = ""
    """Addresses of the brokers that are source and sink."""
    variant: int = 0
    """The version of the program. An upgrade uses the next one. Odd versions are written differently from even ones."""

    @property
    def total(self) -> int:
        return self.per_key * self.keys


# --- records --------------------------------------------------------------------------------------------------


def payload_size(key: int, number: int) -> int:
    """Return the bytes of a payload: mostly few, 8 KiB for every twentieth, 1 MiB for every 500th of every fifth key."""
    if key % 5 == 0 and number % 500 == 7:
        return HUGE
    if number % 20 == 3:
        return LARGE
    return (key * 7 + number) % 50


def payload(key: int, number: int) -> bytes:
    """Return the payload of a record.

    >>> len(payload(5, 7)) == HUGE, payload(1, 2)
    (True, b'1/2;1/2;1')
    """
    size = payload_size(key, number)
    piece = f"{key}/{number};".encode()
    return (piece * (size // len(piece) + 1))[:size]


def last_large(key: int, number: int) -> int:
    """Return the last number before this one whose payload the state keeps, or -1.

    >>> last_large(1, 3), last_large(1, 4), last_large(5, 22), last_large(1, 45)
    (-1, 3, 7, 43)
    """
    for before in range(number - 1, max(-1, number - 22), -1):
        if payload_size(key, before) >= LARGE:
            return before
    return -1


class Numbered(NamedTuple):
    key: int
    number: int
    time: int
    """Event time, ms."""
    payload: bytes


class Checked(NamedTuple):
    key: int
    number: int
    last: int
    """The previous number in the state, or -1."""
    count: int  # type: ignore[assignment]
    """The count of numbers so far, including this one."""
    total: int
    """The sum of all numbers so far, including this one."""
    crc: int
    held: int
    """The crc32 of the large payload in the state when this record came, for every tenth number. Otherwise 0."""
    payload: bytes


class Numbers:
    """A function from an index to a record. Split n of a bounded generator is the n-th of equal ranges."""

    def __init__(self, plan: SoakPlan) -> None:
        self.range = plan.total // plan.splits
        self.keys = plan.keys // plan.splits
        self.orders = Orders(plan.orders)

    def __call__(self, index: int) -> Numbered:
        self.orders.obey("source")
        split, place = divmod(index, self.range)
        number, of_split = divmod(place, self.keys)
        key = split * self.keys + of_split
        return Numbered(key, number, number * STEP_MS, payload(key, number))


# --- operators ------------------------------------------------------------------------------------------------


class EndlessSource(DataGeneratorSource):
    """A source whose input ends at the number per key that an order contains. It reads the rest faster."""

    def __init__(self, plan: SoakPlan) -> None:
        super().__init__(Numbers(plan), plan.total, plan.rate, splits=plan.splits)
        self.end = os.path.join(plan.orders, Orders.END)
        self.keys_of_split = plan.keys // plan.splits

    def create_reader(self, context: ReaderContext) -> GeneratorReader:
        return EndlessReader(self, context)


class EndlessReader(GeneratorReader):
    def __init__(self, source: EndlessSource, context: ReaderContext) -> None:
        super().__init__(source, context)
        self._source = source

    def open_split(self, split: Split, position: Any) -> SplitReader:
        found = split.properties
        start = found["start"] if position is None else position
        indexes = range(start, found["end"], found["step"])
        reader = EndlessSplitReader(self._function, indexes, self._rate * found["share"], self._clock)
        reader.source, reader.begin = self._source, found["start"]
        return reader


class EndlessSplitReader(GeneratorSplitReader):
    source: EndlessSource
    begin: int
    """First index of the split."""
    _is_known = False

    def read(self, bounds: ReadBounds) -> RowBatch | None:
        if not self._is_known and os.path.exists(self.source.end):
            self._is_known = True
            end = self.begin + int(Path(self.source.end).read_text()) * self.source.keys_of_split
            assert end >= self._indexes.start + self._emitted, "the end of the input is before the current position"
            self._indexes = range(self._indexes.start, end)
            assert self._rate is not None
            self._rate *= _HURRIED
            self._began = self._clock.monotonic_ms() - int(self._emitted * 1000 / self._rate)
        return super().read(bounds)


class CheckSequence(KeyedProcessFunction):
    """A function that adds the content of its state to every number."""

    def __init__(self, plan: SoakPlan) -> None:
        self.orders = Orders(plan.orders)

    def open(self, runtime_context: Any) -> None:
        self.orders.obey("open")
        self.last = runtime_context.get_state(ValueStateDescriptor("last", int))
        self.count = runtime_context.get_state(ValueStateDescriptor("count", int))
        self.total = runtime_context.get_state(ValueStateDescriptor("total", int))
        self.large = runtime_context.get_state(ValueStateDescriptor("large", bytes))

    def process_element(self, value: Numbered, ctx: Any) -> Iterator[Checked]:
        self.orders.obey("check")
        if value.key == 0:
            self.orders.obey("restart")
        last = self.last.value()
        count = (self.count.value() or 0) + 1
        total = (self.total.value() or 0) + value.number
        checksum = zlib.crc32(self.large.value() or b"") if value.number % 10 == 0 else 0
        self.last.update(value.number)
        self.count.update(count)
        self.total.update(total)
        if len(value.payload) >= LARGE:
            self.large.update(value.payload)
        yield Checked(
            value.key,
            value.number,
            -1 if last is None else last,
            count,
            total,
            zlib.crc32(value.payload),
            checksum,
            value.payload,
        )


class Sum(AggregateFunction):
    """The sum of numbers, the count of records and the sum of bytes."""

    def create_accumulator(self) -> tuple[int, int, int]:
        return 0, 0, 0

    def add(self, value: Checked, accumulator: tuple[int, int, int]) -> tuple[int, int, int]:
        total, count, size = accumulator
        return total + value.number, count + 1, size + len(value.payload)

    def get_result(self, accumulator: tuple[int, int, int]) -> tuple[int, int, int]:
        return accumulator

    def merge(self, acc_a: tuple[int, int, int], acc_b: tuple[int, int, int]) -> tuple[int, int, int]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1], acc_a[2] + acc_b[2]


def reading(key: int, number: int) -> float:
    """Return the float of a record: half of its number, except for the special values of some keys.

    >>> reading(1, 5), reading(3, 5), reading(4, 3), reading(5, 4)
    (2.5, nan, inf, 1e+17)
    """
    match key % 7, number:
        case 3, _ if number % 13 == 5:
            return math.nan
        case 4, _ if number % 17 == 3:
            return math.inf
        case 5, _ if number % 19 == 4:
            return 1e17
    return number / 2


READING = Types.ROW_NAMED(["key", "x"], [Types.LONG(), Types.DOUBLE()])


def as_reading(value: Numbered) -> Row:
    return Row(key=value.key, x=reading(value.key, value.number))


class Floats(ProcessWindowFunction):
    """A function that returns the results of a window of readings as a checksum, by the name of each aggregate.

    Args:
        names: the aggregates in the program's order.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def process(self, key: int, context: Any, elements: Any) -> Iterator[dict[str, int]]:
        for results in elements:
            yield {
                "key": key,
                "start": context.window().start,
                "floats": checksum(dict(zip(self.names, results, strict=True))),
            }


def checksum(results: dict[str, Any]) -> int:
    """Return the checksum of values and types of the results that both variants of the program have."""
    return zlib.crc32(repr([(name, results[name]) for name in ("count", "max", "min", "sum")]).encode())


AGGREGATES: dict[str, FieldAggregate] = {
    "sum": FieldAggregate.sum("x"),
    "min": FieldAggregate.min("x"),
    "max": FieldAggregate.max("x"),
    "count": FieldAggregate.count("x"),
}


def float_windows(numbers: DataStream, variant: int) -> DataStream:
    """Build the windows of readings. Odd variants have one more aggregate, another order of them, and accept late records."""
    names = tuple(AGGREGATES) if variant % 2 == 0 else tuple(reversed(AGGREGATES))
    parts = [AGGREGATES[name] for name in names]
    if variant % 2:
        names, parts = (*names, "mean"), [*parts, FieldAggregate.mean("x")]
    size = TumblingEventTimeWindows.of(timedelta(milliseconds=WINDOW_MS))
    readings = numbers.map(as_reading, READING).name("readings").uid("readings").key_by("key").window(size)
    if variant % 2:
        readings = readings.allowed_lateness(timedelta(seconds=5))
    return readings.aggregate(FieldAggregate.of(*parts), Floats(names)).name("floats").uid("floats")


class WithWindow(ProcessWindowFunction):
    def __init__(self, plan: SoakPlan) -> None:
        self.orders = Orders(plan.orders)

    def process(self, key: int, context: Any, elements: Any) -> Iterator[dict[str, int]]:
        self.orders.obey("window")
        for total, count, size in elements:
            yield {"key": key, "start": context.window().start, "sum": total, "count": count, "bytes": size}


# --- the program ----------------------------------------------------------------------------------------------


def event_time(value: Numbered, record_timestamp: int | None) -> int:
    return value.time


def key_of(value: Numbered) -> int:
    return value.key


def key_of_checked(value: Checked) -> int:
    return value.key


def unchanged(value: Numbered) -> Numbered:
    return value


def as_output(value: Checked) -> dict[str, int]:
    """Return the output of a record: its payload is replaced by a checksum."""
    return {name: field for name, field in value._asdict().items() if name != "payload"}


class Ends(Protocol):
    """The source and the sinks of the job."""

    def numbers(self, env: StreamExecutionEnvironment, strategy: WatermarkStrategy) -> DataStream: ...

    def sink(self, name: str) -> Sink: ...


class FileEnds:
    """A generated source, and file sinks: `output`/numbers at every checkpoint, and `output`/windows every few seconds."""

    def __init__(self, plan: SoakPlan, output: str) -> None:
        self.plan = plan
        self.output = output

    def numbers(self, env: StreamExecutionEnvironment, strategy: WatermarkStrategy) -> DataStream:
        return env.from_source(EndlessSource(self.plan), strategy, "numbers").uid("numbers")

    def sink(self, name: str) -> Sink:
        policy = RollingPolicy.on_checkpoint_rolling_policy()
        if name == "windows":
            policy = RollingPolicy.default_rolling_policy(rollover_interval=4_000, inactivity_interval=4_000)
        return FileSink.for_row_format(f"{self.output}/{name}", JsonLinesEncoder()).with_rolling_policy(policy).build()


def build(env: StreamExecutionEnvironment, plan: SoakPlan, ends: Ends) -> None:
    """Build the whole job."""
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(event_time)
    numbers = ends.numbers(env, strategy)
    if plan.variant % 2:
        numbers = numbers.map(unchanged).name("unchanged").uid("unchanged")
    checked = numbers.key_by(key_of).process(CheckSequence(plan)).name("check").uid("check")
    windows = (
        checked.key_by(key_of_checked)
        .window(TumblingEventTimeWindows.of(timedelta(milliseconds=WINDOW_MS)))
        .aggregate(Sum(), WithWindow(plan))
        .name("sums")
        .uid("sums")
    )
    of_numbers, of_windows = (SlowableSink(ends.sink(name), plan.orders) for name in ("numbers", "windows"))
    checked.map(as_output).name("as_output").uid("as_output").sink_to(of_numbers).uid("numbers-sink")
    windows.union(float_windows(numbers, plan.variant)).sink_to(of_windows).uid("windows-sink")
