"""The values of a record, in the order of the columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.common.type_info.declared_fields import DeclaredFields, FieldMismatch
from penstock.common.types import Row, RowKind
from penstock.connectors.cassandra.scalars import Misfit

Values = Callable[[Any], Sequence[Any]]


def values_of(names: Sequence[str]) -> Values:
    """Return a function that returns a record's values in the order of the columns, by the rule of `DeclaredFields`.

    A `Row` without any of the columns' names is read by position, as in Flink, because a query names columns and not
    fields.

    >>> values_of(["id", "name"])({"name": "Ann", "id": 7})
    [7, 'Ann']
    """
    fields, fields_of_rows = DeclaredFields(names), DeclaredFields(names, is_positional=True)

    def values(record: Any) -> Sequence[Any]:
        is_row = isinstance(record, Row)
        if is_row and (kind := record.get_row_kind()) not in (RowKind.INSERT, RowKind.UPDATE_AFTER):
            raise Misfit(f"it is a changelog row of kind {kind.name}, but the sink only inserts rows")
        try:
            return (fields_of_rows if is_row else fields).values(record)
        except FieldMismatch as error:
            raise Misfit(str(error)) from None

    return values
