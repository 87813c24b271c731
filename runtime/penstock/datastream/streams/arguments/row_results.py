"""Conversion of function results to the declared type: a tuple or dict becomes a Row with the declared names.

Only functions whose `output_type` was given and contains a Row are wrapped. All other functions are unchanged.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from penstock.common.errors import RecordFormatError
from penstock.datastream.output_tag import OutputTag
from penstock.functions.function import Function

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.common.typeinfo import TypeInformation
    from penstock.functions.function import RuntimeContext

_ONE = frozenset({"map", "map1", "map2", "get_result", "reduce"})
_MANY = frozenset(
    {
        "flat_map",
        "flat_map1",
        "flat_map2",
        "process_element",
        "process_element1",
        "process_element2",
        "process_broadcast_element",
        "on_timer",
        "process",
        "apply",
    }
)


def with_row_results(function: Any, declared: TypeInformation | None, method: str) -> Any:
    """Return the function. If the declared type contains a Row, return a wrapper that converts the function's results."""
    if declared is None or declared.is_storable or function is None:
        return function
    return RowResults(function, declared, method)


def with_row_sums(function: Any, type_info: TypeInformation | None) -> Any:
    """Return a reduce function for a stream of the type. If the type was declared, treat the function as `with_row_results` does."""
    return function if type_info is None or type_info.is_inferred else with_row_results(function, type_info, "reduce")


class RowResults(Function):
    """Wrapper of a function that converts its results. It delegates everything else to the function."""

    def __init__(self, function: Any, declared: TypeInformation, method: str) -> None:
        self._function = function
        self._declared = declared
        self._method = method

    @property
    def wrapped_function(self) -> Any:
        """Return the user's function."""
        return self._function

    def open(self, runtime_context: RuntimeContext) -> None:
        if callable(getattr(self._function, "open", None)):
            self._function.open(runtime_context)

    def close(self) -> None:
        if callable(getattr(self._function, "close", None)):
            self._function.close()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        inner = getattr(self._function, name, None)
        if inner is None and name == self._method and callable(self._function):
            inner = self._function
        if inner is None:
            raise AttributeError(name)
        if name in _ONE:
            return self._one(inner)
        if name in _MANY:
            return self._each(inner)
        return inner

    def _one(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        # The wrapper keeps the signature, because operators check the number of parameters.
        @functools.wraps(inner)
        def call(*arguments: Any) -> Any:
            return self._converted(inner(*arguments))

        return call

    def _each(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(inner)
        def call(*arguments: Any) -> Iterator[Any] | None:
            results = inner(*arguments)
            return None if results is None else map(self._converted, results)

        return call

    def _converted(self, result: Any) -> Any:
        if result.__class__ is tuple and len(result) == 2 and isinstance(result[0], OutputTag):
            return result
        try:
            return self._declared.convert(result)
        except (TypeError, ValueError, AttributeError) as error:
            raise RecordFormatError(
                f"{result!r} is not a value of the declared type {self._declared!r}: {error}",
                remedy="return the fields and types that output_type declares, or change output_type",
            ) from None
