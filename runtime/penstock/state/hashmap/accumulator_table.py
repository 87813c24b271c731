"""Accumulators as objects in a dictionary, or as columns while an operator requests columns.

A table never has both forms. It becomes columns when `columns` is called for many keys, if every key and accumulator can be stored in
columns. It becomes objects again at the first use of `root` or `spaces`. Records that did not arrive as columns, or a number beyond 64
bits, cause such a use. Both conversions take time for every key. So after a conversion to objects, the table waits. Requests for columns
must first cover several times its number of keys. The wait grows each time.

Changes that were recorded for a snapshot are converted, too. A changed row becomes a mark of its key, or a mark becomes a changed row.
Snapshots and rounds (`segment_chain`) refer to keys and not to rows, so a conversion does not affect them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.state.encoding.packed_keys import PackedKeys
from penstock.state.hashmap.accumulator_columns import AccumulatorColumns, Places
from penstock.state.hashmap.table import Changes
from penstock.state.hashmap.tables import ABSENT, ValueTable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from penstock.state.encoding.codec import Codec
    from penstock.state.encoding.keys import KeyCodec
    from penstock.state.hashmap.table import Space
    from penstock.state.snapshot_format.column_rows import AccumulatorShape
    from penstock.state.snapshot_format.rows import FrozenRows

_FEW = 256
"""Number of keys per request below which a dictionary is faster."""
_PATIENCE = 4
"""Factor of the wait before a table becomes columns again. Requests must first cover this many times the table's number of keys."""


class ColumnChanges(Changes):
    """Changes of a table. `changed`: keys that changed while the table was columns. The rows of `changed` are valid only until the next
    change of the table.
    """

    __slots__ = ("changed",)

    def __init__(self, others: Changes, changed: Places) -> None:
        super().__init__(others.marks, others.dropped, others.gaps)
        self.changed = changed


class AccumulatorTable(ValueTable):
    """The accumulators of one state. The module's docstring describes the table."""

    def __init__(self, name: str, codec: Codec, map_keys: KeyCodec | None = None) -> None:
        self._columns: AccumulatorColumns | None = None
        self._wait: float = 0
        self._patience = 0
        super().__init__(name, codec, map_keys)

    @property
    def root(self) -> Space:
        self._become_objects()
        return self._root

    @root.setter
    def root(self, root: Space) -> None:
        self._root = root

    @property
    def spaces(self) -> dict[Any, Space]:
        self._become_objects()
        return self._spaces

    @spaces.setter
    def spaces(self, spaces: dict[Any, Space]) -> None:
        self._spaces = spaces

    # --- objects and columns --------------------------------------------------------------------------------------

    def columns(self, shape: AccumulatorShape, count: int) -> AccumulatorColumns | None:
        """Return the accumulators of the namespace None as columns, valid until a use of objects. None means that the accumulators are
        still objects.

        Args:
            count: number of keys of the request.
        """
        if self._columns is None or self._columns.shape != shape:
            self._become_objects()
            self._wait -= count
            if self._wait <= 0 and count >= _FEW:
                self._become_columns(shape)
        return self._columns

    def keep_objects(self) -> None:
        """Keep the accumulators as objects permanently, because a caller holds a reference to the dictionary."""
        self._become_objects()
        self._wait = math.inf

    def _become_columns(self, shape: AccumulatorShape) -> None:
        columns = AccumulatorColumns(shape)
        if len(self._spaces) > 1 or (self._root and not _fill(columns, self._root)):
            self._raise_patience()
            return
        changed = [*self._root_marks, *self._touched.pop(None, ())]
        self._root.clear()
        self._root_marks.clear()
        self._columns = columns
        self.are_columns = True
        self._mark_present(changed, None)

    def _become_objects(self) -> None:
        columns = self._columns
        if columns is None:
            return
        self._columns = None
        self.are_columns = False
        self._root.update(zip(columns.keys(), columns.accumulators(), strict=True))
        if self.tracking:
            self._mark_present(columns.take_changed().keys.to_list(), None)
        self._raise_patience()

    def _raise_patience(self) -> None:
        self._patience = max(2 * self._patience, _PATIENCE * len(self._root))
        self._wait = max(self._wait, self._patience)

    # --- changes --------------------------------------------------------------------------------------------------

    def track(self, *, on: bool) -> None:
        super().track(on=on)
        if self._columns is not None:
            self._columns.take_changed()

    def change_count(self) -> int:
        return super().change_count() + (0 if self._columns is None else self._columns.change_count())

    def take_changes(self) -> Changes:
        if self._columns is None:
            return super().take_changes()
        changed = self._columns.take_changed()
        return ColumnChanges(super().take_changes(), changed)

    def restore_changes(self, changes: Changes) -> None:
        super().restore_changes(changes)
        if isinstance(changes, ColumnChanges):
            self._mark_present(changes.changed.keys, None)

    def _mark_present(self, keys: Collection[Any], namespace: Any) -> None:
        if not keys:
            return
        places = self._places(keys) if namespace is None else None
        if places is None or self._columns is None:
            super()._mark_present(keys, namespace)
            return
        self._columns.mark(places.rows[places.rows >= 0])
        gone = places.keys.take(np.flatnonzero(places.rows < 0))
        if len(gone):
            self.marks(None).update(dict.fromkeys(gone, ABSENT))
            self._gaps.add(None)

    def _places(self, keys: Collection[Any]) -> Places | None:
        """Return the places of these keys in the columns. None means that the accumulators are objects, or became objects in this call."""
        if self._columns is None:
            return None
        places = self._columns.find(keys if isinstance(keys, PackedKeys) else PackedKeys.of_list(list(keys)))
        if places is None:
            self._become_objects()
        return places

    # --- snapshots ------------------------------------------------------------------------------------------------

    def freeze(self, changes: Changes) -> Sequence[FrozenRows]:
        rows = super().freeze(changes)
        if isinstance(changes, ColumnChanges) and self._columns is not None and changes.changed.keys:
            return [*rows, self._columns.frozen(changes.changed)]
        return rows

    def freeze_keys(self, keys: Sequence[Any], namespaces: list[Any] | None) -> Sequence[FrozenRows]:
        places = self._places(keys) if keys and namespaces is None else None
        if places is None or self._columns is None:
            return super().freeze_keys(list(keys), namespaces)
        present = np.flatnonzero(places.rows >= 0)
        return [self._columns.frozen(Places(places.keys.take(present), places.rows[present]))]

    def freeze_all(self) -> Sequence[FrozenRows]:
        return super().freeze_all() if self._columns is None else [self._columns.frozen_all()]

    def entries(self) -> list[tuple[Any, Sequence[Any]]]:
        return super().entries() if self._columns is None else [(None, self._columns.keys())]

    def namespaces(self) -> Iterator[Any]:
        return super().namespaces() if self._columns is None else iter([None] if len(self._columns) else [])

    def clear(self) -> None:
        self._columns = None
        super().clear()

    def __len__(self) -> int:
        return super().__len__() if self._columns is None else len(self._columns)


def _fill(columns: AccumulatorColumns, root: Space) -> bool:
    """Store the accumulators in the columns. Return False if not all of them fit."""
    places = columns.find(PackedKeys.of_list(list(root)))
    values = columns.shape.columns(list(root.values()))
    if places is None or values is None:
        return False
    columns.write(places, values)
    columns.take_changed()
    return True
