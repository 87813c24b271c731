"""Random programs in two forms: as a job of the engine, and as input of the reference interpreter.

A program is a tree of plain tuples. So a failing program can be reduced and copied into a test. Values are (key,
number).

Some steps depend on the order of a key's records. They occur only if that order is the same at any parallelism. After a
union or a join, this is not the case until a window has sorted the records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from penstock.datastream.data_stream import DataStream
from penstock.datastream.functions import AggregateFunction, KeyedProcessFunction, ProcessWindowFunction, RuntimeContext
from penstock.datastream.output_tag import OutputTag
from penstock.datastream.state import MapStateDescriptor, ValueStateDescriptor
from penstock.datastream.window import (
    CountTrigger,
    EventTimeSessionWindows,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from tests.semantics import reference
from tests.semantics.reference import END, History, Record, Windows

KEYS = "abcde"
BUCKET = 50
LATE = OutputTag("late")

Step = tuple[Any, ...]


def first(value: Any) -> Any:
    return value[0]


def add(a: Any, b: Any) -> Any:
    return a[0], a[1] + b[1]


def grown(value: Any) -> Any:
    return value[0], value[1] * 2 + 1


def is_kept(value: Any) -> bool:
    return bool(value[1] % 3)


def doubled(value: Any) -> list[Any]:
    return [value, (value[0], 0)] if value[1] % 2 else []


def of_all(value: Any) -> Any:
    return "a", value[1]


def pair(left: Any, right: Any) -> Any:
    return left[0], left[1] * 1000 + right[1]


def span(values: list[Any]) -> Any:
    """Return values that show the order of arrival."""
    return values[0][0], (values[0][1] % 100) * 10_000 + (values[-1][1] % 100) * 100 + len(values)


def total(values: list[Any]) -> Any:
    return values[0][0], sum(number for _, number in values)


def mixed(values: list[Any]) -> Any:
    return values[0][0], sum(number for _, number in values) * 7 + len(values)


class Buckets(KeyedProcessFunction):
    """A function that emits the running count of each key and, by timer, the sum of each 50 ms of event time."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", int))
        self.sums = runtime_context.get_map_state(MapStateDescriptor("sums", int, int))

    def process_element(self, value: tuple[str, int], ctx: Any) -> Iterator[tuple[str, int]]:
        due = min((ctx.timestamp() // BUCKET + 1) * BUCKET, END)
        ctx.timer_service().register_event_time_timer(due)
        self.sums.put(due, (self.sums.get(due) or 0) + value[1])
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield value[0], count

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        number = self.sums.get(timestamp)
        self.sums.remove(timestamp)
        yield ctx.get_current_key(), number


class Mixed(ProcessWindowFunction):
    def process(self, key: str, context: Any, elements: Any) -> Iterator[Any]:
        yield mixed(list(elements))


class Span(AggregateFunction):
    def create_accumulator(self) -> Any:
        return None

    def add(self, value: Any, accumulator: Any) -> Any:
        return [value, value, 1] if accumulator is None else [accumulator[0], value, accumulator[2] + 1]

    def get_result(self, accumulator: Any) -> Any:
        (key, number), (_, last), count = accumulator
        return key, (number % 100) * 10_000 + (last % 100) * 100 + count

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return [acc_a[0], acc_b[1], acc_a[2] + acc_b[2]]


FOLDS: dict[str, tuple[Callable[[Any], DataStream], Callable[[list[Any]], Any]]] = {
    "sum": (lambda windows: windows.reduce(add), total),
    "process": (lambda windows: windows.process(Mixed()), mixed),
    "span": (lambda windows: windows.aggregate(Span()), span),
}


@dataclass(frozen=True)
class Windowed:
    """A window step: `kind` with its lengths, lateness, trigger and fold."""

    kind: tuple[Any, ...]
    lateness: int = 0
    trigger: Any = "time"
    fold: str = "sum"


def assigner_of(kind: tuple[Any, ...]) -> Any:
    match kind:
        case ("tumbling", size, offset):
            return TumblingEventTimeWindows.of(size, offset)
        case ("sliding", size, slide):
            return SlidingEventTimeWindows.of(size, slide)
        case ("session", gap):
            return EventTimeSessionWindows.with_gap(gap)
    raise AssertionError(kind)


def meaning_of(kind: tuple[Any, ...]) -> dict[str, Any]:
    match kind:
        case ("tumbling", size, offset):
            return {"assign": reference.aligned(size, size, offset)}
        case ("sliding", size, slide):
            return {"assign": reference.aligned(size, slide)}
        case ("session", gap):
            return {"gap": gap}
    raise AssertionError(kind)


# --- as a job --------------------------------------------------------------------------------------------------------


def windowed(stream: DataStream, step: Windowed) -> DataStream:
    windows = stream.key_by(first).window(assigner_of(step.kind)).side_output_late_data(LATE)
    if step.lateness:
        windows = windows.allowed_lateness(step.lateness)
    if step.trigger != "time":
        kind, size = step.trigger
        trigger = CountTrigger.of(size)
        windows = windows.trigger(PurgingTrigger.of(trigger) if kind == "purge" else trigger)
    return FOLDS[step.fold][0](windows)


SIMPLE: dict[str, Callable[[DataStream], DataStream]] = {
    "map": lambda stream: stream.map(grown),
    "filter": lambda stream: stream.filter(is_kept),
    "flat_map": lambda stream: stream.flat_map(doubled),
    "reduce": lambda stream: stream.key_by(first).reduce(add),
    "process": lambda stream: stream.key_by(first).process(Buckets()),
    "count": lambda stream: stream.key_by(first).count_window(2).reduce(add),
    "all": lambda stream: stream.map(of_all).window_all(TumblingEventTimeWindows.of(100)).reduce(add),
}


def as_job(source: DataStream, program: Any, collect: Callable[[DataStream, str], None]) -> None:
    """Build the program. `collect` gets each output, including late records, with a name."""
    names = iter(range(1000))

    def build(tree: Any) -> DataStream:
        match tree:
            case "source":
                return source
            case ("both", how, left, right):
                return joined(how, build(left), build(right)).uid(f"both-{next(names)}")
            case (inner, step):
                stream = build(inner)
                number = next(names)
                if isinstance(step, Windowed):
                    result = windowed(stream, step).uid(f"{number}-{step.kind[0]}")
                    collect(result.get_side_output(LATE), f"late-{number}")
                    return result
                return SIMPLE[step](stream).uid(f"{number}-{step}")
        raise AssertionError(tree)

    collect(build(program), "result")


def joined(how: tuple[Any, ...], left: DataStream, right: DataStream) -> DataStream:
    match how:
        case ("union",):
            return left.union(right).map(grown)
        case ("window join", size):
            join = left.join(right).where(first).equal_to(first).window(TumblingEventTimeWindows.of(size))
            return join.apply(pair)
        case ("interval join", lower, upper):
            interval = left.key_by(first).interval_join(right.key_by(first)).between(lower, upper)
            return interval.process(lambda a, b, ctx: [pair(a, b)])
    raise AssertionError(how)


# --- for the reference interpreter -----------------------------------------------------------------------------------------


READINGS: dict[str, Callable[[History], History]] = {
    "map": lambda history: reference.each(history, lambda v: [grown(v)]),
    "filter": lambda history: reference.each(history, lambda v: [v] if is_kept(v) else []),
    "flat_map": lambda history: reference.each(history, doubled),
    "reduce": lambda history: reference.rolling(history, first, add),
    "process": lambda history: reference.buckets(history, first, BUCKET),
    "count": lambda history: reference.count_windows(history, first, 2, total),
    "all": lambda history: Windows(first, total, reference.aligned(100, 100)).run(
        reference.each(history, lambda v: [of_all(v)])
    )[0],
}


IN_BATCH: dict[str, Callable[[History], History]] = {"reduce": lambda history: reference.reduced(history, first, add)}


def as_read(source: History, program: Any, *, batch: bool = False) -> dict[str, list[Record]]:
    """Return the expected records of each output. In batch mode each step has sorted input, followed by the end of
    time."""
    readings = READINGS | IN_BATCH if batch else READINGS
    names = iter(range(1000))
    outputs: dict[str, list[Record]] = {}

    def read(tree: Any) -> History:
        match tree:
            case "source":
                return source
            case ("both", how, left, right):
                histories = read(left), read(right)
                next(names)
                return both(how, *histories)
            case (inner, step):
                history = read(inner)
                if batch:
                    history = reference.in_order_of_time(history)
                number = next(names)
                if isinstance(step, Windowed):
                    windows = Windows(
                        first,
                        FOLDS[step.fold][1],
                        lateness=step.lateness,
                        trigger=step.trigger,
                        **meaning_of(step.kind),
                    )
                    result, outputs[f"late-{number}"] = windows.run(history)
                    return result
                return readings[step](history)
        raise AssertionError(tree)

    outputs["result"] = reference.records(read(program))
    return outputs


def both(how: tuple[Any, ...], left: History, right: History) -> History:
    match how:
        case ("union",):
            return reference.each(reference.union([left, right]), lambda v: [grown(v)])
        case ("window join", size):
            return reference.window_join(left, right, first, reference.aligned(size, size), pair)
        case ("interval join", lower, upper):
            return reference.interval_join(left, right, first, lower, upper, pair)
    raise AssertionError(how)


# --- strategies -------------------------------------------------------------------------------------------------

_SIZES = st.sampled_from([40, 100])
_KINDS = st.one_of(
    st.tuples(st.just("tumbling"), _SIZES, st.sampled_from([0, 0, 30])),
    st.tuples(st.just("sliding"), st.just(100), st.sampled_from([30, 50])),
    st.tuples(st.just("session"), st.sampled_from([20, 40])),
)
_IN_ORDER = st.builds(
    Windowed,
    _KINDS,
    st.sampled_from([0, 0, 40]),
    st.one_of(st.just("time"), st.just("time"), st.tuples(st.sampled_from(["count", "purge"]), st.integers(1, 3))),
    st.sampled_from(sorted(FOLDS)),
)
_IN_ANY_ORDER = st.builds(Windowed, _KINDS, st.just(0), st.just("time"), st.sampled_from(["sum", "process"]))
_PLAIN = st.sampled_from(["map", "filter", "flat_map"])
_KEYED = st.sampled_from(["reduce", "process", "count"])
_BOTH = st.one_of(
    st.just(("union",)),
    st.tuples(st.just("window join"), _SIZES),
    st.tuples(st.just("interval join"), st.sampled_from([-20, 0]), st.sampled_from([0, 40])),
)


@st.composite
def programs(draw: Any) -> Any:
    """Return one to three steps, or two joined branches followed by one or two steps."""
    tree, in_order = _branch(draw, "source", 3, in_order=True)
    if draw(st.booleans()):
        other, _ = _branch(draw, "source", 2, in_order=True)
        tree, in_order = ("both", draw(_BOTH), tree, other), False
        tree, _ = _branch(draw, tree, 2, in_order=in_order)
    return tree


def _branch(draw: Any, tree: Any, most: int, *, in_order: bool) -> tuple[Any, bool]:
    for _ in range(draw(st.integers(1, most))):
        steps = [_PLAIN, _IN_ANY_ORDER, st.just("all"), *([_IN_ORDER, _IN_ORDER, _KEYED] if in_order else [])]
        step = draw(st.one_of(*steps))
        tree = (tree, step)
        in_order = in_order or isinstance(step, Windowed) or step == "all"
    return tree, in_order
