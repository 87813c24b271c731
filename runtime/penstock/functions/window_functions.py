"""Functions over the records of a window, which the operator calls when the window's trigger fires.

The classes accept type arguments: `ProcessWindowFunction[IN, OUT, KEY, W]`. The default of each argument is `Any`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic

from typing_extensions import TypeVar

from penstock.functions.function import Function

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.functions.function import KeyedStateStore
    from penstock.functions.output_tag import OutputTag


IN = TypeVar("IN", default=Any)
OUT = TypeVar("OUT", default=Any)
KEY = TypeVar("KEY", default=Any)
W = TypeVar("W", default=Any)
W2 = TypeVar("W2", default=Any)


class WindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """A function of all records of a window of one key. Results are yielded or returned as an iterable."""

    @abstractmethod
    def apply(self, key: KEY, window: W, inputs: Iterable[IN], /) -> Iterable[OUT] | None: ...


class AllWindowFunction(Function, Generic[IN, OUT, W]):
    """A function of all records of a window of the whole stream."""

    @abstractmethod
    def apply(self, window: W, inputs: Iterable[IN], /) -> Iterable[OUT] | None: ...


class _WindowContext(ABC, Generic[W2]):
    @abstractmethod
    def window(self) -> W2: ...

    @abstractmethod
    def current_processing_time(self) -> int: ...

    @abstractmethod
    def current_watermark(self) -> int: ...

    @abstractmethod
    def window_state(self) -> KeyedStateStore:
        """Return the state of this key and window. The function's `clear` must clear this state."""

    @abstractmethod
    def global_state(self) -> KeyedStateStore:
        """Return the state of this key, which all windows of the key share."""

    @abstractmethod
    def output(self, output_tag: OutputTag, value: Any) -> None:
        """Send a value to a side output."""


class ProcessWindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """A function of all records of a window of one key, with access to the window and to state.

    >>> class Median(ProcessWindowFunction):
    ...     def process(self, key, context, elements):
    ...         values = sorted(elements)
    ...         yield key, context.window().start, values[len(values) // 2]
    """

    class Context(_WindowContext[W2]):
        """The context of the window that fires."""

    @abstractmethod
    def process(
        self, key: KEY, context: ProcessWindowFunction.Context[W], elements: Iterable[IN], /
    ) -> Iterable[OUT] | None: ...

    def clear(self, context: ProcessWindowFunction.Context[W], /) -> None:
        """Clear the state in `window_state` when the window is deleted."""


class ProcessAllWindowFunction(Function, Generic[IN, OUT, W]):
    """A function of all records of a window of the whole stream, with access to the window and to state."""

    class Context(_WindowContext[W2]):
        """The context of the window that fires."""

    @abstractmethod
    def process(
        self, context: ProcessAllWindowFunction.Context[W], elements: Iterable[IN], /
    ) -> Iterable[OUT] | None: ...

    def clear(self, context: ProcessAllWindowFunction.Context[W], /) -> None:
        """Clear the state in `window_state` when the window is deleted."""
