"""The soak's job: it checks itself, and does wrong what it is ordered to.

As in `tests.integration.engine.selfcheck.job` every key gets the numbers 0, 1, 2, … in order, a keyed function writes next
to each what state remembers, and windows add the numbers up. Here records have payloads of up to 1 MiB, of which state
holds the last large one and the windows count the bytes; and a folder of *orders* tells the user's functions to raise, to
end their process or to hang, and the sinks to be slow.

Three levels: source -> by key: sequence check -> by key again: windows. Both branches end in an exactly-once sink: files, or
Kafka, from where the records then come as well (`tests.chaos.kafka_ends`).
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.datagen import GeneratorReader, GeneratorSplitReader
from penstock.connectors.formats.encode import JsonLinesEncoder
from penstock.connectors.sink import Committer, Sink, SinkWriter, WriterContext
from penstock.connectors.source import ReadBounds, ReaderContext, Split, SplitReader
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.datastream.connectors.file_system import FileSink, RollingPolicy
from penstock.datastream.data_stream import DataStream
from penstock.datastream.functions import AggregateFunction, KeyedProcessFunction, ProcessWindowFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.records.batch import Batch, RowBatch

STEP_MS = 100
"""Event time between two numbers of one key."""
WINDOW_MS = 1_000
PER_WINDOW = WINDOW_MS // STEP_MS
LARGE = 8 << 10
HUGE = 1 << 20
_HURRIED = 8.0
"""Times the rate at which the rest is read once it is known where the end is."""


@dataclass(frozen=True)
class SoakPlan:
    """What goes in: at most `per_key` numbers for each key; an order says where the input ends. `keys` is a multiple of `splits`: a key's numbers come from one split, in order."""

    per_key: int
    orders: str
    """Folder of `Orders`."""
    rate: float = 500.0
    """Records per second, of all splits together."""
    keys: int = 20
    splits: int = 4
    kafka: str = ""
    """Addresses of brokers: records come from there and go there."""

    @property
    def total(self) -> int:
        return self.per_key * self.keys


# --- records --------------------------------------------------------------------------------------------------


def payload_size(key: int, number: int) -> int:
    """Bytes: most are small, every twentieth is of 8 KiB, every 500th of every fifth key of 1 MiB."""
    if key % 5 == 0 and number % 500 == 7:
        return HUGE
    if number % 20 == 3:
        return LARGE
    return (key * 7 + number) % 50


def payload(key: int, number: int) -> bytes:
    """
    >>> len(payload(5, 7)) == HUGE, payload(1, 2)
    (True, b'1/2;1/2;1')
    """
    size = payload_size(key, number)
    piece = f"{key}/{number};".encode()
    return (piece * (size // len(piece) + 1))[:size]


def last_large(key: int, number: int) -> int:
    """The last number before this one whose payload state remembers; -1: none.

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
    """The number before, as state remembers it; -1: none."""
    count: int
    """How many there were, with this one."""
    total: int
    """Of all numbers so far, with this one."""
    crc: int
    held: int
    """crc32 of the large payload that state held when this record came; only of every tenth number, else 0."""
    payload: bytes


class Numbers:
    """Index -> record. Split n of a bounded generator is the n-th of equal ranges."""

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


# --- orders ---------------------------------------------------------------------------------------------------


class Orders:
    """What the soak orders the user's code to do, by files in a folder; both ends use this class.

    An order is for one *place* in the program. Whoever meets it first takes it (by a rename) and obeys.
    """

    END = "end"
    SLOW = "slow-sink"
    DEEDS = ("raise", "exit", "crash", "hang")

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def give(self, place: str, deed: str) -> None:
        made = Path(self.folder, f"{place}.new")
        made.write_text(deed)
        made.rename(Path(self.folder, place))

    def is_taken(self, place: str) -> bool:
        return not Path(self.folder, place).exists()

    def withdraw(self, place: str) -> bool:
        """False: it was taken."""
        try:
            os.remove(os.path.join(self.folder, place))
        except FileNotFoundError:
            return False
        return True

    def obey(self, place: str) -> None:
        path = os.path.join(self.folder, place)
        if not os.path.exists(path):
            return
        taken = f"{path}-taken-{os.getpid()}"
        try:
            os.rename(path, taken)
        except FileNotFoundError:
            return
        deed = Path(taken).read_text()
        os.remove(taken)
        match deed:
            case "raise":
                raise ValueError(f"the soak ordered {place} to raise")
            case "exit":
                sys.exit(3)
            case "crash":
                ctypes.string_at(0)
            case "hang":
                threading.Event().wait()


# --- operators ------------------------------------------------------------------------------------------------


class EndlessSource(DataGeneratorSource):
    """Its input ends where an order says, which holds how many numbers each key gets; that is read faster."""

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
        reader = EndlessSplitReader(self._function, indexes, self._rate * found["share"], self._now_ms)
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
            assert end >= self._indexes.start + self._made, "the end of the input is before what was read"
            self._indexes = range(self._indexes.start, end)
            self._rate *= _HURRIED
            self._began = self._now_ms() - int(self._made * 1000 / self._rate)
        return super().read(bounds)


class CheckSequence(KeyedProcessFunction):
    """Next to every number what state remembers of those before it."""

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
        held = zlib.crc32(self.large.value() or b"") if value.number % 10 == 0 else 0
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
            held,
            value.payload,
        )


class Sum(AggregateFunction):
    """Numbers, records, bytes."""

    def create_accumulator(self) -> tuple[int, int, int]:
        return 0, 0, 0

    def add(self, value: Checked, accumulator: tuple[int, int, int]) -> tuple[int, int, int]:
        total, count, size = accumulator
        return total + value.number, count + 1, size + len(value.payload)

    def get_result(self, accumulator: tuple[int, int, int]) -> tuple[int, int, int]:
        return accumulator

    def merge(self, acc_a: tuple[int, int, int], acc_b: tuple[int, int, int]) -> tuple[int, int, int]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1], acc_a[2] + acc_b[2]


class WithWindow(ProcessWindowFunction):
    def __init__(self, plan: SoakPlan) -> None:
        self.orders = Orders(plan.orders)

    def process(self, key: int, context: Any, elements: Any) -> Iterator[dict[str, int]]:
        self.orders.obey("window")
        for total, count, size in elements:
            yield {"key": key, "start": context.window().start, "sum": total, "count": count, "bytes": size}


class SlowableSink(Sink):
    """A sink whose writers pause before every batch for as long as it is ordered.

    The order holds seconds: how long each record takes. A writer that has paused says so in `slow-sink-felt`.
    """

    def __init__(self, inner: Sink, orders: str) -> None:
        self.inner = inner
        self.orders = orders

    def create_writer(self, context: WriterContext, restored: list[Any]) -> SinkWriter:
        return SlowableWriter(self.inner.create_writer(context, restored), self.orders)

    def create_committer(
        self, object_store_options: dict[str, Any], *, job_id: str = "", uid: str = ""
    ) -> Committer | None:
        return self.inner.create_committer(object_store_options, job_id=job_id, uid=uid)

    def with_object_store_options(self, options: dict[str, Any]) -> SlowableSink:
        return SlowableSink(self.inner.with_object_store_options(options), self.orders)

    def validate(self) -> None:
        self.inner.validate()


class SlowableWriter(SinkWriter):
    def __init__(self, inner: SinkWriter, orders: str) -> None:
        self._inner = inner
        self._orders = orders
        self._order = os.path.join(orders, Orders.SLOW)

    def write_batch(self, batch: Batch, watermark: int) -> None:
        Orders(self._orders).obey("sink")
        if os.path.exists(self._order):
            try:
                seconds = float(Path(self._order).read_text())
            except (FileNotFoundError, ValueError):  # withdrawn since
                seconds = 0.0
            time.sleep(seconds * len(batch))
            Path(f"{self._order}-felt").touch()
        self._inner.write_batch(batch, watermark)

    def write(self, values: list[Any], timestamps: list[int] | None, watermark: int) -> None:
        self._inner.write(values, timestamps, watermark)

    def prepare_commit(self, checkpoint_id: int) -> list[Any]:
        return self._inner.prepare_commit(checkpoint_id)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self._inner.notify_checkpoint_complete(checkpoint_id)

    def notify_committed(self, checkpoint_id: int) -> None:
        self._inner.notify_committed(checkpoint_id)

    def snapshot_state(self, checkpoint_id: int) -> list[Any]:
        return self._inner.snapshot_state(checkpoint_id)

    def advance_processing_time(self, now: int) -> None:
        self._inner.advance_processing_time(now)

    def finish(self) -> None:
        self._inner.finish()

    def flush(self) -> None:
        self._inner.flush()

    def close(self) -> None:
        self._inner.close()


# --- the program ----------------------------------------------------------------------------------------------


def event_time(value: Numbered, record_timestamp: int | None) -> int:
    return value.time


def key_of(value: Numbered) -> int:
    return value.key


def key_of_checked(value: Checked) -> int:
    return value.key


def told(value: Checked) -> dict[str, int]:
    """What goes out of a record: its payload as a checksum."""
    return {name: held for name, held in value._asdict().items() if name != "payload"}


class Ends(Protocol):
    """Where the job's records come from, and where they go."""

    def numbers(self, env: StreamExecutionEnvironment, strategy: WatermarkStrategy) -> DataStream: ...

    def sink(self, name: str) -> Sink: ...


class FileEnds:
    """Made in the job; to `output`/numbers at every checkpoint, and to `output`/windows every few seconds."""

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
    """The whole job."""
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(event_time)
    numbers = ends.numbers(env, strategy)
    checked = numbers.key_by(key_of).process(CheckSequence(plan)).name("check").uid("check")
    windows = (
        checked.key_by(key_of_checked)
        .window(TumblingEventTimeWindows.of(timedelta(milliseconds=WINDOW_MS)))
        .aggregate(Sum(), WithWindow(plan))
        .name("sums")
        .uid("sums")
    )
    of_numbers, of_windows = (SlowableSink(ends.sink(name), plan.orders) for name in ("numbers", "windows"))
    checked.map(told).name("told").uid("told").sink_to(of_numbers).uid("numbers-sink")
    windows.sink_to(of_windows).uid("windows-sink")
