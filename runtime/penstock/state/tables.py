"""The hashmap backend's tables: Python objects in dictionaries, and what changed in them since the last snapshot.

`spaces` maps a namespace to a dictionary key -> cell; the namespace None is always there and its dictionary is always
the same object, so that a handle can hold its methods. A cell is a value, a list of
elements, or a dict of map entries.

Changes are noted only once `track` was called: before the first snapshot everything is new anyway, and a job without
checkpoints must not gather changes for ever. `mark_root(key, mark)` is the fast way to note a change in the namespace
None: the C method of the marks' dictionary, or one that does nothing.

Changes are marks per entry. For a value the mark is the value itself: a snapshot then reads the dirty entries in the
order they were written, instead of looking each up in a table larger than the processor's cache. For a list it is the
position from which elements are new, for a map the set of changed map keys.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.state.key_groups import keys_key_groups
from penstock.state.rows import APPEND, DELETE, DROP, PUT, REMOVE, Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.state.backend import KeyGroupRange
    from penstock.state.codec import Codec
    from penstock.state.keys import KeyCodec

ABSENT: Any = type("Absent", (), {"__repr__": lambda self: "ABSENT", "__slots__": ()})()
"""Stands for "there is no value" where None may be one."""

Space = dict[Any, Any]
Marks = dict[Any, Any]

LARGE = 1 << 16
"""Entries; a table beyond that no longer fits the processor's cache, looking up an entry again costs more than keeping it."""


class Changes:
    """What changed in a table: marks by namespace and key, and namespaces that were dropped as a whole."""

    __slots__ = ("dropped", "marks")

    def __init__(self, marks: dict[Any, Marks], dropped: set[Any]) -> None:
        self.marks = marks
        self.dropped = dropped

    def __len__(self) -> int:
        return sum(map(len, self.marks.values())) + len(self.dropped)


class Table(ABC):
    """One state of one operator in one subtask.

    Args:
        name: of the state.
        codec: of values, list elements or map values.
        map_keys: codec of map keys, None unless it is a map.
    """

    layout: ClassVar[str]

    def __init__(self, name: str, codec: Codec, map_keys: KeyCodec | None = None) -> None:
        self.name = name
        self.codec = codec
        self.map_keys = map_keys
        self.root: Space = {}
        self.spaces: dict[Any, Space] = {None: self.root}
        self.tracking = False
        self._root_marks: Marks = {}
        self._marks: dict[Any, Marks] = {None: self._root_marks}
        self._dropped: set[Any] = set()
        self.mark_root: Callable[[Any, Any], Any] = _mark_nothing

    def __len__(self) -> int:
        return sum(map(len, self.spaces.values()))

    def space(self, namespace: Any) -> Space:
        """The dictionary of a namespace, made if there is none."""
        space = self.spaces.get(namespace)
        if space is None:
            space = self.spaces[namespace] = {}
        return space

    def track(self, *, on: bool) -> None:
        """Begin or stop to note changes; those noted so far are forgotten."""
        self.tracking = on
        self._root_marks = {}
        self._marks = {None: self._root_marks}
        self._dropped = set()
        self.mark_root = self._root_mark() if on else _mark_nothing

    def _root_mark(self) -> Callable[[Any, Any], Any]:
        return self._root_marks.__setitem__

    def marks(self, namespace: Any) -> Marks:
        """Where to note changes of a namespace."""
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
        """Take a whole namespace out."""
        if self.tracking:
            self._dropped.add(namespace)
        if namespace is not None:
            self._marks.pop(namespace, None)
            return self.spaces.pop(namespace, {})
        content = dict(self.root)
        self.root.clear()
        self._root_marks.clear()
        return content

    def key_group_keys(self, keys: list[Any]) -> list[Any]:
        """The keys whose key groups those of these entries are."""
        return keys

    def namespaces(self) -> Iterator[Any]:
        return (namespace for namespace, space in list(self.spaces.items()) if space)

    def change_count(self) -> int:
        """About how many entries changed since the last `take_changes`."""
        return sum(map(len, self._marks.values())) + len(self._dropped)

    def take_changes(self) -> Changes:
        """The changes since the last call; the table starts afresh. Empty namespaces are forgotten."""
        marks = {namespace: marks for namespace, marks in self._marks.items() if marks}
        changes = Changes(marks, self._dropped)
        for namespace in marks:
            if namespace is not None and not self.spaces.get(namespace, True):
                del self.spaces[namespace]
        self.track(on=self.tracking)
        return changes

    def put_back(self, changes: Changes) -> None:
        """These entries count as changed again; their present content will be written."""
        self._dropped |= changes.dropped
        for namespace, marks in changes.marks.items():
            self._merge_marks(self.marks(namespace), marks, namespace)

    @abstractmethod
    def _merge_marks(self, into: Marks, marks: Marks, namespace: Any) -> None: ...

    def freeze(self, changes: Changes) -> list[Rows]:
        """Rows of the changed entries as they are now, immutable, in the order to apply them."""
        rows = [Rows(DROP, [], list(changes.dropped))] if changes.dropped else []
        deleted: list[tuple[Any, list[Any]]] = []
        parts: list[Rows] = []
        for namespace, marks in changes.marks.items():
            gone, put = self._freeze_marks(marks, namespace)
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
    def _freeze_marks(self, marks: Marks, namespace: Any) -> tuple[list[Any], list[Rows]]:
        """Keys that are gone, and rows of what is there."""

    def _freeze_values(self, rows: Rows) -> None:
        if rows.values is not None:
            rows.values = self.codec.freeze(rows.values)

    def entries(self) -> list[tuple[Any, list[Any]]]:
        """(namespace, keys) of everything: a list of what a full snapshot has to write."""
        return [(namespace, list(space)) for namespace, space in self.spaces.items() if space]

    def freeze_keys(self, keys: list[Any], namespaces: list[Any] | None) -> list[Rows]:
        """PUT rows of these entries; those that are gone by now are left out."""
        if namespaces is None:
            present = self._present(keys, self.root, None)
        else:
            spaces = self.spaces
            there = [
                (key, namespace)
                for key, namespace in zip(keys, namespaces, strict=True)
                if namespace in spaces and key in spaces[namespace]
            ]
            cells = [spaces[namespace][key] for key, namespace in there]
            present = self._rows_of_cells([key for key, _ in there], cells, [namespace for _, namespace in there])
        self._freeze_values(present)
        return [present] if len(present) else []

    def freeze_all(self) -> list[Rows]:
        """PUT rows of everything."""
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

    def _present(self, keys: list[Any], space: Space, namespace: Any) -> Rows:
        cells = list(map(space.get, keys, repeat(ABSENT)))
        if holds_absent(cells):
            there = [(key, cell) for key, cell in zip(keys, cells, strict=True) if cell is not ABSENT]
            keys, cells = [key for key, _ in there], [cell for _, cell in there]
        return self._rows_of_cells(keys, cells, None if namespace is None else [namespace] * len(keys))

    @abstractmethod
    def _rows_of_cells(self, keys: list[Any], cells: list[Any], namespaces: list[Any] | None) -> Rows:
        """PUT rows of whole cells."""

    def apply(self, rows: Rows) -> None:
        """Restore: make the changes without marking them."""
        if rows.op == DROP:
            for namespace in rows.namespaces or ():
                if namespace is None:
                    self.root.clear()
                else:
                    self.spaces.pop(namespace, None)
        elif rows.op == DELETE:
            for key, namespace in zip(rows.keys, rows.namespaces or repeat(None), strict=False):
                space = self.spaces.get(namespace)
                if space is not None:
                    space.pop(key, None)
                    if not space and namespace is not None:
                        del self.spaces[namespace]
        else:
            self._apply(rows)

    def drop_within(self, namespace: Any, groups: KeyGroupRange, max_parallelism: int) -> None:
        """Restore: drop what a namespace holds of these key groups."""
        keys = list(self.spaces.get(namespace, ()))
        of_key = keys_key_groups(self.key_group_keys(keys), max_parallelism)
        inside = ((of_key >= groups.start) & (of_key <= groups.end)).nonzero()[0].tolist()
        for index in inside:
            del self.spaces[namespace][keys[index]]
        if inside and namespace is not None and not self.spaces[namespace]:
            del self.spaces[namespace]

    @abstractmethod
    def _apply(self, rows: Rows) -> None: ...


def _mark_nothing(key: Any, mark: Any) -> None:
    """Changes are not tracked."""


def holds_absent(cells: list[Any]) -> bool:
    """By identity: `in` alone would call a value's own `==`, which may be anything."""
    return id(ABSENT) in map(id, cells)


def joined(parts: list[Rows]) -> Rows:
    """Rows of one operation as one; namespaces are kept as None where all are None."""
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


class ValueTable(Table):
    """Values; also of reducing and aggregating state."""

    layout = "value"

    def __init__(self, name: str, codec: Codec, map_keys: KeyCodec | None = None) -> None:
        super().__init__(name, codec, map_keys)
        self._touched: dict[Any, set[Any]] = {}

    def mark_removed(self, key: Any, namespace: Any) -> None:
        self.marks(namespace)[key] = ABSENT

    def touch(self, keys: Iterable[Any], namespace: Any) -> None:
        """These entries changed behind the table's back. In a large table the values are noted now, while they are in
        the processor's cache; in a small one the keys suffice."""
        if not self.tracking:
            return
        space = self.spaces.get(namespace)
        if space is not None and len(space) > LARGE:
            keys = list(keys)
            self.marks(namespace).update(zip(keys, map(space.get, keys, repeat(ABSENT)), strict=True))
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

    def change_count(self) -> int:
        return super().change_count() + sum(map(len, self._touched.values()))

    def take_changes(self) -> Changes:
        for namespace, touched in self._touched.items():
            space = self.spaces.get(namespace, {})
            self.marks(namespace).update(zip(touched, map(space.get, touched, repeat(ABSENT)), strict=True))
        self._touched.clear()
        return super().take_changes()

    def _merge_marks(self, into: Marks, marks: Marks, namespace: Any) -> None:
        space = self.spaces.get(namespace, {})
        into.update(zip(marks, map(space.get, marks, repeat(ABSENT)), strict=True))

    def _freeze_marks(self, marks: Marks, namespace: Any) -> tuple[list[Any], list[Rows]]:
        keys, cells = list(marks), list(marks.values())
        gone: list[Any] = []
        if holds_absent(cells):
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


class ListTable(Table):
    """Lists. A mark is the position from which elements are new; 0: the whole list is. The first mark of an interval
    stays, so `mark_root` sets only what is not there."""

    layout = "list"

    def _root_mark(self) -> Callable[[Any, Any], Any]:
        return self._root_marks.setdefault

    def mark_removed(self, key: Any, namespace: Any) -> None:
        self.marks(namespace)[key] = 0

    def _merge_marks(self, into: Marks, marks: Marks, namespace: Any) -> None:
        for key, position in marks.items():
            into[key] = min(position, into.get(key, position))

    def _freeze_marks(self, marks: Marks, namespace: Any) -> tuple[list[Any], list[Rows]]:
        space = self.spaces.get(namespace, {})
        gone = [key for key in marks if key not in space]
        whole = [key for key, position in marks.items() if not position and key in space]
        grown = [key for key, position in marks.items() if position and key in space]
        rows = []
        if whole:
            rows.append(self._present(whole, space, namespace))
        if grown:
            tails = [space[key][marks[key] :] for key in grown]
            rows.append(
                Rows(
                    APPEND,
                    grown,
                    None if namespace is None else [namespace] * len(grown),
                    positions=[marks[key] for key in grown],
                    counts=list(map(len, tails)),
                    values=list(chain.from_iterable(tails)),
                )
            )
        return gone, rows

    def _rows_of_cells(self, keys: list[Any], cells: list[Any], namespaces: list[Any] | None) -> Rows:
        return Rows(PUT, keys, namespaces, counts=list(map(len, cells)), values=list(chain.from_iterable(cells)))

    def _apply(self, rows: Rows) -> None:
        values, offset = rows.values or [], 0
        positions = repeat(0) if rows.op == PUT else rows.positions or []
        namespaces = rows.namespaces or repeat(None)
        for key, namespace, position, count in zip(rows.keys, namespaces, positions, rows.counts or [], strict=False):
            cell = self.space(namespace).setdefault(key, [])
            cell[position:] = values[offset : offset + count]
            offset += count


class MapTable(Table):
    """Maps. A mark is the set of changed map keys; None: the map was cleared, and everything in it is new."""

    layout = "map"

    def mark_removed(self, key: Any, namespace: Any) -> None:
        self.marks(namespace)[key] = None

    def _merge_marks(self, into: Marks, marks: Marks, namespace: Any) -> None:
        for key, changed in marks.items():
            if changed is None or (key in into and into[key] is None):
                into[key] = None
            else:
                into[key] = changed | into.get(key, set())

    def _freeze_marks(self, marks: Marks, namespace: Any) -> tuple[list[Any], list[Rows]]:
        space = self.spaces.get(namespace, {})
        gone = [key for key, changed in marks.items() if changed is None or key not in space]
        put: list[tuple[Any, dict[Any, Any]]] = []
        removed: list[tuple[Any, list[Any]]] = []
        for key, changed in marks.items():
            cell = space.get(key)
            if cell is None:
                continue
            if changed is None:
                put.append((key, cell))
                continue
            new = {map_key: cell[map_key] for map_key in changed if map_key in cell}
            if new:
                put.append((key, new))
            if len(new) < len(changed):
                removed.append((key, [map_key for map_key in changed if map_key not in cell]))
        rows = []
        if put:
            keys = [key for key, _ in put]
            namespaces = None if namespace is None else [namespace] * len(keys)
            rows.append(self._rows_of_cells(keys, [cell for _, cell in put], namespaces))
        if removed:
            rows.append(
                Rows(
                    REMOVE,
                    [key for key, _ in removed],
                    None if namespace is None else [namespace] * len(removed),
                    counts=[len(map_keys) for _, map_keys in removed],
                    map_keys=[map_key for _, map_keys in removed for map_key in map_keys],
                )
            )
        return gone, rows

    def _rows_of_cells(self, keys: list[Any], cells: list[Any], namespaces: list[Any] | None) -> Rows:
        return Rows(
            PUT,
            keys,
            namespaces,
            counts=list(map(len, cells)),
            map_keys=list(chain.from_iterable(cells)),
            values=list(chain.from_iterable(cell.values() for cell in cells)),
        )

    def remove_entries(self, key: Any, namespace: Any, map_keys: Iterable[Any]) -> None:
        """Remove some, not all, entries of a map that is there."""
        cell = self.spaces[namespace][key]
        marks = self.marks(namespace)
        changed = marks.setdefault(key, set())
        for map_key in map_keys:
            if cell.pop(map_key, ABSENT) is not ABSENT and changed is not None:
                changed.add(map_key)

    def _apply(self, rows: Rows) -> None:
        map_keys, offset = rows.map_keys or [], 0
        values = rows.values or []
        namespaces = rows.namespaces or repeat(None)
        for key, namespace, count in zip(rows.keys, namespaces, rows.counts or [], strict=False):
            cut = slice(offset, offset + count)
            offset += count
            if rows.op == PUT:
                self.space(namespace).setdefault(key, {}).update(zip(map_keys[cut], values[cut], strict=True))
            else:
                self._remove_entries(key, namespace, map_keys[cut])

    def _remove_entries(self, key: Any, namespace: Any, map_keys: list[Any]) -> None:
        space = self.spaces.get(namespace)
        cell = None if space is None else space.get(key)
        if space is None or cell is None:
            return
        for map_key in map_keys:
            cell.pop(map_key, None)
        if not cell:
            del space[key]
            if not space and namespace is not None:
                del self.spaces[namespace]
