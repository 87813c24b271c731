"""Functions for every kind of window, shared by the tests of windows."""

from __future__ import annotations

from datetime import timedelta
from operator import itemgetter
from typing import Any

from penstock.datastream.functions import AggregateFunction, ProcessWindowFunction
from penstock.datastream.output_tag import OutputTag
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.window import EventTimeSessionWindows
from penstock.windowing.window_function import WindowFunctionSpec

Spec = WindowFunctionSpec
KEY = itemgetter(0)
LATE = OutputTag("late")


def add(a: Any, b: Any) -> Any:
    return a[0], a[1] + b[1]


def gather(key: Any, context: Any, elements: Any) -> Any:
    """Return the key, the window and the elements of a full window."""
    window = context.window()
    yield key, window.start, window.end, [element[1] for element in elements]


class Mean(AggregateFunction):
    def create_accumulator(self) -> Any:
        return 0.0, 0

    def add(self, value: Any, accumulator: Any) -> Any:
        return accumulator[0] + value[1], accumulator[1] + 1

    def get_result(self, accumulator: Any) -> Any:
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class WithEnd(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        (element,) = elements
        yield key, element, context.window().end


class FirstOrUpdate(ProcessWindowFunction):
    """A function whose window state distinguishes the first result from its updates."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        seen = context.window_state().get_state(ValueStateDescriptor("fired", bool))
        word = "update" if seen.value() else "first"
        seen.update(True)
        yield key, context.window().end, sum(n for _, n in elements), word

    def clear(self, context: Any) -> None:
        context.window_state().get_state(ValueStateDescriptor("fired", bool)).clear()


MINUTE = 60_000
SESSIONS = EventTimeSessionWindows.with_gap(timedelta(minutes=15))


def minutes(*times: int) -> list[int]:
    return [time * MINUTE for time in times]
