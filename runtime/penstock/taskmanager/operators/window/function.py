"""The calls of a window's functions. `penstock.windowing.window_function` defines what a window does with its records."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from penstock.functions.function import bind
from penstock.taskmanager.operators.current_key import bind_current_key, may_use_state

if TYPE_CHECKING:
    from penstock.state.key_context import KeyContext
    from penstock.windowing.window_function import WindowFunctionSpec

Invoke = Callable[[Any, Any, Any], Iterable[Any] | None]
"""A call (key, context, elements) -> results. `context.current` is the window."""


def invoker(spec: WindowFunctionSpec, *, is_keyed: bool) -> Invoke | None:
    """Return how to call the window function, or None if the folded value is the result.

    Args:
        is_keyed: whether the function gets a key, if its signature does not show it.
    """
    function = spec.window_function
    if function is None:
        return None
    gets_window = spec.kind == "apply" or (hasattr(function, "apply") and not hasattr(function, "process"))
    call = bind(function, "apply" if gets_window else "process")
    with_key = {2: False, 3: True}.get(_parameters(call), is_keyed)
    if gets_window:
        if with_key:
            return lambda key, context, elements: call(key, context.current, elements)
        return lambda key, context, elements: call(context.current, elements)
    return call if with_key else lambda key, context, elements: call(context, elements)


def clearer(spec: WindowFunctionSpec) -> Callable[[Any], None] | None:
    """Return the function's `clear(context)`, or None if it has none."""
    clear = getattr(spec.window_function, "clear", None)
    if clear is None or getattr(clear, "__module__", "") == "penstock.functions.window_functions":
        return None
    return clear  # type: ignore[no-any-return]


def _parameters(call: Callable[..., Any]) -> int:
    """Return the number of positional parameters without a default, or -1 if the signature is unknown."""
    try:
        parameters = inspect.signature(call).parameters.values()
    except (TypeError, ValueError):
        return -1
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return -1
    return sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty for p in parameters)


class Fold:
    """The accumulators of a reduce or an aggregate. An accumulator that is None is empty.

    Args:
        at: the key context, if it points to a window during the calls. Functions use the key's own state, so each call
            switches the key context to this state. None means that no switch is necessary.
    """

    def __init__(self, spec: WindowFunctionSpec, at: KeyContext | None = None) -> None:
        function = spec.fold
        self.may_use_state = may_use_state(spec.functions())
        self.is_reduce = spec.kind == "reduce"
        self.create: Callable[[], Any] = (lambda: None) if self.is_reduce else function.create_accumulator
        self.call: Callable[[Any, Any], Any] = bind(function, "reduce") if self.is_reduce else function.add
        """The call: (value so far, record) for reduce, (record, accumulator) for aggregate."""
        self.result: Callable[[Any], Any] = (lambda value: value) if self.is_reduce else function.get_result
        self._merge: Callable[[Any, Any], Any] = self.call if self.is_reduce else function.merge
        if at is not None and self.may_use_state:
            self.create, self.call = bind_current_key(at, self.create), bind_current_key(at, self.call)
            self.result, self._merge = bind_current_key(at, self.result), bind_current_key(at, self._merge)

    def add(self, accumulator: Any, value: Any) -> Any:
        if self.is_reduce:
            return value if accumulator is None else self.call(accumulator, value)
        return self.call(value, self.create() if accumulator is None else accumulator)

    def merge(self, left: Any, right: Any) -> Any:
        if left is None or right is None:
            return right if left is None else left
        return self._merge(left, right)
