"""`Inspect`: calls a function with each value of a stream and leaves the values unchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class Inspect:
    """A function that calls another function with a value, and returns the value."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function
        self.__qualname__ = f"inspect({getattr(function, '__qualname__', type(function).__qualname__)})"

    def __call__(self, value: Any) -> Any:
        self._function(value)
        return value
