"""Functions over the records of a window, called when its trigger fires."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from penstock.datastream.function import Function

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.datastream.function import KeyedStateStore
    from penstock.datastream.output_tag import OutputTag


class WindowFunction(Function):
    """All records of a window of one key. Results are yielded or returned as an iterable."""

    @abstractmethod
    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Any: ...


class AllWindowFunction(Function):
    """All records of a window of the whole stream."""

    @abstractmethod
    def apply(self, window: Any, inputs: Iterable[Any]) -> Any: ...


class _WindowContext(ABC):
    @abstractmethod
    def window(self) -> Any: ...

    @abstractmethod
    def current_processing_time(self) -> int: ...

    @abstractmethod
    def current_watermark(self) -> int: ...

    @abstractmethod
    def window_state(self) -> KeyedStateStore:
        """State of this key and window; `clear` must clear it."""

    @abstractmethod
    def global_state(self) -> KeyedStateStore:
        """State of this key, shared by all its windows."""

    @abstractmethod
    def output(self, output_tag: OutputTag, value: Any) -> None:
        """Sends a value to a side output."""


class ProcessWindowFunction(Function):
    """All records of a window of one key, with what is known of the window and with state.

    >>> class Median(ProcessWindowFunction):
    ...     def process(self, key, context, elements):
    ...         values = sorted(elements)
    ...         yield key, context.window().start, values[len(values) // 2]
    """

    class Context(_WindowContext):
        """Of the window that fires."""

    @abstractmethod
    def process(self, key: Any, context: ProcessWindowFunction.Context, elements: Iterable[Any]) -> Any: ...

    def clear(self, context: ProcessWindowFunction.Context) -> None:
        """The window is deleted: clear what `window_state` holds."""


class ProcessAllWindowFunction(Function):
    """All records of a window of the whole stream, with what is known of the window and with state."""

    class Context(_WindowContext):
        """Of the window that fires."""

    @abstractmethod
    def process(self, context: ProcessAllWindowFunction.Context, elements: Iterable[Any]) -> Any: ...

    def clear(self, context: ProcessAllWindowFunction.Context) -> None:
        """The window is deleted: clear what `window_state` holds."""
