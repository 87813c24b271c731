"""The function that the program applies to a window's records.

Reduce and aggregate fold every record into one accumulator when it arrives. Process and apply get all records when the
window fires. After a fold, the program may also have a window function, which gets only the folded value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from penstock.common.errors import InvalidJob
from penstock.functions.field_reduce import AggregateKind, FieldReduce
from penstock.functions.function import bind

if TYPE_CHECKING:
    from penstock.records.fields import Field


@dataclass(frozen=True)
class WindowFunctionSpec:
    """The window function of a program. The static methods create it. `state_type` is the type of the window's state
    (None means any builtin type).

    Window functions are function objects or plain callables: `(key, context, elements)` for process, or `(key, window,
    elements)` for apply. On a stream without a key they have no key argument.
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
        """Return `sum`, `min`, `max`, `min_by` or `max_by` of a field. The result is a record."""
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
