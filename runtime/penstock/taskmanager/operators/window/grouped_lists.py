"""Grouped windows whose function gets all records: process and apply, and the window joins and co-groups based on them.

They work like `grouped`, but a pane keeps a list of its records. The records of a batch are collected by window and
key, and written once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.records.batch import MIN_TIMESTAMP
from penstock.taskmanager.operators.window.contents import CONTENTS, contents_descriptor
from penstock.taskmanager.operators.window.grouped import BatchWindows, GroupedWindows, Opened, Slice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.state.backend import KeyedStateBackend
    from penstock.windowing.window_function import WindowFunctionSpec
    from penstock.windowing.windows import Namespace


class GroupedLists(GroupedWindows):
    """The windows of one operator, processed window by window.

    The table of an opened window has only the batch's records.
    """

    def _make_contents(self, backend: KeyedStateBackend, spec: WindowFunctionSpec) -> None:
        self._backend = backend
        self._list: Any = backend.get_state(contents_descriptor(spec, evicts=False))

    def process(
        self, values: list[Any], iterator: Iterator[Any], keys: list[Any], timestamps: list[int] | None
    ) -> None:
        length, offset = self._slice, self._offset
        batch_windows = BatchWindows(self, keys)
        low = high = MIN_TIMESTAMP
        part = Slice([])
        for value, key, time in zip(iterator, keys, self._times(len(values), timestamps), strict=False):
            if not low <= time < high:
                low = time - (time - offset) % length
                high = low + length
                part = batch_windows.of_slice(low)
            for table in part.tables:
                added = table.get(key)
                if added is None:
                    table[key] = [value]
                else:
                    added.append(value)
            if not part.is_plain:
                self._add_late(part, value, key, time)
        batch_windows.close()

    def _add_late(self, part: Slice, value: Any, key: Any, time: int) -> None:
        if not part.windows:
            self._on_late(value, time)
        for window in part.windows:
            if window.has_fired:
                self._write(window, key, window.table.pop(key))
                self._fire_pane(window.space, key, self._list.get())

    def _write(self, window: Opened, key: Any, added: list[Any]) -> None:
        self._at.key, self._at.namespace = key, window.space
        self._list.add_all(added)

    def _borrow(self, namespace: Namespace, keys: list[Any]) -> dict[Any, Any]:
        return {}

    def close_window(self, window: Opened) -> None:
        for key, added in window.table.items():
            self._write(window, key, added)

    def _items(self, namespace: Namespace) -> Iterator[tuple[Any, Any]]:
        at = self._at
        for key in list(self._backend.keys(CONTENTS, namespace)):
            at.key, at.namespace = key, namespace
            yield key, self._list.get()

    def _pop(self, namespace: Namespace) -> Iterator[tuple[Any, Any]]:
        at = self._at
        for key, elements in self._items(namespace):
            at.key, at.namespace = key, namespace
            self._list.clear()
            yield key, elements

    def _elements(self, accumulator: Any) -> list[Any]:
        elements: list[Any] = accumulator
        return elements
