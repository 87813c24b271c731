"""One operator of every kind, and the same work as a loop in plain Python, for `benchmarks operators`.

Records are tuples (key, time in ms, number) of 1,000 keys, in order of time, 1,000 per second. They come in batches, and a
watermark follows each batch. A loop gets the same batches and returns the same results in any order.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from operator import itemgetter
from typing import Any

from penstock.datastream.functions import (
    AggregateFunction,
    AsyncFunction,
    BroadcastProcessFunction,
    KeyedProcessFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
)
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from penstock.datastream.window import EventTimeSessionWindows, SlidingEventTimeWindows, TumblingEventTimeWindows
from penstock.functions.async_io.async_functions import AsyncFunctionDescriptor
from penstock.functions.async_io.async_retry_strategies import AsyncRetryStrategy
from penstock.graph import operations
from penstock.windowing.window_function import WindowFunctionSpec

Record = tuple[str, int, int]
KEY = itemgetter(0)
WINDOW_MS, SLIDE_MS, GAP_MS, JOIN_MS, EXPIRE_MS = 5000, 1000, 400, 500, 2000
RULES = MapStateDescriptor("rules", str, int)


@dataclass(frozen=True)
class Step:
    """A batch for one of the inputs, and the watermark after it."""

    records: list[Record]
    watermark: int
    input_index: int = 0


Loop = Callable[[Iterable[Step]], list[Any]]


@dataclass(frozen=True)
class Case:
    """One case. `share` is its share of the records, for an operator that costs more than others."""

    operation: Callable[[], operations.Operation]
    loop: Loop
    inputs: int = 1
    share: float = 1.0


# --- functions -----------------------------------------------------------------------------------------------------


def doubled(record: Record) -> Record:
    return record[0], record[1], record[2] * 2


def is_even(record: Record) -> bool:
    return record[2] % 2 == 0


def twice(record: Record) -> list[int]:
    return [record[2], record[2] + 1]


def larger(one: Record, other: Record) -> Record:
    return other if other[2] > one[2] else one


class RunningSum(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", int))

    def process_element(self, value: Record, ctx: Any) -> Iterator[Any]:
        total = (self.total.value() or 0) + value[2]
        self.total.update(total)
        yield value[0], total


class CountsOfTens(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.counts = runtime_context.get_map_state(MapStateDescriptor("counts", int, int))

    def process_element(self, value: Record, ctx: Any) -> Iterator[Any]:
        tens = value[2] // 10
        count = (self.counts.get(tens) or 0) + 1
        self.counts.put(tens, count)
        yield value[0], tens, count


class Pairs(KeyedProcessFunction):
    """A function that emits two records of a key together."""

    def open(self, runtime_context: Any) -> None:
        self.waiting = runtime_context.get_list_state(ListStateDescriptor("waiting"))
        self.count = 0

    def process_element(self, value: Record, ctx: Any) -> Iterator[Any]:
        self.waiting.add(value)
        if value[2] % 2:
            yield tuple(self.waiting.get())
            self.waiting.clear()


class Expiring(KeyedProcessFunction):
    """A function that sets a timer for every record."""

    def process_element(self, value: Record, ctx: Any) -> None:
        ctx.timer_service().register_event_time_timer(value[1] + EXPIRE_MS)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield ctx.get_current_key(), timestamp


class Total(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Record, accumulator: int) -> int:
        return accumulator + value[2]

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class WithStart(ProcessWindowFunction):
    def process(self, key: str, context: Any, elements: Any) -> Iterator[Any]:
        for element in elements:
            yield key, context.window().start, element


class Both(ProcessJoinFunction):
    def process_element(self, left: Record, right: Record, ctx: Any) -> Iterator[Any]:
        yield left[0], left[2], right[2]


class Priced(BroadcastProcessFunction):
    def process_element(self, value: Record, ctx: Any) -> Iterator[Any]:
        yield value[0], value[2] + (ctx.get_broadcast_state(RULES).get(value[0]) or 0)

    def process_broadcast_element(self, value: Record, ctx: Any) -> None:
        ctx.get_broadcast_state(RULES).put(value[0], value[2])


class Answered(AsyncFunction):
    async def async_invoke(self, value: Record) -> list[Any]:
        return [(value[0], value[2] + 1)]


# --- the same in plain Python -----------------------------------------------------------------------------------------


def each(of_batch: Callable[[list[Record]], Iterable[Any]]) -> Loop:
    def loop(steps: Iterable[Step]) -> list[Any]:
        out: list[Any] = []
        for step in steps:
            out.extend(of_batch(step.records))
        return out

    return loop


def reduce(steps: Iterable[Step]) -> list[Any]:
    out, best = [], {}
    for step in steps:
        for record in step.records:
            old = best.get(record[0])
            best[record[0]] = now = record if old is None or record[2] > old[2] else old
            out.append(now)
    return out


def value_state(steps: Iterable[Step]) -> list[Any]:
    out, totals = [], {}
    for step in steps:
        for key, _, number in step.records:
            totals[key] = total = totals.get(key, 0) + number
            out.append((key, total))
    return out


def map_state(steps: Iterable[Step]) -> list[Any]:
    out = []
    counts: dict[str, dict[int, int]] = defaultdict(dict)
    for step in steps:
        for key, _, number in step.records:
            of_key, tens = counts[key], number // 10
            of_key[tens] = count = of_key.get(tens, 0) + 1
            out.append((key, tens, count))
    return out


def list_state(steps: Iterable[Step]) -> list[Any]:
    out = []
    waiting: dict[str, list[Record]] = defaultdict(list)
    for step in steps:
        for record in step.records:
            waiting[record[0]].append(record)
            if record[2] % 2:
                out.append(tuple(waiting.pop(record[0])))
    return out


def timers(steps: Iterable[Step]) -> list[Any]:
    from heapq import heappop, heappush

    out = []
    heap: list[int] = []
    due: dict[int, dict[str, None]] = {}
    for step in steps:
        for key, time, _ in step.records:
            keys = due.get(time + EXPIRE_MS)
            if keys is None:
                keys = due[time + EXPIRE_MS] = {}
                heappush(heap, time + EXPIRE_MS)
            keys[key] = None
        while heap and heap[0] <= step.watermark:
            at = heappop(heap)
            out.extend([(key, at) for key in due.pop(at)])
    return out


def windows(size: int, slide: int) -> Loop:
    def loop(steps: Iterable[Step]) -> list[Any]:
        out = []
        totals: dict[int, dict[str, int]] = {}
        for step in steps:
            for key, time, number in step.records:
                last = time - time % slide
                for start in range(last, last - size, -slide):
                    of_window = totals.get(start)
                    if of_window is None:
                        of_window = totals[start] = {}
                    of_window[key] = of_window.get(key, 0) + number
            for start in [start for start in totals if start + size - 1 <= step.watermark]:
                out.extend([(key, start, total) for key, total in totals.pop(start).items()])
        return out

    return loop


def sessions(steps: Iterable[Step]) -> list[Any]:
    """Compute sessions of records in order of time. Emit a session when its key comes again, or at the end."""
    out = []
    open_: dict[str, list[int]] = {}
    for step in steps:
        for key, time, number in step.records:
            session = open_.get(key)
            if session is not None and time <= session[1]:
                session[1] = time + GAP_MS
                session[2] += number
            else:
                if session is not None:
                    out.append((key, session[0], session[2]))
                open_[key] = [time, time + GAP_MS, number]
    return out + [(key, session[0], session[2]) for key, session in open_.items()]


def interval_join(steps: Iterable[Step]) -> list[Any]:
    out = []
    sides: tuple[dict[str, list[Record]], dict[str, list[Record]]] = (defaultdict(list), defaultdict(list))
    for step in steps:
        mine, others = sides[step.input_index], sides[1 - step.input_index]
        for record in step.records:
            key, time, number = record
            mine[key].append(record)
            partners = others.get(key)
            if partners:
                oldest = time - 10 * JOIN_MS
                if partners[0][1] < oldest:
                    partners[:] = [partner for partner in partners if partner[1] >= oldest]
                near = [partner[2] for partner in partners if -JOIN_MS <= partner[1] - time <= JOIN_MS]
                out.extend([(key, other, number) if step.input_index else (key, number, other) for other in near])
    return out


def window_join(steps: Iterable[Step]) -> list[Any]:
    out = []
    panes: dict[int, dict[str, tuple[list[int], list[int]]]] = {}
    for step in steps:
        for key, time, number in step.records:
            start = time - time % WINDOW_MS
            pane = panes.get(start)
            if pane is None:
                pane = panes[start] = {}
            sides = pane.get(key)
            if sides is None:
                sides = pane[key] = ([], [])
            sides[number % 2].append(number)
        for start in [start for start in panes if start + WINDOW_MS - 1 <= step.watermark]:
            for left, right in panes.pop(start).values():
                out.extend([(one, other) for one in left for other in right])
    return out


def broadcast(steps: Iterable[Step]) -> list[Any]:
    out = []
    rules: dict[str, int] = {}
    for step in steps:
        if step.input_index:
            rules.update({key: number for key, _, number in step.records})
        else:
            for key, _, number in step.records:
                out.append((key, number + rules.get(key, 0)))
    return out


def async_calls(steps: Iterable[Step]) -> list[Any]:
    """Run the async calls, at most a hundred at a time."""
    ask = Answered().async_invoke

    async def worker(records: Iterator[Record], out: list[Any]) -> None:
        for record in records:
            async with asyncio.timeout(60):
                out.extend(await ask(record))

    async def all_of(records: list[Record]) -> list[Any]:
        out: list[Any] = []
        queue = iter(records)
        await asyncio.gather(*[worker(queue, out) for _ in range(100)])
        return out

    with asyncio.Runner() as runner:
        return [answer for step in steps for answer in runner.run(all_of(step.records))]


# --- all of them ------------------------------------------------------------------------------------------------------


def _window(assigner: Any, function: WindowFunctionSpec) -> operations.Window:
    return operations.Window(assigner, function, assigner.get_default_trigger(None), KEY)


def _join_pairs(key: str, window: Any, records: Iterable[Record]) -> Iterator[tuple[int, int]]:
    numbers = [number for _, _, number in records]
    odd = [number for number in numbers if number % 2]
    for number in numbers:
        if not number % 2:
            for other in odd:
                yield number, other


def _async() -> operations.AsyncWait:
    return operations.AsyncWait(
        Answered(),
        timeout_ms=60_000,
        capacity=100,
        retry_strategy=AsyncRetryStrategy.no_restart(),
        output_mode=AsyncFunctionDescriptor.OutputMode.UNORDERED,
    )


_TOTAL = WindowFunctionSpec.aggregate(Total(), WithStart())
_SIZE, _SLIDE, _GAP = (
    timedelta(milliseconds=WINDOW_MS),
    timedelta(milliseconds=SLIDE_MS),
    timedelta(milliseconds=GAP_MS),
)

CASES: dict[str, Case] = {
    "map": Case(lambda: operations.Map(doubled), each(lambda records: [(k, t, n * 2) for k, t, n in records])),
    "filter": Case(lambda: operations.Filter(is_even), each(lambda records: [r for r in records if r[2] % 2 == 0])),
    "flat_map": Case(
        lambda: operations.FlatMap(twice), each(lambda records: [x for r in records for x in (r[2], r[2] + 1)])
    ),
    "reduce": Case(lambda: operations.Reduce(KEY, larger), reduce),
    "process + ValueState": Case(lambda: operations.Process(RunningSum(), KEY), value_state),
    "process + MapState": Case(lambda: operations.Process(CountsOfTens(), KEY), map_state),
    "process + ListState": Case(lambda: operations.Process(Pairs(), KEY), list_state),
    "timers": Case(lambda: operations.Process(Expiring(), KEY), timers),
    "tumbling": Case(lambda: _window(TumblingEventTimeWindows.of(_SIZE), _TOTAL), windows(WINDOW_MS, WINDOW_MS)),
    "sliding": Case(lambda: _window(SlidingEventTimeWindows.of(_SIZE, _SLIDE), _TOTAL), windows(WINDOW_MS, SLIDE_MS)),
    "sessions": Case(lambda: _window(EventTimeSessionWindows.with_gap(_GAP), _TOTAL), sessions),
    "interval join": Case(
        lambda: operations.IntervalJoin(Both(), (KEY, KEY), lower_ms=-JOIN_MS, upper_ms=JOIN_MS),
        interval_join,
        inputs=2,
    ),
    "window join": Case(
        lambda: _window(TumblingEventTimeWindows.of(_SIZE), WindowFunctionSpec.apply(_join_pairs)), window_join
    ),
    "broadcast": Case(lambda: operations.BroadcastProcess(Priced(), None, (RULES,)), broadcast, inputs=2),
    "async": Case(_async, async_calls, share=0.2),
}
