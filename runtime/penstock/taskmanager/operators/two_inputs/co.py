"""Operators with two inputs: map, flat_map and process on connected streams.

The task merges the watermarks of both inputs before it passes them to the operator. If the inputs have key selectors,
they share one keyed state. Otherwise, they have no keyed state. The inputs have no order relative to each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.common.errors import InvalidJob
from penstock.functions.function import bind
from penstock.records.batch import Batch, RowBatch
from penstock.taskmanager.operators.process import TimerOperator
from penstock.taskmanager.operators.simple import flat_map
from penstock.taskmanager.operators.user_code import FunctionOperator

KeySelector = Callable[[Any], Any] | None


class TwoInputs:
    """A function object with one method per input, and the key selectors of the inputs.

    A pair of plain functions is accepted instead of the object.
    """

    methods = ("", "")
    fn: Any
    is_keyed: bool
    key_selectors: tuple[KeySelector, ...]

    def connect(self, key_selector1: KeySelector, key_selector2: KeySelector) -> None:
        if (key_selector1 is None) != (key_selector2 is None):
            raise InvalidJob(
                "only one of the two connected streams has a key",
                remedy="call key_by with two key selectors, or broadcast one of the streams",
            )
        self.bound()
        if key_selector1 is not None:
            self.is_keyed = True
            self.key_selectors = (key_selector1, key_selector2)

    def bound(self) -> tuple[Callable[..., Any], Callable[..., Any]]:
        first, second = self.fn if isinstance(self.fn, tuple) else (self.fn, self.fn)
        return bind(first, self.methods[0]), bind(second, self.methods[1])


class CoMapOperator(TwoInputs, FunctionOperator):
    """The operator that calls `map1` for records of the first input, and `map2` for records of the second input."""

    methods = ("map1", "map2")

    def __init__(self, fn: Any, key_selector1: KeySelector = None, key_selector2: KeySelector = None) -> None:
        FunctionOperator.__init__(self, fn)
        self.connect(key_selector1, key_selector2)

    def open(self) -> None:
        super().open()
        self._calls = self.bound()

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        rows = batch.rows()
        values = rows.values
        iterator = iter(values)
        try:
            out = list(map(self._calls[input_index], self.records(values, iterator, input_index)))
        except Exception as error:
            self.fail(error, values, iterator, input_index)
        self.output.emit(RowBatch(out, rows.timestamps))


class CoFlatMapOperator(CoMapOperator):
    """The operator that calls `flat_map1` and `flat_map2`, which return zero or more results per record."""

    methods = ("flat_map1", "flat_map2")

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        flat_map(self, self._calls[input_index], batch.rows(), input_index)


class CoProcessOperator(TwoInputs, TimerOperator):
    """The operator that calls `process_element1` and `process_element2`, with timers and shared keyed state on keyed
    streams.
    """

    methods = ("process_element1", "process_element2")

    def __init__(self, fn: Any, key_selector1: KeySelector = None, key_selector2: KeySelector = None) -> None:
        TimerOperator.__init__(self, fn)
        self.connect(key_selector1, key_selector2)

    def open(self) -> None:
        super().open()
        self._calls = self.bound()

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        self.run(batch, self._calls[input_index], self.ctx, input_index)
