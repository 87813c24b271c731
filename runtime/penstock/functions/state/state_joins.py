"""Joins without windows, for `a.join(b).where(k).equal_to(k).apply(f)` and `….as_of(f)`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from penstock.common.errors import InvalidJob
from penstock.common.type_info.type_factories import Types
from penstock.functions.function import has_life_cycle
from penstock.functions.join_functions import FlatJoinFunction
from penstock.functions.process_functions import KeyedCoProcessFunction
from penstock.functions.runtime_context import close_function, of_library
from penstock.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor

if TYPE_CHECKING:
    from penstock.common.time import TimeLike
    from penstock.common.typeinfo import TypeInformation
    from penstock.functions.function import RuntimeContext

    Sides = tuple[TypeInformation | None, TypeInformation | None]


class _StateJoin(KeyedCoProcessFunction):
    """The base of joins that keep their values in keyed state.

    Args:
        function: a `JoinFunction`, a `FlatJoinFunction` or a callable of a left and a right value.
        types: types of the left and right values, for the state.
    """

    def __init__(self, function: Any, types: Sides) -> None:
        self._function = function
        self._types = types

    @property
    def wrapped_function(self) -> Any:
        """Return the user's function."""
        return self._function

    def open(self, runtime_context: RuntimeContext) -> None:
        self._join: Callable[..., Any] = getattr(self._function, "join", self._function)
        self._is_flat = isinstance(self._function, FlatJoinFunction)
        if has_life_cycle(self._function):
            self._function.open(runtime_context)

    def close(self) -> None:
        close_function(self._function)

    def _results(self, left: Any, right: Any) -> Iterator[Any]:
        result = self._join(left, right)
        if not self._is_flat:
            yield result
        elif result is not None:
            yield from result


class EveryPair(_StateJoin):
    """A join that emits each pair once, when its later value arrives. It keeps the values of both sides for the time `ttl`."""

    def __init__(self, function: Any, types: Sides, ttl: TimeLike | None) -> None:
        super().__init__(function, types)
        self._ttl = ttl

    def state_meaning(self) -> dict[str, Any]:
        """Describe the state, for snapshots."""
        return {"kind": "join of all pairs"}

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        library_state = of_library(runtime_context)
        left, right = self._types
        self._left = library_state.get_list_state(ListStateDescriptor("left", left, ttl=self._ttl))
        self._right = library_state.get_list_state(ListStateDescriptor("right", right, ttl=self._ttl))

    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterator[Any]:
        self._left.add(value)
        for partner in self._right.get() or ():
            yield from self._results(value, partner)

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterator[Any]:
        self._right.add(value)
        for partner in self._left.get() or ():
            yield from self._results(partner, value)


class AsOf(_StateJoin):
    """A join of each left value with the newest right value that is not younger than the left value.

    It emits a pair when the watermark shows that no better right value can arrive. For each key, the state has the values that the
    watermark has not reached, by their timestamps. It also has the newest right value that the watermark has reached. If a tolerance is
    set, the join drops a right value when it is too old for every later left value. No call scans the waiting values, because a timer looks
    up only the values with its own timestamp.
    """

    def __init__(self, function: Any, types: Sides, tolerance_ms: int | None) -> None:
        super().__init__(function, types)
        self._tolerance_ms = tolerance_ms

    def state_meaning(self) -> dict[str, Any]:
        """Describe the state, for snapshots."""
        return {"kind": "as-of join", "tolerance_ms": self._tolerance_ms}

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        library_state = of_library(runtime_context)
        left, right = self._types
        place = Types.TUPLE([Types.LONG(), Types.LONG()])
        timed = None if right is None else Types.TUPLE([Types.LONG(), right])
        self._left = library_state.get_map_state(MapStateDescriptor("left", place, left))
        self._left_counts = library_state.get_map_state(MapStateDescriptor("left-counts", Types.LONG(), Types.LONG()))
        self._right = library_state.get_map_state(MapStateDescriptor("right", Types.LONG(), right))
        self._newest = library_state.get_state(ValueStateDescriptor("newest", timed))

    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> None:
        at = _time(ctx)
        if at > ctx.timer_service().current_watermark():
            count = self._left_counts.get(at) or 0
            self._left.put((at, count), value)
            self._left_counts.put(at, count + 1)
            if not count:
                ctx.timer_service().register_event_time_timer(at)

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> None:
        at = _time(ctx)
        self._right.put(at, value)
        ctx.timer_service().register_event_time_timer(at)
        if self._tolerance_ms is not None:
            ctx.timer_service().register_event_time_timer(at + self._tolerance_ms + 1)

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Iterator[Any]:
        newest = self._newest.value()
        if self._right.contains(timestamp):
            # A late right value may be older than the newest one. Then no left value can match the late value.
            if newest is None or newest[0] <= timestamp:
                newest = (timestamp, self._right.get(timestamp))
                self._newest.update(newest)
            self._right.remove(timestamp)
        if newest is not None and self._tolerance_ms is not None and newest[0] < timestamp - self._tolerance_ms:
            self._newest.clear()
            newest = None
        count = self._left_counts.get(timestamp)
        if count:
            self._left_counts.remove(timestamp)
            partner = newest[1] if newest is not None and newest[0] <= timestamp else None
            for number in range(count):
                value = self._left.get((timestamp, number))
                self._left.remove((timestamp, number))
                yield from self._results(value, partner)
        elif newest is not None and self._tolerance_ms is not None and newest[0] < timestamp:
            # An upgrade may have increased the tolerance after this timer was registered. If the new timer exists already, this call has no
            # effect.
            ctx.timer_service().register_event_time_timer(newest[0] + self._tolerance_ms + 1)


def _time(ctx: KeyedCoProcessFunction.Context) -> int:
    at = ctx.timestamp()
    if at is None:
        raise InvalidJob(
            "as_of joins by event time, but a value has no timestamp",
            remedy="give both streams timestamps: assign_timestamps_and_watermarks, or a strategy in from_source",
        )
    return at
