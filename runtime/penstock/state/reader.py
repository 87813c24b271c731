"""Keyed state of a snapshot as rows, without the program that wrote it.

Values come as builtins: a record (dataclass, model, struct, NamedTuple) as a dict of its fields, everything with a text
form in msgpack (naive dates, decimals of declared types) as that text. One handle is in memory at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from penstock.state.backend import KeyGroupRange
from penstock.state.encoding.any_codec import AnyCodec
from penstock.state.encoding.keys import UNTYPED_KEYS
from penstock.state.encoding.tagged import StructKey
from penstock.state.hashmap.collection_tables import ListTable, MapTable
from penstock.state.hashmap.reading import apply_block, check_format, handles_for_range
from penstock.state.hashmap.table import Table
from penstock.state.hashmap.tables import ValueTable
from penstock.state.restoring import stored_blocks
from penstock.state.snapshot_format.segment import StateInfo
from penstock.state.timers.timer_table import TIMER_TABLES, TimerTable
from penstock.state.ttl.expiry import TtlCodec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.state.backend import StateFileReader
    from penstock.state.encoding.schema import Schema

__all__ = ["StateRow", "TimerRow", "handles_for_range", "read_state", "read_timers", "states_of"]

_TABLES: dict[str, type[Table]] = {"value": ValueTable, "list": ListTable, "map": MapTable}


class StateRow(NamedTuple):
    """The content of one key in one namespace: a value, a list, or a dict. `expiry`: ms since the epoch at which the value
    expires; of a list or map the earliest; None without time-to-live."""

    key: Any
    namespace: Any
    value: Any
    expiry: int | None = None


class TimerRow(NamedTuple):
    """`domain`: `event-time` or `processing-time`; `timestamp`: ms."""

    domain: str
    timestamp: int
    key: Any
    namespace: Any


def states_of(handles: Iterable[dict[str, Any]]) -> dict[str, StateInfo]:
    """The states of an operator by name.

    Raises:
        StateFormatUnsupported.
    """
    states: dict[str, StateInfo] = {}
    for handle in handles:
        check_format(handle)
        states |= {name: msgspec.convert(info, StateInfo) for name, info in handle["states"].items()}
    return states


def read_state(handles: Iterable[dict[str, Any]], name: str, reader: StateFileReader) -> Iterator[StateRow]:
    """What a state holds.

    Args:
        handles: of all subtasks of the operator.

    Raises:
        CorruptStateFile, StateFormatUnsupported.
    """
    for handle in handles:
        table: Table | None = None
        info: StateInfo | None = None
        for block in stored_blocks(handle, _range(handle), reader):
            if block.name != name or block.info.layout == "timer":
                continue
            info = block.info
            if table is None:
                values = AnyCodec(name, "")
                table = _TABLES[info.layout](name, TtlCodec(values) if info.ttl else values, UNTYPED_KEYS)
            apply_block(table, block, _range(handle), handle["max_parallelism"], UNTYPED_KEYS)
        if table is not None and info is not None:
            yield from _rows(table, info)


def read_timers(handles: Iterable[dict[str, Any]], reader: StateFileReader) -> Iterator[TimerRow]:
    """The timers of an operator, per handle in order of time. Raises as `read_state`."""
    for handle in handles:
        tables = {domain: TimerTable(domain) for domain in TIMER_TABLES}
        for block in stored_blocks(handle, _range(handle), reader):
            if block.info.layout == "timer":
                apply_block(tables[block.name], block, _range(handle), handle["max_parallelism"], UNTYPED_KEYS)
        for domain, table in tables.items():
            for timestamp, key, namespace in table.timers():
                yield TimerRow(domain, timestamp, _plain_key(key), namespace)


def _range(handle: dict[str, Any]) -> KeyGroupRange:
    return KeyGroupRange(*handle["key_groups"])


def _rows(table: Table, info: StateInfo) -> Iterator[StateRow]:
    for namespace, space in table.spaces.items():
        for key, cell in space.items():
            expiries: list[int] = []

            def value_of(stored: Any, expiries: list[int] = expiries) -> Any:
                if info.ttl:
                    expiries.append(stored[0])
                    stored = stored[1]
                return with_names(stored, info.schema)

            value: Any
            if isinstance(table, ListTable):
                value = list(map(value_of, cell))
            elif isinstance(table, MapTable):
                value = {_plain_key(map_key): value_of(item) for map_key, item in cell.items()}
            else:
                value = value_of(cell)
            yield StateRow(_plain_key(key), namespace, value, min(expiries, default=None))


def _plain_key(key: Any) -> Any:
    """A structured key as the tuple of its names and values."""
    return tuple(map(_plain_key, key)) if isinstance(key, StructKey) else key


def with_names(value: Any, schema: Schema) -> Any:
    """Records that are stored as arrays, as dicts.

    >>> fields = [{"name": "x", "schema": {"type": "int"}}, {"name": "y", "schema": {"type": "int"}}]
    >>> with_names([1, 2], {"type": "record", "name": "Point", "layout": "array", "fields": fields})
    {'x': 1, 'y': 2}
    """
    kind = schema["type"]
    if kind == "union":
        records = [member for member in schema["of"] if member["type"] == "record"]
        return with_names(value, records[0]) if value is not None and len(records) == 1 else value
    if kind in {"list", "vartuple", "set", "frozenset"} and isinstance(value, list):
        return [with_names(item, schema["of"]) for item in value]
    if kind == "tuple" and isinstance(value, list):
        return tuple(with_names(item, of) for item, of in zip(value, schema["of"], strict=True))
    if kind == "dict" and isinstance(value, dict):
        return {key: with_names(item, schema["value"]) for key, item in value.items()}
    if kind == "record":
        return _record(value, schema)
    return value


def _record(value: Any, schema: Schema) -> Any:
    fields = schema["fields"]
    if isinstance(value, list):
        items = value[1:] if schema.get("tag") is not None else value
        return {field["name"]: with_names(item, field["schema"]) for field, item in zip(fields, items, strict=False)}
    if isinstance(value, dict):
        schemas = {field["name"]: field["schema"] for field in fields}
        return {name: with_names(item, schemas[name]) if name in schemas else item for name, item in value.items()}
    return value
