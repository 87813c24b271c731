"""Windows: finite groups of records, and the serialization of each kind in state.

A window is the *namespace* of its state: a tuple of ints. `TimeWindow` is `(start, end)`, `GlobalWindow` `(0,)`,
`CountWindow` `(id,)`. A `WindowSerializer` converts between windows and namespaces. A custom window kind needs its own
serializer.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from io import BytesIO
from typing import TYPE_CHECKING, Protocol, TypeVar

from penstock.common.serializer import TypeSerializer

if TYPE_CHECKING:
    from collections.abc import Iterable


MAX_LONG = 2**63 - 1

W = TypeVar("W", bound="Window")
AnyWindow = TypeVar("AnyWindow", contravariant=True)

Namespace = tuple[int, ...]


class Window(ABC):
    """A finite group of records. Custom windows must be hashable and comparable by value."""

    __slots__ = ()

    @abstractmethod
    def max_timestamp(self) -> int:
        """Return the largest timestamp (ms) in the window. It is the timestamp of the results."""


class MergeCallback(Protocol[AnyWindow]):
    """The part of `MergingWindowAssigner.MergeCallback` that merging calls."""

    def merge(self, to_be_merged: Iterable[AnyWindow], merge_result: AnyWindow) -> None:
        """Replace the windows `to_be_merged` with `merge_result`."""


class TimeWindow(Window):
    """The interval [start, end) in ms. `start` belongs to the window and `end` does not.

    >>> window = TimeWindow(0, 5000)
    >>> window.max_timestamp(), window.intersects(TimeWindow(5000, 6000)), window.cover(TimeWindow(7000, 8000))
    (4999, True, TimeWindow(start=0, end=8000))
    """

    __slots__ = ("end", "start")

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end

    def max_timestamp(self) -> int:
        return self.end - 1

    def intersects(self, other: TimeWindow) -> bool:
        """Return whether the windows overlap or touch. Windows that touch are merged, as in Flink."""
        return self.start <= other.end and self.end >= other.start

    def cover(self, other: TimeWindow) -> TimeWindow:
        """Return the smallest window that contains both windows."""
        return TimeWindow(min(self.start, other.start), max(self.end, other.end))

    @staticmethod
    def of_length(start: int, length: int) -> TimeWindow:
        """Return the window that begins at `start`. Its end is at most the largest timestamp.

        The results of count and global windows have the largest possible timestamp. Such results may be grouped into
        time windows.

        >>> TimeWindow.of_length(MAX_LONG - 5, 10).end == MAX_LONG
        True
        """
        end = start + length
        return TimeWindow(start, end if end < MAX_LONG else MAX_LONG)

    @staticmethod
    def get_window_start_with_offset(timestamp: int, offset: int, window_size: int) -> int:
        """Return the start (ms) of the epoch-aligned window of `window_size` that contains `timestamp`, which may be negative.

        >>> TimeWindow.get_window_start_with_offset(-1, 0, 5000)
        -5000
        """
        return timestamp - (timestamp - offset) % window_size

    @staticmethod
    def merge_windows(windows: Iterable[TimeWindow], callback: MergeCallback[TimeWindow]) -> None:
        """Call `callback.merge(parts, whole)` for every group of windows that overlap or touch."""
        groups: list[tuple[TimeWindow, list[TimeWindow]]] = []
        for candidate in sorted(windows):
            if groups and groups[-1][0].intersects(candidate):
                whole, parts = groups[-1]
                if candidate not in parts:
                    parts.append(candidate)
                groups[-1] = whole.cover(candidate), parts
            else:
                groups.append((candidate, [candidate]))
        for whole, parts in groups:
            if len(parts) > 1:
                callback.merge(parts, whole)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TimeWindow) and self.start == other.start and self.end == other.end

    def __hash__(self) -> int:
        return hash((self.start, self.end))

    def __lt__(self, other: TimeWindow) -> bool:
        return (self.start, self.end) < (other.start, other.end)

    def __le__(self, other: TimeWindow) -> bool:
        return (self.start, self.end) <= (other.start, other.end)

    def __repr__(self) -> str:
        return f"TimeWindow(start={self.start}, end={self.end})"


class CountWindow(Window):
    """The `id`-th window of a count assigner. The window has no end in time."""

    __slots__ = ("id",)

    def __init__(self, id: int) -> None:
        self.id = id

    def max_timestamp(self) -> int:
        return MAX_LONG

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CountWindow) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"CountWindow(id={self.id})"


class GlobalWindow(Window):
    """The single window that contains all records and never ends."""

    __slots__ = ()

    @staticmethod
    def get() -> GlobalWindow:
        return _GLOBAL

    def max_timestamp(self) -> int:
        return MAX_LONG

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GlobalWindow)

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "GlobalWindow"


_GLOBAL = GlobalWindow()


class WindowSerializer(TypeSerializer[W]):
    """A serializer of one kind of windows. It also converts a window to the namespace of its state.

    A custom window kind only needs `serialize` and `deserialize`.
    """


class TimeWindowSerializer(WindowSerializer[TimeWindow]):
    """The serializer of time windows: 16 bytes, start and end, big-endian. The namespace is `(start, end)`.

    >>> TimeWindowSerializer().to_namespace(TimeWindow(0, 5000))
    (0, 5000)
    """

    def serialize(self, element: TimeWindow, stream: BytesIO) -> None:
        stream.write(struct.pack(">qq", element.start, element.end))

    def deserialize(self, stream: BytesIO) -> TimeWindow:
        return TimeWindow(*struct.unpack(">qq", stream.read(16)))

    def to_namespace(self, window: TimeWindow) -> Namespace:
        return (window.start, window.end)

    def from_namespace(self, namespace: Namespace) -> TimeWindow:
        return TimeWindow(namespace[0], namespace[1])


class CountWindowSerializer(WindowSerializer[CountWindow]):
    """The serializer of count windows: 8 bytes, the id, big-endian. The namespace is `(id,)`."""

    def serialize(self, element: CountWindow, stream: BytesIO) -> None:
        stream.write(struct.pack(">q", element.id))

    def deserialize(self, stream: BytesIO) -> CountWindow:
        return CountWindow(*struct.unpack(">q", stream.read(8)))

    def to_namespace(self, window: CountWindow) -> Namespace:
        return (window.id,)

    def from_namespace(self, namespace: Namespace) -> CountWindow:
        return CountWindow(namespace[0])


class GlobalWindowSerializer(WindowSerializer[GlobalWindow]):
    """The serializer of the global window: 8 bytes of zero. The namespace is `(0,)`."""

    def serialize(self, element: GlobalWindow, stream: BytesIO) -> None:
        stream.write(bytes(8))

    def deserialize(self, stream: BytesIO) -> GlobalWindow:
        stream.read(8)
        return _GLOBAL

    def to_namespace(self, window: GlobalWindow) -> Namespace:
        return (0,)

    def from_namespace(self, namespace: Namespace) -> GlobalWindow:
        return _GLOBAL
