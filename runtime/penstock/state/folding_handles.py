"""Reducing and aggregating state, on top of any backend's value state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.state.descriptors import AggregatingState, ReducingState, ValueState

if TYPE_CHECKING:
    from collections.abc import Callable


class FoldingReducingState(ReducingState[Any]):
    __slots__ = ("_reduce", "_value")

    def __init__(self, value: ValueState[Any], reduce: Callable[[Any, Any], Any]) -> None:
        self._value = value
        self._reduce = reduce

    def get(self) -> Any:
        return self._value.value()

    def add(self, value: Any) -> None:
        state = self._value
        before = state.value()
        state.update(value if before is None else self._reduce(before, value))

    def clear(self) -> None:
        self._value.clear()


class FoldingAggregatingState(AggregatingState[Any, Any]):
    """Aggregating state. `function` is an AggregateFunction: create_accumulator, add(value, accumulator), get_result(accumulator)."""

    __slots__ = ("_add", "_create", "_result", "_value")

    def __init__(self, value: ValueState[Any], function: Any) -> None:
        self._value = value
        self._create = function.create_accumulator
        self._add = function.add
        self._result = function.get_result

    def get(self) -> Any:
        accumulator = self._value.value()
        return None if accumulator is None else self._result(accumulator)

    def add(self, value: Any) -> None:
        state = self._value
        accumulator = state.value()
        state.update(self._add(value, self._create() if accumulator is None else accumulator))

    def clear(self) -> None:
        self._value.clear()
