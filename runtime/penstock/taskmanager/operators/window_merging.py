"""The windows of one key that may merge, and where their contents lie (T30, T43).

When windows merge, their contents are not copied into a new namespace each time: the merged window goes on using the
namespace of one of its parts, its *state window*. The mapping window -> state window is keyed state itself, one value per
key: pairs of namespaces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.windowing.assigner import MergingWindowAssigner
from penstock.datastream.windowing.windows import Namespace

if TYPE_CHECKING:
    from penstock.state.backend import KeyedStateBackend

MERGING_WINDOWS = "window-merging-set"

OnMerge = Callable[[Any, list[Any], Namespace, list[Namespace]], None]
"""(merged window, windows it was made of, its state window, state windows to be moved into that)."""


class _Collect(MergingWindowAssigner.MergeCallback[Any]):
    def __init__(self) -> None:
        self.merges: list[tuple[Any, list[Any]]] = []

    def merge(self, to_be_merged: Iterable[Any], merge_result: Any) -> None:
        self.merges.append((merge_result, list(to_be_merged)))


class MergingWindows:
    """The window sets of all keys of an operator; every call is about the current key."""

    def __init__(self, assigner: MergingWindowAssigner[Any, Any], backend: KeyedStateBackend) -> None:
        self._assigner = assigner
        self._at = backend.key_context
        self._table = backend.raw_table(ValueStateDescriptor(MERGING_WINDOWS))
        serializer = assigner.get_window_serializer()
        self._to_namespace = serializer.to_namespace
        self._from_namespace = serializer.from_namespace

    def state_window(self, namespace: Namespace) -> Namespace | None:
        """Where the window's contents are; None if the window is gone."""
        return self._load().get(namespace)

    def retire(self, namespace: Namespace) -> None:
        windows = self._load()
        if windows.pop(namespace, None) is not None:
            self._store(windows)

    def add(self, window: Any, on_merge: OnMerge) -> Any:
        """Adds a window of a new record; what merges is merged at once. The window that now holds the record."""
        windows = self._load()
        namespace = self._to_namespace(window)
        if namespace in windows:
            return window
        if not windows:
            self._store({namespace: namespace})
            return window
        collect = _Collect()
        self._assigner.merge_windows([*map(self._from_namespace, windows), window], collect)
        result = window
        merges: list[tuple[Any, list[Any], Namespace, list[Namespace]]] = []
        for merged, parts in collect.merges:
            if window in parts:
                result = merged
            spaces = [space for space in map(self._to_namespace, parts) if space in windows]
            if not spaces:
                continue
            states = [windows.pop(space) for space in spaces]
            merged_space = self._to_namespace(merged)
            windows[merged_space] = states[0]
            if spaces != [merged_space]:
                gone = [self._from_namespace(space) for space in spaces if space != merged_space]
                merges.append((merged, gone, states[0], states[1:]))
        windows.setdefault(self._to_namespace(result), namespace)
        self._store(windows)
        for merged, gone, state, moved in merges:
            on_merge(merged, gone, state, moved)
        return result

    def _load(self) -> dict[Namespace, Namespace]:
        return dict(self._table.get(self._at.key) or ())

    def _store(self, windows: dict[Namespace, Namespace]) -> None:
        if windows:
            self._table.put(self._at.key, tuple(windows.items()))
        else:
            self._table.remove(self._at.key)
