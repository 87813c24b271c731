"""What is done with a window's records: the choice the program made, and how its functions are called.

Reduce and aggregate fold every record into one accumulator as it arrives; process and apply see all records when the
window fires (T36-T38). A fold may be followed by a window function, which then gets the one folded value.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from penstock.common.errors import InvalidJob
from penstock.taskmanager.operators.aggregate.reduce import AggregateKind, FieldReduce
from penstock.taskmanager.operators.user_code import bind

if TYPE_CHECKING:
    from penstock.records.fields import Field

Invoke = Callable[[Any, Any, Any, Any], Iterable[Any] | None]
"""(key, window, context, elements) -> results."""


@dataclass(frozen=True)
class WindowFunctionSpec:
    """Made by the static methods; `state_type` is the type of what a window keeps (any builtin type if None).

    Window functions are function objects or plain callables: `(key, context, elements)` for process,
    `(key, window, elements)` for apply, without the key on a stream that has none.
    """

    kind: Literal["reduce", "aggregate", "process", "apply"]
    fold: Any = None
    window_function: Any = None
    state_type: Any = None

    @staticmethod
    def reduce(fn: Any, window_fn: Any = None, element_type: Any = None) -> WindowFunctionSpec:
        bind(fn, "reduce")
        return WindowFunctionSpec("reduce", fn, window_fn, element_type)

    @staticmethod
    def field(kind: AggregateKind, field: Field, element_type: Any = None) -> WindowFunctionSpec:
        """`sum`, `min`, `max`, `min_by`, `max_by` of a field; the result is a record."""
        return WindowFunctionSpec("reduce", FieldReduce(kind, field), None, element_type)

    @staticmethod
    def aggregate(agg: Any, window_fn: Any = None, accumulator_type: Any = None) -> WindowFunctionSpec:
        missing = [m for m in ("create_accumulator", "add", "get_result") if not callable(getattr(agg, m, None))]
        if missing:
            raise InvalidJob(f"{agg!r} has no {', '.join(missing)}", remedy="pass an AggregateFunction")
        return WindowFunctionSpec("aggregate", agg, window_fn, accumulator_type)

    @staticmethod
    def process(fn: Any, element_type: Any = None) -> WindowFunctionSpec:
        bind(fn, "process")
        return WindowFunctionSpec("process", None, fn, element_type)

    @staticmethod
    def apply(fn: Any, element_type: Any = None) -> WindowFunctionSpec:
        bind(fn, "apply")
        return WindowFunctionSpec("apply", None, fn, element_type)

    @property
    def is_incremental(self) -> bool:
        return self.fold is not None

    def functions(self) -> tuple[object, ...]:
        return tuple(fn for fn in (self.fold, self.window_function) if fn is not None)

    def invoker(self, *, is_keyed: bool) -> Invoke | None:
        """How to call the window function; None if the folded value is the result.

        Args:
            is_keyed: whether the function gets a key, where its signature does not tell.
        """
        function = self.window_function
        if function is None:
            return None
        gets_window = self.kind == "apply" or (hasattr(function, "apply") and not hasattr(function, "process"))
        call = bind(function, "apply" if gets_window else "process")
        with_key = {2: False, 3: True}.get(_parameters(call), is_keyed)
        if gets_window:
            if with_key:
                return lambda key, window, context, elements: call(key, window, elements)
            return lambda key, window, context, elements: call(window, elements)
        if with_key:
            return lambda key, window, context, elements: call(key, context, elements)
        return lambda key, window, context, elements: call(context, elements)

    def clearer(self) -> Callable[[Any], None] | None:
        """The window function's own `clear(context)`, if it has one."""
        clear = getattr(self.window_function, "clear", None)
        if clear is None or getattr(clear, "__module__", "") == "penstock.functions.window_functions":
            return None
        return clear  # type: ignore[no-any-return]


def _parameters(call: Callable[..., Any]) -> int:
    """Number of positional parameters without default; -1 where that cannot be told."""
    try:
        parameters = inspect.signature(call).parameters.values()
    except (TypeError, ValueError):
        return -1
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return -1
    return sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty for p in parameters)


class Fold:
    """Accumulators of a reduce or an aggregate; an accumulator that is None is empty."""

    def __init__(self, spec: WindowFunctionSpec) -> None:
        function = spec.fold
        self.is_reduce = spec.kind == "reduce"
        self.create: Callable[[], Any] = (lambda: None) if self.is_reduce else function.create_accumulator
        self.call: Callable[[Any, Any], Any] = bind(function, "reduce") if self.is_reduce else function.add
        """(value so far, record) for reduce, (record, accumulator) for aggregate."""
        self.result: Callable[[Any], Any] = (lambda value: value) if self.is_reduce else function.get_result
        self._merge: Callable[[Any, Any], Any] = self.call if self.is_reduce else function.merge

    def add(self, accumulator: Any, value: Any) -> Any:
        if self.is_reduce:
            return value if accumulator is None else self.call(accumulator, value)
        return self.call(value, self.create() if accumulator is None else accumulator)

    def merge(self, left: Any, right: Any) -> Any:
        if left is None or right is None:
            return right if left is None else left
        return self._merge(left, right)
