"""The definition of a table, and the check that a job's fields fit it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.common.errors import InvalidJob


@dataclass(frozen=True)
class ColumnDefinition:
    name: str
    type: Any
    """Type of the column, as the driver describes it."""
    is_required: bool
    """Whether the column is NOT NULL and has no default."""
    is_generated: bool
    sql_type: str = ""
    """Name of the type in SQL, for casts. Empty if the connector needs no casts."""

    @property
    def shown_type(self) -> str:
        """Return the type for errors."""
        return str(self.type)


@dataclass(frozen=True)
class TableDefinition:
    """The definition of a table on the server."""

    sql: str
    """Quoted name."""
    columns: Mapping[str, ColumnDefinition]
    unique: tuple[frozenset[str], ...]
    """Sets of columns that are unique and never null."""


def check_columns(
    schema: pa.Schema, table: TableDefinition, fits: Callable[[pa.DataType, Any], bool] | None = None
) -> None:
    """Check that the job's fields fit the table.

    Args:
        fits: a function that takes the type of a field and the type of its column. It returns whether the column can store all values of
            the field. None means that the job only reads.

    Raises:
        InvalidJob: some fields do not fit. The error names all of them.
    """
    problems = []
    for field in schema:
        column = table.columns.get(field.name)
        if column is None:
            problems.append(f"no column {field.name!r}")
        elif fits is not None and column.is_generated:
            problems.append(f"the server generates column {field.name!r}")
        elif fits is not None and not fits(field.type, column.type):
            problems.append(
                f"column {field.name!r} has the type {column.shown_type}, but the job's field has {field.type}"
            )
    if fits is not None:
        unset = [name for name, column in table.columns.items() if column.is_required and name not in schema.names]
        problems += [f"column {name!r} is required, but the job has no such field" for name in unset]
    if problems:
        raise InvalidJob(
            f"the fields {', '.join(f'{f.name}: {f.type}' for f in schema)} do not fit table {table.sql}: {'; '.join(problems)}",
            remedy="declare the fields that the table has (a pyarrow.Schema gives exact types), or alter the table",
        )
