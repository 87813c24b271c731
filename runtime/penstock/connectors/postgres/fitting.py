"""Checks that the fields of a job and the columns of a table fit together, for writing and for reading."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.common.errors import InvalidJob, SourceError
from penstock.connectors.postgres.client import Server, Table, check_rights, look_up
from penstock.connectors.tables.columns import check_columns


def _signed_bits(kind: pa.DataType) -> float:
    if not pa.types.is_integer(kind):
        return float("inf")
    return int(kind.bit_width) + int(pa.types.is_unsigned_integer(kind))


_FITTING: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (pa.types.is_boolean, ("bool",)),
    (lambda kind: _signed_bits(kind) <= 16, ("int2", "int4", "int8", "numeric")),
    (lambda kind: _signed_bits(kind) <= 32, ("int4", "int8", "numeric")),
    (lambda kind: _signed_bits(kind) <= 64, ("int8", "numeric")),
    (pa.types.is_integer, ("numeric",)),
    (pa.types.is_float32, ("float4", "float8")),
    (pa.types.is_floating, ("float8",)),
    (pa.types.is_decimal, ("numeric",)),
    (pa.types.is_date, ("date", "timestamp")),
    (pa.types.is_timestamp, ("timestamp", "timestamptz")),
    (pa.types.is_time, ("time",)),
    (pa.types.is_binary, ("bytea",)),
    (pa.types.is_large_binary, ("bytea",)),
)
_FROM_TEXT_TOO = ("text", "varchar", "bpchar", "uuid", "json", "jsonb", "name", "inet", "citext")


def check_fields(schema: pa.Schema, table: Table, *, writes: bool) -> None:
    """Check that the job's fields fit the table.

    Raises:
        InvalidJob: some fields do not fit. The error names all of them.
    """
    check_columns(schema, table, fits if writes else None)


def fits(kind: pa.DataType, column: str) -> bool:
    """Return whether a column of this type can store all values of the Arrow type `kind`."""
    for check, fitting in _FITTING:
        if check(kind):
            return column in fitting
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return column.startswith("_") and fits(kind.value_type, column[1:])
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column in _FROM_TEXT_TOO or (not column.startswith("_") and column not in _SIMPLE)
    return column in ("json", "jsonb") and _has_json(kind)


def _has_json(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return _has_json(kind.key_type) and _has_json(kind.item_type)
    if pa.types.is_struct(kind):
        return all(_has_json(field.type) for field in kind)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _has_json(kind.value_type)
    return not any(check(kind) for check in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_duration))


_SIMPLE = {name for _, names in _FITTING for name in names}
_NUMBERS = ("int2", "int4", "int8", "numeric", "float4", "float8")
_READ_FROM: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (pa.types.is_boolean, ("bool",)),
    (pa.types.is_integer, ("int2", "int4", "int8", "numeric")),
    (pa.types.is_floating, (*_NUMBERS, "text", "varchar", "json", "jsonb")),
    (pa.types.is_decimal, ("int2", "int4", "int8", "numeric")),
    (pa.types.is_date, ("date",)),
    (pa.types.is_timestamp, ("timestamp", "timestamptz")),
    (pa.types.is_time, ("time",)),
    (pa.types.is_binary, ("bytea",)),
)


def check_read(schema: pa.Schema, table: Table) -> None:
    """Check that the job's fields can be read from the table.

    Raises:
        InvalidJob: a field has a type to which the values of its column cannot be converted.
    """
    check_fields(schema, table, writes=False)
    known = {*_SIMPLE, *_FROM_TEXT_TOO}
    problems = []
    for field in schema:
        column = table.columns[field.name].type
        fitting = next((names for check, names in _READ_FROM if check(field.type)), None)
        if fitting is not None and column in known and column not in fitting:
            problems.append(f"column {field.name!r} has the type {column}, but the job's field has {field.type}")
    if problems:
        raise InvalidJob(
            f"fields cannot be read from table {table.sql}: {'; '.join(problems)}",
            remedy="declare the types that the columns have; str reads any column as text",
        )


def readable_table(connection: Any, server: Server, name: str, schema: pa.Schema) -> Table:
    """Return the definition of a table that the job reads.

    Raises:
        InvalidJob: the fields cannot be read from the table.
        SourceError: the table or a right is missing.
    """
    table = look_up(connection, server, name, SourceError)
    check_rights(table, ["SELECT"], server, SourceError)
    check_read(schema, table)
    return table
