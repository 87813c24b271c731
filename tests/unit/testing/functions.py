"""User functions of the examples, as the author of a job would write them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.datastream.functions import (
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    ProcessFunction,
    RuntimeContext,
)
from penstock.datastream.state import MapStateDescriptor, ValueStateDescriptor

HOUR = 3_600_000
THRESHOLDS = MapStateDescriptor("thresholds", str, float)


def first(value: Any) -> Any:
    return value[0]


def add(a: tuple[Any, int], b: tuple[Any, int]) -> tuple[Any, int]:
    return a[0], a[1] + b[1]


def by_parity(number: int) -> tuple[str, int]:
    return ("odd" if number % 2 else "even"), number


class TemperatureAlert(KeyedProcessFunction):
    """A function that emits (id, current, previous) if the temperature rose by more than the factor."""

    def __init__(self, factor: float = 1.1) -> None:
        self.factor = factor

    def open(self, runtime_context: RuntimeContext) -> None:
        self.last = runtime_context.get_state(ValueStateDescriptor("last", float))

    def process_element(self, value: tuple[str, float], ctx: Any) -> Iterator[Any]:
        previous = self.last.value()
        if previous is not None and previous > 0 and value[1] / previous > self.factor:
            yield value[0], value[1], previous
        self.last.update(value[1])


class HighTemperatureCount(ProcessFunction):
    """A function that counts readings above 120 per subtask, in ten parts of operator list state or in one."""

    def __init__(self, parts: int = 10) -> None:
        self.number = parts

    def open(self, runtime_context: RuntimeContext) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()
        self.parts = runtime_context.get_operator_state_store().get_list_state("count", int)
        self.count = sum(self.parts)

    def process_element(self, value: tuple[str, float], ctx: Any) -> Iterator[Any]:
        if value[1] > 120.0:
            self.count += 1
            quotient, rest = divmod(self.count, self.number)
            self.parts[:] = [quotient + 1] * rest + [quotient] * (self.number - rest)
            yield self.subtask, self.count


class DynamicThresholds(KeyedBroadcastProcessFunction):
    """An alert with a factor per sensor from a broadcast stream. The default is 4.0."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.last = runtime_context.get_state(ValueStateDescriptor("last", float))

    def process_element(self, value: tuple[str, float], ctx: Any) -> Iterator[Any]:
        factor = ctx.get_broadcast_state(THRESHOLDS).get(value[0]) or 4.0
        previous = self.last.value()
        if previous is not None and previous > 0 and value[1] / previous > factor:
            yield value[0], value[1], previous
        self.last.update(value[1])

    def process_broadcast_element(self, value: tuple[str, float], ctx: Any) -> None:
        thresholds = ctx.get_broadcast_state(THRESHOLDS)
        if value[1] >= 1.0:
            thresholds.put(value[0], value[1])
        else:
            thresholds.remove(value[0])


class KeyedAndOperatorCounts(KeyedProcessFunction):
    """A function that emits (id, readings above 10 of the key, readings above 10 of the subtask)."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.of_key = runtime_context.get_state(ValueStateDescriptor("keyedCnt", int))
        self.of_subtask = runtime_context.get_operator_state_store().get_list_state("opCnt", int)
        self.of_subtask[:] = [sum(self.of_subtask)]

    def process_element(self, value: tuple[str, float], ctx: Any) -> Iterator[Any]:
        if value[1] > 10.0:
            self.of_key.update((self.of_key.value() or 0) + 1)
            self.of_subtask[0] += 1
            yield value[0], self.of_key.value(), self.of_subtask[0]


class SelfCleaningAlert(TemperatureAlert):
    """An alert that forgets a sensor without readings for one hour of event time."""

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        self.timer = runtime_context.get_state(ValueStateDescriptor("timer", int))

    def process_element(self, value: tuple[str, float], ctx: Any) -> Iterator[Any]:
        timer = ctx.timer_service().current_watermark() + HOUR
        ctx.timer_service().register_event_time_timer(timer)
        self.timer.update(timer)
        yield from super().process_element(value, ctx)

    def on_timer(self, timestamp: int, ctx: Any) -> None:
        if timestamp == self.timer.value():
            self.last.clear()
            self.timer.clear()
