"""The job whose savepoints are kept: every kind of state and timer, and every built-in operator with state.

`FEATURES` has one entry for each of them. The name of an entry is the uid of the operator and the name of its output.
Never change an entry that kept savepoints contain. Add a new entry instead.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple

from penstock.common import Row, Types
from penstock.datastream.data_stream import DataStream
from penstock.datastream.functions import (
    AggregateFunction,
    BroadcastProcessFunction,
    CheckpointedFunction,
    FlatMapFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessWindowFunction,
    RuntimeContext,
)
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from penstock.datastream.window import (
    ContinuousEventTimeTrigger,
    CountEvictor,
    CountTrigger,
    EventTimeSessionWindows,
    FieldAggregate,
    GlobalWindows,
    ProcessingTimeSessionWindows,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)

Pair = tuple[str, int]
RULES = MapStateDescriptor("rules", str, int)
TYPES = {"k": str, "n": int, "x": float}


class Level(Enum):
    """An enum as key and as value."""

    LOW = "low"
    HIGH = "high"


class Place(NamedTuple):
    """A NamedTuple as key and as value."""

    name: str
    floor: int


@dataclass
class Summary:
    """A dataclass as value."""

    count: int
    names: list[str]
    level: Level


@dataclass(frozen=True)
class Streams:
    """The inputs. Values of `pairs` and `others` are (key, number), values of `rules` are (key, factor)."""

    pairs: DataStream
    others: DataStream
    rules: DataStream


def first(value: Any) -> Any:
    return value[0]


def second(value: Any) -> Any:
    return value[1]


def add(a: Pair, b: Pair) -> Pair:
    return a[0], a[1] + b[1]


class Collected(AggregateFunction):
    """The numbers of all values, as text."""

    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: Pair, accumulator: list[int]) -> list[int]:
        return [*accumulator, value[1]]

    def get_result(self, accumulator: list[int]) -> str:
        return ",".join(map(str, sorted(accumulator)))

    def merge(self, acc_a: list[int], acc_b: list[int]) -> list[int]:
        return acc_a + acc_b


class Mean(AggregateFunction):
    """The mean of numbers."""

    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class EveryState(KeyedProcessFunction):
    """All kinds of keyed state, with builtin types."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", int, default=10))
        self.untyped = runtime_context.get_state(ValueStateDescriptor("untyped"))
        self.numbers = runtime_context.get_list_state(ListStateDescriptor("numbers", int))
        self.by_number = runtime_context.get_map_state(MapStateDescriptor("by-number", int, str))
        self.most = runtime_context.get_reducing_state(ReducingStateDescriptor("most", max, int))
        self.mean = runtime_context.get_aggregating_state(
            AggregatingStateDescriptor("mean", Mean(), Types.TUPLE([Types.LONG(), Types.LONG()]))
        )

    def process_element(self, value: Pair, ctx: Any) -> Iterator[Any]:
        number = value[1]
        self.count.update((self.count.value() or 0) + 1)
        self.untyped.update({"last": number, "before": (self.untyped.value() or {}).get("last")})
        self.numbers.add(number)
        self.by_number.put(number, f"{number}!")
        self.most.add(number)
        self.mean.add(number)
        entries = sorted(self.by_number.items())
        state = (self.count.value(), self.untyped.value(), list(self.numbers.get()), entries, self.most.get())
        yield value[0], *state, self.mean.get()


class TypedState(KeyedProcessFunction):
    """State of declared types."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.summary = runtime_context.get_state(ValueStateDescriptor("summary", Summary))
        self.place = runtime_context.get_state(ValueStateDescriptor("place", Place))
        self.row = runtime_context.get_state(
            ValueStateDescriptor("row", Types.ROW_NAMED(["name", "number"], [Types.STRING(), Types.LONG()]))
        )
        self.amount = runtime_context.get_state(ValueStateDescriptor("amount", Decimal))
        self.days = runtime_context.get_list_state(ListStateDescriptor("days", datetime.date))
        self.times = runtime_context.get_map_state(MapStateDescriptor("times", Level, datetime.datetime))
        self.raw = runtime_context.get_state(ValueStateDescriptor("raw", bytes))
        self.pickled = runtime_context.get_state(ValueStateDescriptor("pickled", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value: Pair, ctx: Any) -> Iterator[Any]:
        key, number = value
        level = Level.HIGH if number % 2 else Level.LOW
        old = self.summary.value() or Summary(0, [], Level.LOW)
        self.summary.update(Summary(old.count + number, [*old.names, key], level))
        self.place.update(Place(key, (self.place.value() or Place("", 0)).floor + 1))
        row = self.row.value()
        self.row.update(Row(name=key, number=number + (row.number if row else 0)))
        self.amount.update((self.amount.value() or Decimal("0.10")) + Decimal(number) / 4)
        self.days.add(datetime.date(2026, 1, 1) + datetime.timedelta(days=number))
        self.times.put(level, datetime.datetime(2026, 1, 1, 12, 0, 0, number))
        self.raw.update((self.raw.value() or b"") + bytes([number % 256]))
        self.pickled.update({*(self.pickled.value() or set()), number})
        times = sorted((level.value, time) for level, time in self.times.items())
        values = (self.summary.value(), self.place.value(), self.row.value(), self.amount.value())
        yield *values, list(self.days.get()), times, self.raw.value(), sorted(self.pickled.value() or ())


class Expiring(KeyedProcessFunction):
    """State with a time to live of ten seconds of processing time."""

    def open(self, runtime_context: RuntimeContext) -> None:
        ttl = datetime.timedelta(seconds=10)
        self.count = runtime_context.get_state(ValueStateDescriptor("count", int, default=0, ttl=ttl))
        self.seen = runtime_context.get_map_state(MapStateDescriptor("seen", int, int, ttl=ttl))
        self.all = runtime_context.get_list_state(ListStateDescriptor("all", int, ttl=ttl))

    def process_element(self, value: Pair, ctx: Any) -> Iterator[Any]:
        self.count.update((self.count.value() or 0) + 1)
        self.seen.put(value[1], value[1])
        self.all.add(value[1])
        yield value[0], self.count.value(), sorted(self.seen.keys()), list(self.all.get())


class EventTimers(KeyedProcessFunction):
    """Event-time timers; a timer shows the key's state."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", int, default=0))

    def process_element(self, value: Pair, ctx: Any) -> None:
        self.total.update((self.total.value() or 0) + value[1])
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 1_000)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield ctx.get_current_key(), timestamp, self.total.value()


class ProcessingTimers(KeyedProcessFunction):
    """Processing-time timers."""

    def process_element(self, value: Pair, ctx: Any) -> None:
        service = ctx.timer_service()
        service.register_processing_time_timer(service.current_processing_time() + 7_000 + value[1])

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield ctx.get_current_key(), timestamp


class ByPlace(KeyedProcessFunction):
    """A counter per key, which is an object."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", int, default=0))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.count.update((self.count.value() or 0) + 1)
        yield ctx.get_current_key(), self.count.value()


class Threes(FlatMapFunction, CheckpointedFunction):
    """A function that emits its values in groups of three, with operator state."""

    def __init__(self, *, union: bool = False) -> None:
        self.union = union
        self.pending: list[int] = []

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store = context.get_operator_state_store()
        self.stored = (store.get_union_list_state if self.union else store.get_list_state)("pending", int)
        self.pending = list(self.stored)

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.stored[:] = self.pending

    def flat_map(self, value: Pair) -> Iterator[list[int]]:
        self.pending.append(value[1])
        if len(self.pending) >= 3:
            yield sorted(self.pending)
            self.pending = []


class Scaled(BroadcastProcessFunction):
    """Numbers by the factor of their key, from broadcast state."""

    def process_element(self, value: Pair, ctx: Any) -> Iterator[Any]:
        yield value[0], value[1] * (ctx.get_broadcast_state(RULES).get(value[0]) or 0)

    def process_broadcast_element(self, value: Pair, ctx: Any) -> None:
        ctx.get_broadcast_state(RULES).put(value[0], value[1])


class ScaledTotals(KeyedBroadcastProcessFunction):
    """Totals per key, by factors from broadcast state."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", int, default=0))

    def process_element(self, value: Pair, ctx: Any) -> Iterator[Any]:
        factor = ctx.get_broadcast_state(RULES).get(value[0]) or 0
        self.total.update((self.total.value() or 0) + value[1] * factor)
        yield value[0], self.total.value()

    def process_broadcast_element(self, value: Pair, ctx: Any) -> None:
        ctx.get_broadcast_state(RULES).put(value[0], value[1])


class BothSides(KeyedCoProcessFunction):
    """Counts per key and input, and a timer."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.counts = runtime_context.get_map_state(MapStateDescriptor("counts", str, int))

    def _count(self, side: str, ctx: Any) -> list[Any]:
        self.counts.put(side, (self.counts.get(side) or 0) + 1)
        ctx.timer_service().register_event_time_timer(5_000)
        return [(ctx.get_current_key(), sorted(self.counts.items()))]

    def process_element1(self, value: Pair, ctx: Any) -> list[Any]:
        return self._count("left", ctx)

    def process_element2(self, value: Pair, ctx: Any) -> list[Any]:
        return self._count("right", ctx)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield ctx.get_current_key(), timestamp, sorted(self.counts.items())


class InWindow(ProcessWindowFunction):
    """Start and values of a window, with a counter of its firings and a total of the key."""

    def process(self, key: str, context: Any, elements: Any) -> Iterator[Any]:
        fired = context.window_state().get_state(ValueStateDescriptor("fired", int, default=0))
        total = context.global_state().get_state(ValueStateDescriptor("total", int, default=0))
        fired.update(fired.value() + 1)
        total.update(total.value() + len(elements))
        yield key, context.window().start, sorted(map(second, elements)), fired.value(), total.value()


def _windows(assigner: Any) -> Callable[[Streams], Any]:
    return lambda streams: streams.pairs.key_by(first).window(assigner)


def _as_dicts(stream: DataStream) -> DataStream:
    return stream.map(
        lambda v: {"k": v[0], "n": v[1], "x": v[1] / 4},
        Types.ROW_NAMED(["k", "n", "x"], [Types.STRING(), Types.LONG(), Types.DOUBLE()]),
    )


SECOND = TumblingEventTimeWindows.of(1_000)
FIELDS = FieldAggregate.of(
    FieldAggregate.mean("x"),
    FieldAggregate.sum("n"),
    FieldAggregate.min("n"),
    FieldAggregate.max("x"),
    FieldAggregate.count(),
)

FEATURES: dict[str, Callable[[Streams], DataStream]] = {
    # state and timers of functions
    "every-state": lambda s: s.pairs.key_by(first).process(EveryState()),
    "typed-state": lambda s: s.pairs.key_by(first).process(TypedState()),
    "expiring-state": lambda s: s.pairs.key_by(first).process(Expiring()),
    "event-timers": lambda s: s.pairs.key_by(first).process(EventTimers()),
    "processing-timers": lambda s: s.pairs.key_by(first).process(ProcessingTimers()),
    "key-int": lambda s: s.pairs.key_by(second, int).process(ByPlace()),
    "key-named-tuple": lambda s: s.pairs.key_by(lambda v: Place(v[0], v[1] % 2), Place).process(ByPlace()),
    "key-enum": lambda s: s.pairs.key_by(lambda v: Level.HIGH if v[1] % 2 else Level.LOW, Level).process(ByPlace()),
    "key-tuple": lambda s: s.pairs.key_by(lambda v: (v[0], v[1] % 2)).process(ByPlace()),
    "key-bytes": lambda s: s.pairs.key_by(lambda v: v[0].encode()).process(ByPlace()),
    "map-with-state": lambda s: s.pairs.key_by(first).map_with_state(
        lambda value, state: (state or 0, (state or 0) + value[1])
    ),
    "operator-list": lambda s: s.pairs.flat_map(Threes()).set_parallelism(1),
    "operator-union-list": lambda s: s.pairs.flat_map(Threes(union=True)).set_parallelism(1),
    "broadcast": lambda s: s.pairs.connect(s.rules.broadcast(RULES)).process(Scaled()),
    "keyed-broadcast": lambda s: s.pairs.key_by(first).connect(s.rules.broadcast(RULES)).process(ScaledTotals()),
    "co-process": lambda s: s.pairs.connect(s.others).key_by(first, first).process(BothSides()),
    # rolling aggregates
    "reduce": lambda s: s.pairs.key_by(first).reduce(add),
    "rolling-sum": lambda s: s.pairs.key_by(first).sum(1),
    "rolling-min": lambda s: s.pairs.key_by(first).min(1),
    "rolling-max": lambda s: s.pairs.key_by(first).max(1),
    "rolling-min-by": lambda s: s.pairs.key_by(first).min_by(1),
    "rolling-max-by": lambda s: s.pairs.key_by(first).max_by(1),
    "rolling-fields": lambda s: _as_dicts(s.pairs).key_by("k").aggregate(FIELDS),
    "rolling-one-field": lambda s: _as_dicts(s.pairs).key_by("k").aggregate(FieldAggregate.sum("x")),
    # windows
    "tumbling-reduce": lambda s: _windows(SECOND)(s).reduce(add),
    "tumbling-aggregate": lambda s: _windows(SECOND)(s).aggregate(Collected()),
    "tumbling-fields": lambda s: _as_dicts(s.pairs).key_by("k").window(SECOND).aggregate(FIELDS),
    "tumbling-process": lambda s: _windows(SECOND)(s).process(InWindow()),
    "tumbling-late": lambda s: _windows(SECOND)(s).allowed_lateness(5_000).process(InWindow()),
    "tumbling-evictor": lambda s: _windows(SECOND)(s).evictor(CountEvictor.of(2)).process(InWindow()),
    "tumbling-continuous": lambda s: (
        _windows(TumblingEventTimeWindows.of(4_000))(s).trigger(ContinuousEventTimeTrigger.of(1_000)).reduce(add)
    ),
    "sliding": lambda s: _windows(SlidingEventTimeWindows.of(2_000, 500))(s).process(InWindow()),
    "sliding-fields": lambda s: (
        _as_dicts(s.pairs).key_by("k").window(SlidingEventTimeWindows.of(2_000, 500)).aggregate(FIELDS)
    ),
    "session-reduce": lambda s: _windows(EventTimeSessionWindows.with_gap(700))(s).reduce(add),
    "session-process": lambda s: _windows(EventTimeSessionWindows.with_gap(700))(s).process(InSession()),
    "session-fields": lambda s: (
        _as_dicts(s.pairs).key_by("k").window(EventTimeSessionWindows.with_gap(700)).aggregate(FIELDS)
    ),
    "processing-windows": lambda s: _windows(TumblingProcessingTimeWindows.of(5_000))(s).reduce(add),
    "processing-sessions": lambda s: _windows(ProcessingTimeSessionWindows.with_gap(4_000))(s).aggregate(Collected()),
    "global-count": lambda s: (
        _windows(GlobalWindows.create())(s).trigger(PurgingTrigger.of(CountTrigger.of(3))).aggregate(Collected())
    ),
    "count-window": lambda s: s.pairs.key_by(first).count_window(3).reduce(add),
    "count-sliding": lambda s: s.pairs.key_by(first).count_window(4, 2).reduce(add),
    "window-all": lambda s: s.pairs.window_all(SECOND).reduce(add_all),
    # two streams
    "window-join": lambda s: s.pairs.join(s.others).where(first).equal_to(first).window(SECOND).apply(pair),
    "co-group": lambda s: s.pairs.co_group(s.others).where(first).equal_to(first).window(SECOND).apply(grouped),
    "interval-join": lambda s: (
        s.pairs.key_by(first)
        .interval_join(s.others.key_by(first))
        .between(-500, 1_500)
        .process(lambda left, right, ctx: [pair(left, right)])
    ),
    "join": lambda s: s.pairs.join(s.others).where(first).equal_to(first).apply(pair),
    "as-of": lambda s: s.pairs.join(s.others).where(first).equal_to(first).as_of(newest, tolerance=2_000),
}


class InSession(ProcessWindowFunction):
    """Start, end and values of a session."""

    def process(self, key: str, context: Any, elements: Any) -> Iterator[Any]:
        window = context.window()
        yield key, window.start, window.end, sorted(map(second, elements))


def add_all(a: Pair, b: Pair) -> Pair:
    return "all", a[1] + b[1]


def pair(left: Pair, right: Pair) -> tuple[str, int, int]:
    return left[0], left[1], right[1]


def newest(left: Pair, right: Pair | None) -> tuple[str, int, int | None]:
    return left[0], left[1], None if right is None else right[1]


def grouped(left: list[Pair], right: list[Pair]) -> Iterator[Any]:
    yield sorted(map(second, left)), sorted(map(second, right))
