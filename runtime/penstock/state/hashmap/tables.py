"""The hashmap backend's tables: Python objects in dictionaries, and their changes since the last snapshot.

The namespace None always exists, and its dictionary is always the same object, so that a handle can hold the methods of this dictionary. A
cell is a value here. In `collection_tables` it is a list of elements or a dict of map entries.

Changes are marks per entry. The mark of a value is the value itself. A snapshot then reads the changed entries in the order of their
writes. The snapshot needs no look-ups in a table that is larger than the processor's cache. `mark_root(key, mark)` is the fast way to
record a change in the namespace None. It is the C method of the marks' dictionary, or a function that does nothing while changes are not
tracked.
"""

from __future__ import annotations

from abc import abstractmethod
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

from penstock.state.hashmap.table import Changes, Marks, Space, Table
from penstock.state.snapshot_format.rows import APPEND, DELETE, DROP, PUT, REMOVE, Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from penstock.state.encoding.codec import Codec
    from penstock.state.encoding.keys import KeyCodec
    from penstock.state.snapshot_format.rows import FrozenRows

ABSENT: Any = type("Absent", (), {"__repr__": lambda self: "ABSENT", "__slots__": ()})()
"""Means "no value" if None may be a value."""

LARGE = 1 << 16
"""Number of entries above which a table does not fit in the processor's cache. Keeping the value of a changed entry then costs less than a
new look-up.
"""


class CellTable(Table):
    """A table whose changes are marks."""

    def __init__(self, name: str, codec: Codec, map_keys: KeyCodec | None = None) -> None:
        super().__init__(name, codec, map_keys)
        self._root_marks: Marks = {}
        self._marks: dict[Any, Marks] = {None: self._root_marks}
        self._dropped: set[Any] = set()
        self.mark_root: Callable[[Any, Any], Any] = _mark_nothing

    def track(self, *, on: bool) -> None:
        self.tracking = on
        self._root_marks = {}
        self._marks = {None: self._root_marks}
        self._dropped = set()
        self.mark_root = self._root_mark() if on else _mark_nothing

    def _root_mark(self) -> Callable[[Any, Any], Any]:
        return self._root_marks.__setitem__

    def marks(self, namespace: Any) -> Marks:
        """Return the dictionary for marks of a namespace."""
        if not self.tracking:
            return {}
        marks = self._marks.get(namespace)
        if marks is None:
            marks = self._marks[namespace] = {}
        return marks

    def remove(self, key: Any, namespace: Any) -> None:
        space = self.spaces.get(namespace)
        if space and space.pop(key, ABSENT) is not ABSENT:
            self.mark_removed(key, namespace)
            if not space and namespace is not None:
                del self.spaces[namespace]

    @abstractmethod
    def mark_removed(self, key: Any, namespace: Any) -> None: ...

    def pop_namespace(self, namespace: Any) -> Space:
        """Remove and return a whole namespace."""
        if self.tracking:
            self._dropped.add(namespace)
        if namespace is not None:
            self._marks.pop(namespace, None)
            return self.spaces.pop(namespace, {})
        content = dict(self.root)
        self.root.clear()
        self._root_marks.clear()
        return content

    def change_count(self) -> int:
        return sum(map(len, self._marks.values())) + len(self._dropped)

    def take_changes(self) -> Changes:
        """Return and reset the changes. Empty namespaces are dropped."""
        marks = {namespace: marks for namespace, marks in self._marks.items() if marks}
        changes = Changes(marks, self._dropped)
        for namespace in marks:
            if namespace is not None and not self.spaces.get(namespace, True):
                del self.spaces[namespace]
        self.track(on=self.tracking)
        return changes

    def restore_changes(self, changes: Changes) -> None:
        self._dropped |= changes.dropped
        for namespace, marks in changes.marks.items():
            self._merge_marks(self.marks(namespace), marks, namespace)

    @abstractmethod
    def _merge_marks(self, into: Marks, marks: Marks, namespace: Any) -> None: ...

    def freeze(self, changes: Changes) -> Sequence[FrozenRows]:
        rows = [Rows(DROP, [], list(changes.dropped))] if changes.dropped else []
        deleted: list[tuple[Any, list[Any]]] = []
        parts: list[Rows] = []
        for namespace, marks in changes.marks.items():
            gone, put = self._freeze_marks(marks, namespace, gaps=namespace in changes.gaps)
            if gone:
                deleted.append((namespace, gone))
            parts.extend(put)
        if deleted:
            rows.append(joined([Rows(DELETE, keys, [namespace] * len(keys)) for namespace, keys in deleted]))
        for op in (PUT, APPEND, REMOVE):
            of_op = [part for part in parts if part.op == op]
            if of_op:
                rows.append(joined(of_op))
        for part in rows:
            self._freeze_values(part)
        return rows

    @abstractmethod
    def _freeze_marks(self, marks: Marks, namespace: Any, *, gaps: bool) -> tuple[list[Any], list[Rows]]:
        """Return the keys that are gone, and rows of the existing keys."""

    def _freeze_values(self, rows: Rows) -> None:
        if rows.values is not None:
            rows.values = self.codec.freeze(rows.values)

    def freeze_keys(self, keys: Sequence[Any], namespaces: list[Any] | None) -> Sequence[FrozenRows]:
        if namespaces is None:
            present = self._present(keys, self.root, None)
        else:
            spaces = self.spaces
            existing = [
                (key, namespace)
                for key, namespace in zip(keys, namespaces, strict=True)
                if namespace in spaces and key in spaces[namespace]
            ]
            cells = [spaces[namespace][key] for key, namespace in existing]
            present = self._rows_of_cells([key for key, _ in existing], cells, [namespace for _, namespace in existing])
        self._freeze_values(present)
        return [present] if len(present) else []

    def freeze_all(self) -> Sequence[FrozenRows]:
        parts = [
            self._rows_of_cells(
                list(space), list(space.values()), None if namespace is None else [namespace] * len(space)
            )
            for namespace, space in self.spaces.items()
            if space
        ]
        if not parts:
            return []
        rows = joined(parts)
        self._freeze_values(rows)
        return [rows]

    def _present(self, keys: Sequence[Any], space: Space, namespace: Any) -> Rows:
        try:
            cells = list(map(space.__getitem__, keys))
        except KeyError:
            keys = [key for key in keys if key in space]
            cells = [space[key] for key in keys]
        return self._rows_of_cells(list(keys), cells, None if namespace is None else [namespace] * len(keys))

    @abstractmethod
    def _rows_of_cells(self, keys: list[Any], cells: list[Any], namespaces: list[Any] | None) -> Rows:
        """Return PUT rows of whole cells."""


def _mark_nothing(key: Any, mark: Any) -> None:
    """Ignore the change, because changes are not tracked."""


def joined(parts: list[Rows]) -> Rows:
    """Return the rows of one operation as one object. Its `namespaces` is None if all namespaces are None."""
    if len(parts) == 1 and (parts[0].namespaces is None or parts[0].op == DROP):
        return parts[0]
    namespaces: list[Any] | None = [
        namespace for part in parts for namespace in (part.namespaces or repeat(None, len(part.keys)))
    ]
    if namespaces is not None and all(namespace is None for namespace in namespaces):
        namespaces = None

    def flat(column: str) -> list[Any] | None:
        columns = [getattr(part, column) for part in parts]
        return None if columns[0] is None else list(chain.from_iterable(columns))

    return Rows(
        parts[0].op, flat("keys") or [], namespaces, flat("positions"), flat("counts"), flat("map_keys"), flat("values")
    )


class ValueTable(CellTable):
    """Table of values, also of reducing and aggregating state."""

    layout = "value"
    are_columns = False
    """Whether the values of the namespace None are columns now. `spaces` would convert them to objects."""

    def __init__(self, name: str, codec: Codec, map_keys: KeyCodec | None = None) -> None:
        super().__init__(name, codec, map_keys)
        self._touched: dict[Any, set[Any]] = {}
        self._gaps: set[Any] = set()

    def mark_removed(self, key: Any, namespace: Any) -> None:
        self.marks(namespace)[key] = ABSENT
        self._gaps.add(namespace)

    def _mark_present(self, keys: Collection[Any], namespace: Any) -> None:
        """Record the current values of these keys, or that they have no value."""
        space = self.spaces.get(namespace, {})
        marks = self.marks(namespace)
        try:
            marks.update(zip(keys, map(space.__getitem__, keys), strict=True))
        except KeyError:
            marks.update(zip(keys, map(space.get, keys, repeat(ABSENT)), strict=True))
            self._gaps.add(namespace)

    def touch(self, keys: Iterable[Any], namespace: Any) -> None:
        """Record that these entries were changed directly.

        In a large table the values are recorded now, while they are in the processor's cache. In a small table the keys are sufficient.
        """
        if not self.tracking:
            return
        space = self.spaces.get(namespace)
        if space is not None and len(space) > LARGE:
            self._mark_present(list(keys), namespace)
            return
        touched = self._touched.get(namespace)
        if touched is None:
            touched = self._touched[namespace] = set()
        touched.update(keys)

    def pop_namespace(self, namespace: Any) -> Space:
        self._touched.pop(namespace, None)
        return super().pop_namespace(namespace)

    def track(self, *, on: bool) -> None:
        super().track(on=on)
        self._touched.clear()
        self._gaps = set()

    def change_count(self) -> int:
        return super().change_count() + sum(map(len, self._touched.values()))

    def take_changes(self) -> Changes:
        for namespace, touched in self._touched.items():
            self._mark_present(touched, namespace)
        gaps = self._gaps
        changes = super().take_changes()
        changes.gaps = gaps
        return changes

    def _merge_marks(self, into: Marks, marks: Marks, namespace: Any) -> None:
        self._mark_present(marks.keys(), namespace)

    def _freeze_marks(self, marks: Marks, namespace: Any, *, gaps: bool) -> tuple[list[Any], list[Rows]]:
        keys, cells = list(marks), list(marks.values())
        gone: list[Any] = []
        if gaps:
            gone = [key for key, cell in marks.items() if cell is ABSENT]
            keys = [key for key, cell in marks.items() if cell is not ABSENT]
            cells = [cell for cell in cells if cell is not ABSENT]
        namespaces = None if namespace is None else [namespace] * len(keys)
        return gone, [Rows(PUT, keys, namespaces, values=cells)] if keys else []

    def _rows_of_cells(self, keys: list[Any], cells: list[Any], namespaces: list[Any] | None) -> Rows:
        return Rows(PUT, keys, namespaces, values=cells)

    def _apply(self, rows: Rows) -> None:
        values = rows.values or []
        if rows.namespaces is None:
            self.root.update(zip(rows.keys, values, strict=True))
        else:
            for key, namespace, value in zip(rows.keys, rows.namespaces, values, strict=True):
                self.space(namespace)[key] = value
