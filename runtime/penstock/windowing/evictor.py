"""Evictors: they remove records from a window before or after the call of the window function.

A window with an evictor keeps all its records, even if it could keep one value for reduce or aggregate.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from penstock.common.errors import InvalidJob
from penstock.windowing.assigner import NO_TIMESTAMP, positive_millis
from penstock.windowing.windows import Window

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.common.time import TimeLike

W = TypeVar("W", bound=Window)


class TimestampedValue(NamedTuple):
    """A record of a window. `timestamp` is in ms. It is the smallest int64 if the record has no event time."""

    value: Any
    timestamp: int


class Evictor(ABC, Generic[W]):
    """Base of all evictors. An evictor removes records from the given list in place."""

    class EvictorContext(ABC):
        @abstractmethod
        def get_current_processing_time(self) -> int: ...

        @abstractmethod
        def get_current_watermark(self) -> int: ...

    @abstractmethod
    def evict_before(self, elements: list[TimestampedValue], size: int, window: W, ctx: EvictorContext, /) -> None:
        """Evict before the call of the window function. `size` is `len(elements)`."""

    @abstractmethod
    def evict_after(self, elements: list[TimestampedValue], size: int, window: W, ctx: EvictorContext, /) -> None:
        """Evict after the call of the window function."""


class _OnceEvictor(Evictor[Window]):
    """An evictor that runs before the window function, or after it if `do_evict_after` is set."""

    def __init__(self, do_evict_after: bool) -> None:
        self._after = do_evict_after

    @abstractmethod
    def evict(self, elements: list[TimestampedValue]) -> None:
        """Remove records from the list, so that the window function or the next firing does not get them."""

    def evict_before(
        self, elements: list[TimestampedValue], size: int, window: Window, ctx: Evictor.EvictorContext
    ) -> None:
        if not self._after:
            self.evict(elements)

    def evict_after(
        self, elements: list[TimestampedValue], size: int, window: Window, ctx: Evictor.EvictorContext
    ) -> None:
        if self._after:
            self.evict(elements)


class CountEvictor(_OnceEvictor):
    """An evictor that keeps the last `max_count` records.

    >>> records = [TimestampedValue(v, v) for v in (1, 2, 3)]
    >>> CountEvictor.of(2).evict(records); [value for value, _ in records]
    [2, 3]
    """

    def __init__(self, max_count: int, *, do_evict_after: bool = False) -> None:
        super().__init__(do_evict_after)
        if max_count < 0:
            raise InvalidJob(f"max_count of CountEvictor must not be negative, got {max_count}")
        self._max_count = max_count

    @staticmethod
    def of(max_count: int, *, do_evict_after: bool = False) -> CountEvictor:
        return CountEvictor(max_count, do_evict_after=do_evict_after)

    def evict(self, elements: list[TimestampedValue]) -> None:
        del elements[: max(0, len(elements) - self._max_count)]


class TimeEvictor(_OnceEvictor):
    """An evictor that keeps records that are at most `window_size` older than the newest record.

    It has no effect without timestamps.
    """

    def __init__(self, window_size: TimeLike, *, do_evict_after: bool = False) -> None:
        super().__init__(do_evict_after)
        self._size_ms = positive_millis(window_size, "size of TimeEvictor")

    @staticmethod
    def of(window_size: TimeLike, *, do_evict_after: bool = False) -> TimeEvictor:
        return TimeEvictor(window_size, do_evict_after=do_evict_after)

    def evict(self, elements: list[TimestampedValue]) -> None:
        newest = max((timestamp for _, timestamp in elements), default=NO_TIMESTAMP)
        if newest != NO_TIMESTAMP:
            cutoff = newest - self._size_ms
            elements[:] = [element for element in elements if element.timestamp > cutoff]


class DeltaEvictor(_OnceEvictor):
    """An evictor that removes records whose `delta(record, last record)` reaches `threshold`."""

    def __init__(self, threshold: float, delta: Callable[[Any, Any], float], *, do_evict_after: bool = False) -> None:
        super().__init__(do_evict_after)
        self._threshold = threshold
        self._delta = delta

    @staticmethod
    def of(threshold: float, delta: Callable[[Any, Any], float], *, do_evict_after: bool = False) -> DeltaEvictor:
        return DeltaEvictor(threshold, delta, do_evict_after=do_evict_after)

    def evict(self, elements: list[TimestampedValue]) -> None:
        if elements:
            last = elements[-1].value
            elements[:] = [element for element in elements if self._delta(element.value, last) < self._threshold]
