"""Implementation of `state.peek.stored` for a table in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.state.hashmap.collection_tables import ListTable, MapTable
from penstock.state.hashmap.tables import ABSENT
from penstock.state.peek.stored import Peeked, bounded, is_visible, typed_key, window_state_error

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.state.encoding.keys import KeyCodec
    from penstock.state.hashmap.tables import CellTable
    from penstock.state.registry import Registration


def peek_table(
    table: CellTable, registration: Registration, keys: KeyCodec, key_schema: dict[str, Any], key: Any
) -> Peeked:
    """Return the content of a builtin key.

    Raises:
        NotPeekable: the content is too large, or the state belongs to windows.
    """
    if len(table.spaces) > 1:
        raise window_state_error()
    typed = typed_key(keys, key)
    cell = ABSENT if typed is None else table.root.get(typed.key, ABSENT)
    if cell is ABSENT:
        other = next(iter(table.root), ABSENT)
        sample = None if other is ABSENT else keys.encode(other)
        return Peeked(registration.info, key_schema, [], sample=sample)
    lifetime = registration.lifetime
    map_keys = registration.map_keys
    items, encoded = bounded(
        _items(table, cell),
        registration.codec.encode,
        None if map_keys is None else map_keys.encode,
        None if lifetime is None else lambda cell: is_visible(cell[0], lifetime),
    )
    return Peeked(registration.info, key_schema, items, encoded)


def _items(table: CellTable, cell: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(table, MapTable):
        return cell.items()  # type: ignore[no-any-return]
    return ((None, item) for item in (cell if isinstance(table, ListTable) else (cell,)))
