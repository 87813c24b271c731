"""Conversion of a table's values, which the log contains as text, to records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.common.errors import SourceError
from penstock.connectors.formats.bulk import columns_of_read
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
"""Arrow types of columns that the job does not declare. Columns of other types become text in Postgres's format."""


class CapturedTable(NamedTuple):
    """The definition of a table at the first start of the source. Splits contain this definition."""

    name: str
    """The name that the job uses."""
    key: tuple[str, ...]
    """Columns that identify a row."""
    has_integer_key: bool
    columns: tuple[tuple[str, int], ...]
    """Names and types (OIDs)."""

    @classmethod
    def of(cls, stored: Sequence[Any]) -> CapturedTable:
        name, key, has_integer_key, columns = stored
        return cls(name, tuple(key), has_integer_key, tuple((column, oid) for column, oid in columns))


class TableValues:
    """Converter of a table's values to records and keys.

    Args:
        columns: the columns of the values, in their order.
        shape: the fields of the records; None means all columns, as Rows.
        follows: whether columns may be added or removed. Otherwise such a change is an error.

    Raises:
        SourceError: the columns differ from those at the first start of the source.
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
        """Return the key of a row.

        Raises:
            SourceError: a column of the key no longer exists.
        """
        if self._key is None:
            raise SourceError(
                f"table {self.table.name!r} has lost a column of its key {', '.join(self.table.key)}, "
                "so changes cannot be matched to the rows that were read",
                remedy="start the job without the state of this source",
            )
        if self.table.has_integer_key:
            return int(values[self._key[0]])
        return [values[place].decode() for place in self._key]

    def filled(self, old: Values, new: Values, *, whole: bool) -> Values:
        """Return `new`, with omitted values taken from `old`. `old` has all values if `whole` is set, otherwise only
        the values of the key."""
        if UNCHANGED not in new:
            return new
        known = range(len(new)) if whole else self._key or ()
        return [old[n] if value is UNCHANGED and n in known else value for n, value in enumerate(new)]

    def unchanged_in(self, values: Values) -> tuple[str, ...]:
        """Return the names of fields whose values the log omits."""
        if UNCHANGED not in values:
            return ()
        return tuple(
            name
            for name, place in zip(self.shape.names, self._fields, strict=True)
            if place is not None and values[place] is UNCHANGED
        )

    def load(self, values: Values) -> tuple[Any, ...]:
        """Return the fields in the order of the shape, with None for values that the log omits.

        Raises:
            SourceError: a value does not have the field's type.
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
            f"column {field.name!r} of table {self.table.name!r}: {value[:100].decode(errors='replace')!r} is not a valid {field.type}: {error}",
            remedy=f"declare the column with a type that has all its values; str accepts every value as text ({{{field.name!r}: str}})",
        )

    def records(self, loaded: list[tuple[Any, ...]]) -> list[Any]:
        return self.shape.maker(columns_of_read(loaded, self.shape)) if loaded else []


def type_name(oid: int) -> str:
    """Return the name of a built-in type of Postgres, or "text" for other types."""
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
    """Return the function that converts text to a value of the field's type."""
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
        if info is None or info.delimiter == ",":  # the delimiter of arrays of all types except box
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
            problems.append(f"column {name!r} was removed")
        elif name not in was:
            problems.append(f"column {name!r} ({type_name(now[name])}) was added")
        elif was[name] != now[name] and (wanted is None or not fits(wanted[name], type_name(now[name]))):
            problems.append(f"column {name!r} changed from {type_name(was[name])} to {type_name(now[name])}")
    if problems:
        raise SourceError(
            f"the schema of table {table.name!r} has changed since the first start of this source: {'; '.join(problems)}",
            remedy="restart from the job's newest checkpoint with set_schema_changes('follow') or with fields that fit. 'follow' makes removed "
            "fields None, and rows without declared fields have the current columns",
        )
