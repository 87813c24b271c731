"""A table's values as the log writes them (text), and the records that a program wants of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.common.errors import SourceError
from penstock.connectors.formats.bulk import columns_of
from penstock.connectors.formats.shape import RecordShape
from penstock.connectors.postgres.cdc.messages import UNCHANGED, Values
from penstock.connectors.postgres.client import package
from penstock.connectors.postgres.fitting import fits

_ARROW: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int2": pa.int16(),
    "int4": pa.int32(),
    "int8": pa.int64(),
    "oid": pa.int64(),
    "float4": pa.float32(),
    "float8": pa.float64(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us"),
}
"""What a column is read as that nobody has declared; others are text, as Postgres writes it."""


class CapturedTable(NamedTuple):
    """What the splits say of a table, as it was when the source first began.

    `name`: as the program names it. `key`: columns by which rows are found. `columns`: names and types (OIDs).
    """

    name: str
    key: tuple[str, ...]
    has_integer_key: bool
    columns: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, told: Sequence[Any]) -> CapturedTable:
        name, key, has_integer_key, columns = told
        return cls(name, tuple(key), has_integer_key, tuple((column, oid) for column, oid in columns))


class TableValues:
    """Makes records and keys of a table's values.

    Args:
        columns: of the values, in their order.
        shape: None: all columns, as Rows.
        follows: columns may come and go; else that is an error.

    Raises:
        SourceError: the columns are not what they were when the source began.
    """

    def __init__(
        self,
        table: CapturedTable,
        columns: Sequence[tuple[str, int]],
        shape: RecordShape | None,
        *,
        form: str | None,
        follows: bool,
    ) -> None:
        self.table = table
        if not follows:
            _check_unchanged(table, columns, shape)
        if shape is None:
            schema = pa.schema([pa.field(name, arrow_of(oid)) for name, oid in columns])
            shape = RecordShape.of(schema, form or "row")
        self.shape = shape
        places = {name: index for index, (name, _) in enumerate(columns)}
        self._fields = [places.get(name) for name in shape.names]
        self._loads = [
            None if place is None else loader(field, columns[place][1])
            for field, place in zip(shape.schema, self._fields, strict=True)
        ]
        self._key = [places[name] for name in table.key] if all(name in places for name in table.key) else None

    def key_of(self, values: Values) -> Any:
        """
        Raises:
            SourceError: a column of the key has gone.
        """
        if self._key is None:
            raise SourceError(
                f"table {self.table.name!r} has lost a column of its key {', '.join(self.table.key)}",
                remedy="rows that were read cannot be told any more from their changes: start without this source's state",
            )
        if self.table.has_integer_key:
            return int(values[self._key[0]])
        return [values[place].decode() for place in self._key]

    def filled(self, old: Values, new: Values, *, whole: bool) -> Values:
        """`new` with what the log has only in the old image: the key's columns, or all of them."""
        if UNCHANGED not in new:
            return new
        known = range(len(new)) if whole else self._key or ()
        return [old[n] if value is UNCHANGED and n in known else value for n, value in enumerate(new)]

    def unchanged_in(self, values: Values) -> tuple[str, ...]:
        """Fields whose value the log does not have."""
        if UNCHANGED not in values:
            return ()
        return tuple(
            name
            for name, place in zip(self.shape.names, self._fields, strict=True)
            if place is not None and values[place] is UNCHANGED
        )

    def load(self, values: Values) -> tuple[Any, ...]:
        """The fields in the order of the shape; None for what the log does not have.

        Raises:
            SourceError: a value is none of the field's type.
        """
        loaded: list[Any] = []
        for place, load in zip(self._fields, self._loads, strict=True):
            value = None if place is None else values[place]
            try:
                loaded.append(None if value is None or value is UNCHANGED or load is None else load(value))
            except (ValueError, package().Error) as error:
                raise self._misfit(self.shape.schema.field(len(loaded)), value, error) from error
        return tuple(loaded)

    def _misfit(self, field: pa.Field, value: Any, error: Exception) -> SourceError:
        return SourceError(
            f"column {field.name!r} of table {self.table.name!r}: {value[:100].decode(errors='replace')!r} is no {field.type}: {error}",
            remedy=f"declare the column, as a type that has all its values: str has what the server writes ({{{field.name!r}: str}})",
        )

    def records(self, loaded: list[tuple[Any, ...]]) -> list[Any]:
        return self.shape.maker(columns_of(loaded, self.shape)) if loaded else []


def type_name(oid: int) -> str:
    """Postgres's name of a type that comes with it; "text" for others."""
    found = package("psycopg").adapters.types.get(oid)
    if found is None:
        return "text"
    return f"_{found.name}" if found.array_oid == oid else str(found.name)


def arrow_of(oid: int) -> pa.DataType:
    name = type_name(oid)
    if name.startswith("_"):
        return pa.list_(_ARROW.get(name[1:], pa.string()))
    return _ARROW.get(name, pa.string())


def loader(field: pa.Field, oid: int) -> Callable[[bytes], Any]:
    """What makes a value of its text, of the type that the program wants."""
    kind = field.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return bytes.decode
    if pa.types.is_floating(kind):
        return float
    if pa.types.is_integer(kind):
        return int
    adapt, formats = package("psycopg.adapt"), package("psycopg.pq").Format
    load: Callable[[bytes], Any] = adapt.Transformer().get_loader(oid, formats.TEXT).load
    if pa.types.is_list(kind) and pa.types.is_string(kind.value_type):
        types = package("psycopg").adapters.types
        info = types.get(oid)
        if info is None or info.delimiter == ",":  # that of all but box
            load = adapt.Transformer().get_loader(types["text"].array_oid, formats.TEXT).load
    return _of_one_dimension(load) if pa.types.is_list(kind) else load


def _of_one_dimension(load: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def items(text: bytes) -> Any:
        found = load(text)
        if any(isinstance(item, list) for item in found):
            raise ValueError("an array of more than one dimension")
        return found

    return items


def _check_unchanged(table: CapturedTable, columns: Sequence[tuple[str, int]], shape: RecordShape | None) -> None:
    was, now = dict(table.columns), dict(columns)
    wanted = None if shape is None else {field.name: field.type for field in shape.schema}
    problems = []
    for name in [*was, *(name for name in now if name not in was)]:
        if wanted is not None and name not in wanted:
            continue
        if name not in now:
            problems.append(f"column {name!r} has gone")
        elif name not in was:
            problems.append(f"column {name!r} ({type_name(now[name])}) has come")
        elif was[name] != now[name] and (wanted is None or not fits(wanted[name], type_name(now[name]))):
            problems.append(f"column {name!r} was {type_name(was[name])} and is {type_name(now[name])}")
    if problems:
        raise SourceError(
            f"table {table.name!r} has another schema than when its changes were first read: {'; '.join(problems)}",
            remedy="go on from this job's newest checkpoint with set_schema_changes('follow') (fields that have gone are None, and without "
            "declared fields rows have the columns that there are), or with fields that fit",
        )
