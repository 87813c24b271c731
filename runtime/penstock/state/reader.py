"""Keyed state of a snapshot as rows, without the program that wrote it.

Values are builtins. A record (dataclass, model, struct, NamedTuple) is a dict of its fields. A value with a text form
in msgpack (naive dates, decimals of declared types) is that text. A key that is a structure is a `StructKey`. Only one
handle is in memory at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from penstock.common.errors import CorruptStateFile, StateFormatUnsupported
from penstock.state.decoding import decoding
from penstock.state.encoding.any_codec import AnyCodec
from penstock.state.encoding.described import described, described_key
from penstock.state.encoding.keys import UNTYPED_KEYS
from penstock.state.encoding.schema import ANY
from penstock.state.hashmap.collection_tables import ListTable, MapTable
from penstock.state.hashmap.reading import apply_block, check_format, handles_for_range
from penstock.state.hashmap.table import Table
from penstock.state.hashmap.tables import ValueTable
from penstock.state.key_groups import KeyGroupRange
from penstock.state.registry import have_same_encoding
from penstock.state.restoring import stored_blocks
from penstock.state.snapshot_format.segment import StateInfo
from penstock.state.timers.timer_table import TIMER_TABLES, TimerTable
from penstock.state.ttl.expiry import TtlCodec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.state.encoding.schema import Schema
    from penstock.state.files import StateFileReader
    from penstock.state.snapshot_format.segment import StoredBlock

__all__ = ["StateRow", "TimerRow", "handles_for_range", "read_state", "read_timers", "states_of"]

_TABLES: dict[str, type[Table]] = {"value": ValueTable, "list": ListTable, "map": MapTable}


class StateRow(NamedTuple):
    """The content of one key in one namespace: a value, a list, or a dict.

    `expiry`: time at which the value expires in ms since the epoch. For a list or map, it is the earliest expiry time of the items. None if
    the state has no time-to-live.
    """

    key: Any
    namespace: Any
    value: Any
    expiry: int | None = None


class TimerRow(NamedTuple):
    """A timer. `domain`: `event-time` or `processing-time`; `timestamp`: ms."""

    domain: str
    timestamp: int
    key: Any
    namespace: Any


def states_of(handles: Iterable[dict[str, Any]]) -> dict[str, StateInfo]:
    """Return the states of an operator by name.

    Raises:
        StateFormatUnsupported: this version cannot read the format.
    """
    states: dict[str, StateInfo] = {}
    for handle in handles:
        check_format(handle)
        with decoding("a handle of keyed state"):
            states |= {name: msgspec.convert(info, StateInfo) for name, info in handle["states"].items()}
    return states


def read_state(
    handles: Iterable[dict[str, Any]],
    name: str,
    reader: StateFileReader,
    *,
    named: bool = True,
    within: KeyGroupRange | None = None,
) -> Iterator[StateRow]:
    """Yield the content of a state, including expired values that were not yet removed.

    Args:
        handles: handles of all subtasks of the operator. If only a few key groups are needed, `handles_for_range` selects the handles.
        within: only decode the keys of these key groups. None means all.
        named: whether records stored by position (NamedTuples, array-like structs) become dicts. If False, such records become lists.

    Raises:
        CorruptStateFile: a file is damaged.
        StateFormatUnsupported: another version wrote the state, or the state has dictionaries with records as keys.
    """
    with decoding(f"state {name!r}"):
        yield from _state_rows(handles, name, reader, within, named=named)


def _state_rows(
    handles: Iterable[dict[str, Any]], name: str, reader: StateFileReader, within: KeyGroupRange | None, *, named: bool
) -> Iterator[StateRow]:
    for handle in handles:
        check_format(handle)
        tables: list[tuple[StateInfo, Table]] = []
        groups = within or _range(handle)
        for block in stored_blocks(handle, groups, reader, {name}):
            if block.info.layout == "timer":
                continue
            table = next((table for info, table in tables if have_same_encoding(info, block.info)), None)
            if table is None:
                table = _table(name, block.info)
                tables.append((block.info, table))
            _apply(table, block, handle, groups)
        for info, table in tables:
            yield from _rows(table, info, _key_schema(handle), named=named)


def read_timers(handles: Iterable[dict[str, Any]], reader: StateFileReader) -> Iterator[TimerRow]:
    """Yield the timers of an operator. The timers of each handle are in order of time. It raises the errors of `read_state`."""
    with decoding("the timers"):
        yield from _timer_rows(handles, reader)


def _timer_rows(handles: Iterable[dict[str, Any]], reader: StateFileReader) -> Iterator[TimerRow]:
    for handle in handles:
        check_format(handle)
        tables = {domain: TimerTable(domain) for domain in TIMER_TABLES}
        for block in stored_blocks(handle, _range(handle), reader, TIMER_TABLES):
            if block.info.layout == "timer":
                _apply(tables[block.name], block, handle, _range(handle))
        for domain, table in tables.items():
            for timestamp, key, namespace in table.timers():
                yield TimerRow(domain, timestamp, described_key(key, _key_schema(handle)), namespace)


def _range(handle: dict[str, Any]) -> KeyGroupRange:
    return KeyGroupRange(*handle["key_groups"])


def _key_schema(handle: dict[str, Any]) -> Schema:
    return handle.get("key_schema") or ANY


def _table(name: str, info: StateInfo) -> Table:
    values = AnyCodec(name, "")
    return _TABLES[info.layout](name, TtlCodec(values) if info.ttl else values, UNTYPED_KEYS)


def _apply(table: Table, block: StoredBlock, handle: dict[str, Any], groups: KeyGroupRange) -> None:
    try:
        apply_block(table, block, groups, handle["max_parallelism"], UNTYPED_KEYS)
    except CorruptStateFile as error:
        if not isinstance(error.__cause__, msgspec.DecodeError):
            raise
        raise StateFormatUnsupported(
            f"state {block.name!r} cannot be read without the program's classes: {error.__cause__}; "
            f"its values are described as {block.info.schema}",
            remedy="read the state in a job that declares it",
        ) from error


def _rows(table: Table, info: StateInfo, key_schema: Schema, *, named: bool) -> Iterator[StateRow]:
    map_keys = info.map_key_schema or ANY
    for namespace, space in table.spaces.items():
        for key, cell in space.items():
            stored = _items(table, cell)
            expiry = min((until for until, _ in stored), default=None) if info.ttl else None
            values = [described(item[1] if info.ttl else item, info.schema, named=named) for item in stored]
            value: Any = values
            if isinstance(table, MapTable):
                value = dict(zip((described_key(map_key, map_keys) for map_key in cell), values, strict=True))
            elif isinstance(table, ValueTable):
                value = values[0]
            yield StateRow(described_key(key, key_schema), namespace, value, expiry)


def _items(table: Table, cell: Any) -> list[Any]:
    if isinstance(table, MapTable):
        return list(cell.values())
    return list(cell) if isinstance(table, ListTable) else [cell]
