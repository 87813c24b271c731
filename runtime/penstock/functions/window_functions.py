"""Functions over the records of a window, called when its trigger fires.

They may be given their types: `ProcessWindowFunction[IN, OUT, KEY, W]`. Types that are left away are `Any`.
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
    """All records of a window of one key. Results are yielded or returned as an iterable."""

    @abstractmethod
    def apply(self, key: KEY, window: W, inputs: Iterable[IN]) -> Iterable[OUT] | None: ...


class AllWindowFunction(Function, Generic[IN, OUT, W]):
    """All records of a window of the whole stream."""

    @abstractmethod
    def apply(self, window: W, inputs: Iterable[IN]) -> Iterable[OUT] | None: ...


class _WindowContext(ABC, Generic[W2]):
    @abstractmethod
    def window(self) -> W2: ...

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


class ProcessWindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """All records of a window of one key, with what is known of the window and with state.

    >>> class Median(ProcessWindowFunction):
    ...     def process(self, key, context, elements):
    ...         values = sorted(elements)
    ...         yield key, context.window().start, values[len(values) // 2]
    """

    class Context(_WindowContext[W2]):
        """Of the window that fires."""

    @abstractmethod
    def process(
        self, key: KEY, context: ProcessWindowFunction.Context[W], elements: Iterable[IN]
    ) -> Iterable[OUT] | None: ...

    def clear(self, context: ProcessWindowFunction.Context[W]) -> None:
        """The window is deleted: clear what `window_state` holds."""


class ProcessAllWindowFunction(Function, Generic[IN, OUT, W]):
    """All records of a window of the whole stream, with what is known of the window and with state."""

    class Context(_WindowContext[W2]):
        """Of the window that fires."""

    @abstractmethod
    def process(self, context: ProcessAllWindowFunction.Context[W], elements: Iterable[IN]) -> Iterable[OUT] | None: ...

    def clear(self, context: ProcessAllWindowFunction.Context[W]) -> None:
        """The window is deleted: clear what `window_state` holds."""
