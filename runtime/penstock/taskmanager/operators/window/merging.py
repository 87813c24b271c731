"""The mergeable windows of a key, and the namespaces that hold the contents of these windows.

When windows merge, their contents are not copied into a new namespace each time. The merged window keeps the namespace
of one of its parts. This namespace is its *state window*.

The mapping from windows to state windows is also keyed state. Each key has one value, a tuple of pairs of namespaces.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from penstock.state.descriptors import ValueStateDescriptor
from penstock.windowing.assigner import MergingWindowAssigner
from penstock.windowing.sessions import merges_like_sessions
from penstock.windowing.windows import Namespace, TimeWindow

if TYPE_CHECKING:
    from penstock.state.backend import KeyedStateBackend

MERGING_WINDOWS = "window-merging-set"

OnMerge = Callable[[Any, list[Any], Namespace, list[Namespace]], None]
"""A callback that moves contents. Its arguments are the merged window, the replaced windows, the target state window,
and the state windows to move into the target."""

Windows = tuple[tuple[Namespace, Namespace], ...]
"""Pairs of window and state window. If the windows are sessions, the pairs are sorted by time."""


class _Collect(MergingWindowAssigner.MergeCallback[Any]):
    def __init__(self) -> None:
        self.merges: list[tuple[Any, list[Any]]] = []

    def merge(self, to_be_merged: Iterable[Any], merge_result: Any) -> None:
        self.merges.append((merge_result, list(to_be_merged)))


class MergingWindows:
    """The windows of all keys of an operator. Every method except `panes` uses the current key."""

    def __init__(self, assigner: MergingWindowAssigner[Any, Any], backend: KeyedStateBackend) -> None:
        self._assigner = assigner
        self._backend = backend
        self._at = backend.key_context
        self._table = backend.raw_table(ValueStateDescriptor(MERGING_WINDOWS))
        serializer = assigner.get_window_serializer()
        self._to_namespace = serializer.to_namespace
        self._from_namespace = serializer.from_namespace
        self._are_sessions = merges_like_sessions(assigner)

    def state_window(self, namespace: Namespace) -> Namespace | None:
        """Return the state window of a window, or None if the window no longer exists."""
        windows = self._load()
        if self._are_sessions:
            at = bisect_left(windows, namespace, key=_window)
            return windows[at][1] if at < len(windows) and windows[at][0] == namespace else None
        return dict(windows).get(namespace)

    def panes(self) -> Iterator[tuple[Any, Namespace]]:
        """Yield every key and window."""
        for key in list(self._backend.keys(MERGING_WINDOWS)):
            for namespace, _ in self._table.get(key) or ():
                yield key, namespace

    def retire(self, namespace: Namespace) -> None:
        windows = self._load()
        kept = tuple(pair for pair in windows if pair[0] != namespace)
        if len(kept) < len(windows):
            self._store(kept)

    def add(self, window: Any, on_merge: OnMerge) -> tuple[Any, Namespace]:
        """Add the window of a new record, and merge windows immediately if necessary. Return the window that now
        contains the record, and its state window."""
        windows = self._load()
        if self._are_sessions:
            return self._add_session(window, windows, on_merge)
        namespace = self._to_namespace(window)
        states = dict(windows)
        if namespace in states:
            return window, states[namespace]
        collect = _Collect()
        self._assigner.merge_windows([*map(self._from_namespace, states), window], collect)
        result = window
        merges: list[tuple[Any, list[Any], Namespace, list[Namespace]]] = []
        for merged, parts in collect.merges:
            if window in parts:
                result = merged
            spaces = [space for space in map(self._to_namespace, parts) if space in states]
            if not spaces:
                continue
            moved = [states.pop(space) for space in spaces]
            merged_space = self._to_namespace(merged)
            states[merged_space] = moved[0]
            if spaces != [merged_space]:
                gone = [self._from_namespace(space) for space in spaces if space != merged_space]
                merges.append((merged, gone, moved[0], moved[1:]))
        state_window = states.setdefault(self._to_namespace(result), namespace)
        self._store(tuple(states.items()))
        for merged, gone, state, moved in merges:
            on_merge(merged, gone, state, moved)
        return result, state_window

    def _add_session(self, window: TimeWindow, windows: Windows, on_merge: OnMerge) -> tuple[TimeWindow, Namespace]:
        """Add a window for an assigner whose windows merge if they overlap or touch, and only then. Return the
        same as `add`. `windows` are sorted and do not touch."""
        start, end = window.start, window.end
        first = bisect_left(windows, start, key=end_of)
        behind = bisect_right(windows, end, first, key=start_of)
        touched = windows[first:behind]
        if not touched:
            session = (start, end)
            self._store((*windows[:first], (session, session), *windows[first:]))
            return window, session
        low, high = min(start, touched[0][0][0]), max(end, touched[-1][0][1])
        merged = TimeWindow(low, high)
        if len(touched) == 1 and touched[0][0] == (low, high):
            return merged, touched[0][1]
        states = [state for _, state in touched]
        self._store((*windows[:first], ((low, high), states[0]), *windows[behind:]))
        gone = [TimeWindow(*space) for space, _ in touched if space != (low, high)]
        on_merge(merged, gone, states[0], states[1:])
        return merged, states[0]

    def _load(self) -> Windows:
        return self._table.get(self._at.key) or ()

    def _store(self, windows: Windows) -> None:
        if windows:
            self._table.put(self._at.key, windows)
        else:
            self._table.remove(self._at.key)


def _window(pair: tuple[Namespace, Namespace]) -> Namespace:
    return pair[0]


def start_of(pair: tuple[Namespace, Namespace]) -> int:
    return pair[0][0]


def end_of(pair: tuple[Namespace, Namespace]) -> int:
    return pair[0][1]
