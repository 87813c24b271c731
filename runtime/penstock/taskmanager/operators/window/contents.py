"""The contents of one pane (key and window) until it fires: an accumulator, a list, or a list with timestamps.

All methods use the key and the namespace of the key context.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from penstock.state.descriptors import ListStateDescriptor, ValueStateDescriptor
from penstock.taskmanager.operators.window.function import Fold
from penstock.windowing.evictor import Evictor, TimestampedValue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.state.backend import KeyedStateBackend
    from penstock.windowing.window_function import WindowFunctionSpec

CONTENTS = "window-contents"
CONTENT_TIMESTAMPS = "window-content-timestamps"


class Contents(Protocol):
    """The contents of the pane that the key context points to."""

    def add(self, value: Any, timestamp: int) -> None: ...

    def elements(self) -> list[Any] | None:
        """Return the elements for the window function, or None if the pane is empty."""
        ...

    def clear(self) -> None: ...

    def merge(self, target: Any, sources: Iterable[Any]) -> None:
        """Move the contents of the namespaces `sources` into `target`, for the current key."""
        ...


def contents_descriptor(spec: WindowFunctionSpec, *, evicts: bool) -> ValueStateDescriptor | ListStateDescriptor:
    """Return the descriptor of the state that holds the contents of windows."""
    if evicts:
        return ListStateDescriptor(CONTENTS, None if spec.kind == "aggregate" else spec.state_type)
    return (ValueStateDescriptor if spec.is_incremental else ListStateDescriptor)(CONTENTS, spec.state_type)


class FoldedContents:
    """One accumulator."""

    def __init__(self, backend: KeyedStateBackend, spec: WindowFunctionSpec) -> None:
        self._at = backend.key_context
        self._table = backend.raw_table(contents_descriptor(spec, evicts=False))
        self._fold = Fold(spec, self._at)

    def add(self, value: Any, timestamp: int) -> None:
        key, namespace = self._at.key, self._at.namespace
        self._table.put(key, self._fold.add(self._table.get(key, namespace), value), namespace)

    def elements(self) -> list[Any] | None:
        accumulator = self._table.get(self._at.key, self._at.namespace)
        return None if accumulator is None else [self._fold.result(accumulator)]

    def clear(self) -> None:
        self._table.remove(self._at.key, self._at.namespace)

    def merge(self, target: Any, sources: Iterable[Any]) -> None:
        key, table = self._at.key, self._table
        merged = table.get(key, target)
        for source in sources:
            merged = self._fold.merge(merged, table.get(key, source))
            table.remove(key, source)
        if merged is not None:
            table.put(key, merged, target)


class ListContents:
    """All records, in the order of arrival."""

    def __init__(self, backend: KeyedStateBackend, spec: WindowFunctionSpec) -> None:
        self._at = backend.key_context
        self._list: Any = backend.get_state(contents_descriptor(spec, evicts=False))

    def add(self, value: Any, timestamp: int) -> None:
        self._list.add(value)

    def elements(self) -> list[Any] | None:
        return self._list.get() or None

    def clear(self) -> None:
        self._list.clear()

    def merge(self, target: Any, sources: Iterable[Any]) -> None:
        _move(self._list, self._at, target, sources)


class EvictedContents:
    """All records with their timestamps, for an evictor. A reduce or aggregate is computed when the window fires."""

    def __init__(self, backend: KeyedStateBackend, spec: WindowFunctionSpec) -> None:
        self._at = backend.key_context
        self._values: Any = backend.get_state(contents_descriptor(spec, evicts=True))
        self._timestamps: Any = backend.get_state(ListStateDescriptor(CONTENT_TIMESTAMPS, int))
        self._fold = Fold(spec, self._at) if spec.is_incremental else None

    def add(self, value: Any, timestamp: int) -> None:
        self._values.add(value)
        self._timestamps.add(timestamp)

    def elements(self) -> list[Any] | None:
        return list(map(TimestampedValue, self._values.get(), self._timestamps.get())) or None

    def evict(self, evictor: Evictor[Any], elements: list[TimestampedValue], window: Any, ctx: Any) -> list[Any]:
        """Let the evictor shorten `elements`. Return the elements for the window function."""
        evictor.evict_before(elements, len(elements), window, ctx)
        values = [element.value for element in elements]
        if self._fold is None or not values:
            return values
        accumulator = None
        for value in values:
            accumulator = self._fold.add(accumulator, value)
        return [self._fold.result(accumulator)]

    def keep(self, evictor: Evictor[Any], elements: list[TimestampedValue], window: Any, ctx: Any) -> None:
        """Call the evictor again after the window function. The remaining elements stay in the window."""
        evictor.evict_after(elements, len(elements), window, ctx)
        self._values.update([element.value for element in elements])
        self._timestamps.update([element.timestamp for element in elements])

    def clear(self) -> None:
        self._values.clear()
        self._timestamps.clear()

    def merge(self, target: Any, sources: Iterable[Any]) -> None:
        sources = list(sources)
        _move(self._values, self._at, target, sources)
        _move(self._timestamps, self._at, target, sources)


def _move(state: Any, at: Any, target: Any, sources: Iterable[Any]) -> None:
    moved: list[Any] = []
    for source in sources:
        at.namespace = source
        moved.extend(state.get())
        state.clear()
    at.namespace = target
    state.add_all(moved)
