"""Changes of one parameter of a built-in operator between a snapshot and its restore, with their results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.datastream.functions import (
    CheckpointedFunction,
    KeyedProcessFunction,
    MapFunction,
)
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.window import (
    ContinuousEventTimeTrigger,
    CountTrigger,
    EventTimeSessionWindows,
    FieldAggregate,
    GlobalWindows,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TimeEvictor,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from penstock.graph import operations
from penstock.graph.operations import Operation

F = FieldAggregate
Shape = Callable[[Any, Any], Any]
"""A function (keyed stream, harness) -> the stream after the operator, which has the uid `op`."""


@dataclass(frozen=True)
class Watermark:
    at: int


@dataclass(frozen=True)
class Cell:
    """A change of one parameter.

    Attributes:
        expected: the results after the restore, or a part of the refusal.
        reported: a part of the report of the restore. If it is empty, the restore reports nothing.
    """

    name: str
    operation: type[Operation]
    parameter: str
    before: Shape
    after: Shape
    first: list[Any]
    then: list[Any]
    expected: Any
    reported: str = ""


# --- shapes -------------------------------------------------------------------------------------------------------


def rolling(*aggregates: F) -> Shape:
    return lambda keyed, h: keyed.aggregate(F.of(*aggregates))


def window(assigner: Any, end: Callable[[Any], Any], **options: Any) -> Shape:
    def shape(keyed: Any, h: Any) -> Any:
        windows = keyed.window(assigner)
        for name, value in options.items():
            windows = getattr(windows, name)(value)
        return end(windows)

    return shape


def summed(windows: Any) -> Any:
    return windows.reduce(lambda a, b: (a[0], a[1] + b[1]))


def listed(windows: Any) -> Any:
    return windows.apply(lambda key, window, records: [(key, window.start, window.end, [r[1] for r in records])])


def aggregated(*aggregates: F) -> Callable[[Any], Any]:
    return lambda windows: windows.aggregate(F.of(*aggregates))


class Greatest:
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return max(accumulator, value[1])

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, a: int, b: int) -> int:
        return max(a, b)


class Least(Greatest):
    def add(self, value: Any, accumulator: int) -> int:
        return min(accumulator, value[1])


class Count(KeyedProcessFunction):
    state = "count"

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", int, default=0))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.count.update(self.count.value() + 1)
        yield self.count.value()


class CountAsMap(MapFunction):
    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", int, default=0))

    def map(self, value: Any) -> Any:
        self.count.update(self.count.value() + 1)
        return self.count.value()


class Buffer(MapFunction, CheckpointedFunction):
    def initialize_state(self, context: Any) -> None:
        self.seen = context.get_operator_state_store().get_list_state("seen", int)

    def snapshot_state(self, context: Any) -> None: ...

    def map(self, value: Any) -> Any:
        self.seen.append(value[1])
        return len(self.seen)


class RenamedBuffer(Buffer): ...


def counted(record: Any, count: int | None) -> Any:
    return [(count or 0) + 1], (count or 0) + 1


class Latest(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.latest = runtime_context.get_state(ValueStateDescriptor("latest", int))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.latest.update(value[1])
        yield value[1]


def interval(lower: int, upper: int) -> Shape:
    def shape(keyed: Any, h: Any) -> Any:
        joined = keyed.interval_join(keyed.map(lambda r: r).key_by(lambda r: r[0])).between(lower, upper)
        return joined.process(lambda left, right, ctx: [(left[1], right[1])])

    return shape


def as_of(tolerance: int | None) -> Shape:
    def shape(keyed: Any, h: Any) -> Any:
        left, right = h.left, h.left.filter(lambda r: r[1] >= 100)
        return (
            left.filter(lambda r: r[1] < 100)
            .join(right)
            .where(lambda r: r[0])
            .equal_to(lambda r: r[0])
            .as_of(lambda a, b: (a[1], b and b[1]), tolerance=tolerance)
        )

    return shape


def reduced(function: Callable[[Any, Any], Any]) -> Shape:
    return lambda keyed, h: keyed.reduce(function)


def of_field(kind: str, field: Any) -> Shape:
    return lambda keyed, h: getattr(keyed, kind)(field)


def process(function: Any) -> Shape:
    return lambda keyed, h: keyed.process(function)


def by_field(selector: Any) -> Shape:
    return lambda keyed, h: h.left.key_by(selector).aggregate(F.sum(1))


def at(*records: Any) -> list[Any]:
    """Return records whose last field is their time."""
    return list(records)


SECOND, THREE = TumblingEventTimeWindows.of(1000), TumblingEventTimeWindows.of(3000)
TWO = [("k", 1, 100), ("k", 2, 200)]
REST = [("k", 4, 300), Watermark(999), Watermark(5000)]
PLAIN = [("k", 1, 10), ("k", 2, 20)]
ONE = [("k", 3, 30)]
FIRED = [*TWO, Watermark(1500)]
W = operations.Window

CELLS = [
    # --- rolling aggregates
    *(
        Cell(name, operations.RollingFields, "aggregate", rolling(*a), rolling(*b), PLAIN, then, expected, reported)
        for name, a, b, then, expected, reported in [
            ("reordered", (F.sum(1), F.sum(2)), (F.sum(2), F.sum(1)), ONE, [("k", 60, 6)], ""),
            ("another field", (F.sum(1),), (F.sum(2),), ONE, "which sum(2) cannot use", ""),
            ("maximum added", (F.sum(1),), (F.sum(1), F.max(1)), [("k", 0, 0)], [("k", 3, 0)], "max(1) is new"),
            ("mean for count", (F.count(1),), (F.mean(1),), ONE, "which mean(1) cannot use", ""),
            ("mean beside count", (F.count(1),), (F.count(1), F.mean(1)), ONE, "in a separate aggregate operator", ""),
            ("mean from sum", (F.sum(1),), (F.mean(1),), ONE, [("k", 2.0)], ""),
            ("count from sum", (F.sum(1),), (F.count(), F.count(1)), ONE, [("k", 3, 3)], "sum(1) was removed"),
            ("field added", (F.sum(1),), (F.count(), F.sum(2), F.sum(1)), ONE, [("k", 3, 30, 6)], "sum(2) is new"),
            ("field removed", (F.sum(1), F.max(2)), (F.sum(1),), ONE, [("k", 6)], "max(2) was removed"),
            ("spelled otherwise", (F.sum(1),), (F.sum("f1"),), ONE, [("k", 6)], ""),
            ("minimum for maximum", (F.max(1),), (F.min(1),), ONE, "which min(1) cannot use", ""),
        ]
    ),
    Cell("to reduce", operations.RollingFields, "aggregate", rolling(F.sum(1)), reduced(max), PLAIN, ONE, "is a reduce now"),
    Cell("key field", operations.RollingFields, "key_selector", by_field(0), by_field(2), PLAIN, ONE, "keys by the field 2"),
    Cell(
        "key by a function", operations.RollingFields, "key_selector",
        by_field(0), by_field(lambda r: r[0]), PLAIN, ONE, [("k", 6)],
    ),
    # --- reduce and aggregates of a field
    Cell(
        "other function", operations.Reduce, "function",
        reduced(lambda a, b: (a[0], a[1] + b[1], 0)), reduced(lambda a, b: (a[0], a[1] * b[1], 0)), PLAIN, ONE, [("k", 9, 0)],
    ),
    Cell("to aggregate", operations.Reduce, "function", reduced(max), rolling(F.sum(1)), PLAIN, ONE, "belongs to a reduce"),
    Cell("max for sum", operations.RollingAggregate, "kind", of_field("sum", 1), of_field("max", 1), PLAIN, ONE, "holds sum(1)"),
    Cell("min_by for min", operations.RollingAggregate, "kind", of_field("min", 1), of_field("min_by", 1), PLAIN, ONE, "min_by(1)"),
    Cell("other field", operations.RollingAggregate, "field", of_field("sum", 1), of_field("sum", 2), PLAIN, ONE, "asks for sum(2)"),
    Cell("same field", operations.RollingAggregate, "field", of_field("sum", 1), of_field("sum", "f1"), PLAIN, ONE, [("k", 6, 10)]),
    Cell("to reduce", operations.RollingAggregate, "kind", of_field("sum", 1), reduced(max), PLAIN, ONE, "is a reduce now"),
    # --- windows: assigners
    *(
        Cell(f"{name}, {how}", W, "assigner", window(a, end), window(b, end), TWO, REST, results, "fire at their own end")
        for name, a, b, of_new in [
            ("longer", SECOND, THREE, [(0, 3000)]),
            ("shorter", THREE, SECOND, [(0, 1000)]),
            ("shifted", SECOND, TumblingEventTimeWindows.of(1000, 500), [(-500, 500)]),
            ("tumbling to sliding", SECOND, SlidingEventTimeWindows.of(1500, 1500, 0), [(0, 1500)]),
            ("sliding to tumbling", SlidingEventTimeWindows.of(2000, 1000), SECOND, [(0, 1000)]),
        ]
        for how, end, results in [
            ("all records", listed, sorted(
                [*[("k", s, e, [1, 2]) for s, e in ([(-1000, 1000), (0, 2000)] if "sliding to" in name
                                                   else [(0, 3000)] if name == "shorter" else [(0, 1000)])],
                 *[("k", s, e, [4]) for s, e in of_new]], key=lambda r: (r[2], r[1]))),
        ]
    ),
    Cell("longer, reduced", W, "assigner", window(SECOND, summed), window(THREE, summed), TWO, REST, [("k", 3), ("k", 4, 300)], "own end"),
    Cell(
        "longer, by pane", W, "assigner",
        window(SECOND, listed, trigger=ContinuousEventTimeTrigger.of(10_000)),
        window(THREE, listed, trigger=ContinuousEventTimeTrigger.of(10_000)),
        TWO, REST, [("k", 0, 1000, [1, 2]), ("k", 0, 3000, [4])], "own end",
    ),
    Cell(
        "sessions with a longer gap", W, "assigner",
        window(EventTimeSessionWindows.with_gap(500), listed), window(EventTimeSessionWindows.with_gap(900), listed),
        [("k", 1, 100), ("j", 2, 200)], [("k", 4, 400), Watermark(700), Watermark(5000)],
        [("j", 200, 700, [2]), ("k", 100, 1300, [1, 4])], "open sessions keep their end",
    ),
    Cell(
        "sessions with a gap by record", W, "assigner",
        window(EventTimeSessionWindows.with_gap(500), summed),
        window(EventTimeSessionWindows.with_dynamic_gap(lambda r: 900), summed),
        TWO, [("k", 4, 400), Watermark(1200), ("j", 1, 1250), Watermark(1299)], [("k", 7)], "a gap by record",
    ),
    *(
        Cell(f"{name} refused", W, "assigner", window(a, listed), window(b, listed), TWO, REST, refusal)
        for name, a, b, refusal in [
            ("tumbling to sessions", SECOND, EventTimeSessionWindows.with_gap(500), "asks for event time sessions"),
            ("sessions to tumbling", EventTimeSessionWindows.with_gap(500), SECOND, "contents of event time sessions"),
            ("other clock", SECOND, TumblingProcessingTimeWindows.of(1000), "asks for tumbling processing time windows"),
            ("global to tumbling", GlobalWindows.create(), SECOND, "contents of the global window"),
        ]
    ),
    Cell(
        "count windows", W, "assigner",
        lambda k, h: k.count_window(3).apply(lambda key, w, r: [len(list(r))]),
        lambda k, h: k.count_window(5).apply(lambda key, w, r: [len(list(r))]),
        PLAIN, ONE, "asks for count windows of 5 records",
    ),
    # --- windows: functions
    *(
        Cell(f"{name}", W, "function", window(SECOND, a), window(SECOND, b), TWO, REST, expected, reported)
        for name, a, b, expected, reported in [
            ("aggregates reordered", aggregated(F.sum(1), F.count()), aggregated(F.count(), F.sum(1)), [(3, 7)], ""),
            ("aggregate added", aggregated(F.sum(1)), aggregated(F.sum(1), F.max(1)), [(7, 4)], "max(1) is new"),
            ("aggregate of another field", aggregated(F.sum(1)), aggregated(F.sum(2)), "cannot use", ""),
            ("mean for count", aggregated(F.count(1)), aggregated(F.mean(1)), "cannot use", ""),
            ("own aggregate", lambda w: w.aggregate(Greatest()), lambda w: w.aggregate(Least()), [2], "Greatest and is Least"),
            ("sum to max", lambda w: w.sum(1), lambda w: w.max(1), "windows stored sum(1)", ""),
            ("sum of another field", lambda w: w.sum(1), lambda w: w.sum(2), "windows stored sum(1)", ""),
            ("reduce to all records", summed, listed, "windows stored one reduced record", ""),
            ("all records to reduce", listed, summed, "windows stored all their records", ""),
            ("reduce to aggregate", summed, aggregated(F.sum(1)), "windows stored one reduced record", ""),
            ("all records otherwise", listed, lambda w: w.process(lambda k, c, r: [len(list(r))]), [3], ""),
        ]
    ),
    Cell("to a rolling sum", W, "function", window(SECOND, summed), of_field("sum", 1), TWO, ONE, "belongs to a window"),
    # --- windows: triggers, evictors, lateness, keys
    Cell(
        "default to count", W, "trigger", window(SECOND, listed), window(SECOND, listed, trigger=CountTrigger.of(1)),
        TWO, REST, [("k", 0, 1000, [1, 2, 4])], "does not count records that arrived before the restore",
    ),
    Cell(
        "count to default", W, "trigger", window(SECOND, listed, trigger=CountTrigger.of(5)), window(SECOND, listed),
        TWO, REST, "data of the trigger CountTrigger",
    ),
    Cell(
        "smaller count", W, "trigger",
        window(GlobalWindows.create(), listed, trigger=PurgingTrigger.of(CountTrigger.of(5))),
        window(GlobalWindows.create(), lambda w: w.apply(lambda k, w, r: [len(list(r))]), trigger=PurgingTrigger.of(CountTrigger.of(3))),
        PLAIN, [*ONE, *ONE], [3],
    ),
    Cell("evictor added", W, "evictor", window(SECOND, listed), window(SECOND, listed, evictor=TimeEvictor.of(5)), TWO, REST, "for an evictor"),
    Cell("evictor removed", W, "evictor", window(SECOND, listed, evictor=TimeEvictor.of(5)), window(SECOND, listed), TWO, REST, "for an evictor"),
    Cell(
        "of the whole stream", W, "key_selector", window(SECOND, summed),
        lambda k, h: h.left.window_all(SECOND).reduce(lambda a, b: (a[0], a[1] + b[1])), TWO, REST, "windows of the whole stream",
    ),
    *(
        Cell(
            f"lateness of {a} ms to {b} ms, {how}", W, "allowed_lateness_ms",
            window(assigner, end, **options, **({"allowed_lateness": a} if a else {})),  # type: ignore[arg-type]
            window(assigner, end, **options, **({"allowed_lateness": b} if b else {})),  # type: ignore[arg-type]
            FIRED if a else TWO, [("k", 4, 2000), Watermark(1600), Watermark(30_000)], [*([] if a else [first]), result], f"from {a} ms to {b} ms",
        )
        for a, b in [(5000, 0), (0, 5000), (5000, 100), (5000, 4000)]
        for how, assigner, end, options, result, first in [
            ("reduced", SECOND, summed, {}, ("k", 4, 2000), ("k", 3)),
            ("all records", SECOND, listed, {}, ("k", 2000, 3000, [4]), ("k", 0, 1000, [1, 2])),
            ("by pane", SECOND, listed, {"trigger": ContinuousEventTimeTrigger.of(50_000)}, ("k", 2000, 3000, [4]), ("k", 0, 1000, [1, 2])),
            ("evicted", SECOND, listed, {"evictor": TimeEvictor.of(900)}, ("k", 2000, 3000, [4]), ("k", 0, 1000, [1, 2])),
            ("sessions", EventTimeSessionWindows.with_gap(400), summed, {}, ("k", 4, 2000), ("k", 3)),
            ("sessions with all records", EventTimeSessionWindows.with_gap(400), listed, {}, ("k", 2000, 2400, [4]), ("k", 100, 600, [1, 2])),
        ]
    ),
    # --- joins
    Cell(
        "narrower", operations.IntervalJoin, "upper_ms", interval(0, 500), interval(0, 150), TWO, [("k", 4, 300), Watermark(9000)],
        [(2, 4), (4, 4)], "the interval changed",
    ),
    Cell(
        "wider", operations.IntervalJoin, "lower_ms", interval(0, 50), interval(-150, 150), TWO, [("k", 4, 300), Watermark(9000)],
        [(4, 2), (2, 4), (4, 4)], "dropped stay dropped",
    ),
    Cell("to a window", operations.IntervalJoin, "function", interval(0, 50), window(SECOND, summed), TWO, REST, "belongs to an interval join"),
    Cell(
        "as-of with a tolerance", operations.CoProcess, "function", as_of(None), as_of(100),
        [("k", 100, 100), Watermark(150)], [("k", 1, 190), ("k", 2, 300), Watermark(9000)], [(1, 100), (2, None)], "tolerance changed",
    ),
    Cell(
        "as-of with a longer tolerance",
        operations.CoProcess,
        "function",
        as_of(100),
        as_of(500),
        [("k", 100, 100), Watermark(150)],
        [("k", 1, 550), Watermark(560), Watermark(9000)],
        [(1, 100)],
        "from 100 ms to 500 ms",
    ),
    # --- functions
    Cell(
        "another function with state",
        operations.Map,
        "function",
        lambda k, h: k.map_with_state(lambda r, n: ((n or 0) + 1, (n or 0) + 1), int),
        lambda k, h: k.flat_map_with_state(counted, int),
        PLAIN,
        ONE,
        [3],
    ),
    Cell(
        "from a function with state",
        operations.Map,
        "function",
        lambda k, h: k.map_with_state(counted, int),
        process(Latest()),
        PLAIN,
        ONE,
        "with the states with-state",
    ),
    Cell(
        "uid on a function without operator state",
        operations.Map,
        "function",
        lambda k, h: h.left.map(Buffer()),
        lambda k, h: h.left.map(len),
        PLAIN,
        ONE,
        "belongs to the function Buffer with the states seen",
    ),
    Cell(
        "operator state of another class",
        operations.Map,
        "function",
        lambda k, h: h.left.map(Buffer()),
        lambda k, h: h.left.map(RenamedBuffer()),
        PLAIN,
        ONE,
        [3],
    ),
    Cell("map for process", operations.Process, "function", process(Count()), lambda k, h: k.map(CountAsMap()), PLAIN, ONE, [3]),
    Cell("process for map", operations.Map, "function", lambda k, h: k.map(CountAsMap()), process(Count()), PLAIN, ONE, [3]),
    Cell(
        "uid on a map without a key", operations.Process, "key_selector", process(Count()),
        lambda k, h: k.process(Count()).map(lambda n: n), PLAIN, ONE, "the operator has no key now",
    ),
    Cell("uid on another function", operations.Process, "function", process(Count()), process(Latest()), PLAIN, ONE, "with the states count"),
    Cell("to a reduce", operations.Process, "function", process(Count()), reduced(max), PLAIN, ONE, "belongs to the function Count"),
]  # fmt: skip
