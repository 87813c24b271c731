"""Lookups that enrich each value of a stream with rows of a table."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Unpack

from penstock.common.errors import PlatformError, SourceError
from penstock.connectors.core.lookup import Lookup, LookupOptions
from penstock.connectors.formats.bulk import columns_of_read
from penstock.connectors.formats.shape import Declaration, RecordShape
from penstock.connectors.tables.columns import TableDefinition
from penstock.connectors.tables.server import TableServer


class TableLookupOptions(LookupOptions, total=False):
    """Keyword arguments of the lookups of all databases."""

    record: str | None
    """Another type for the same fields: "tuple", "dict" or "row"."""


class TableLookup(Lookup):
    """Base class of the lookups of all databases.

    Args:
        table: "table" or "schema.table".
        fields: the columns to read, and the type of the rows (see `formats.shape`).
        column: the column to search. An index on it makes lookups fast.
        key: a function from a value of the stream to its key. None means that there is no query for the value.
        join: a function from a value and its rows (in any order) to a list of results.
    """

    def __init__(
        self,
        server: TableServer,
        table: str,
        fields: Declaration,
        *,
        column: str,
        key: Callable[[Any], Any],
        join: Callable[[Any, list[Any]], list[Any]],
        record: str | None = None,
        **options: Unpack[LookupOptions],
    ) -> None:
        super().__init__(key, join, **options)
        self.server = server
        self.table = table
        self.shape = RecordShape.of(fields, record)
        self.column = column

    @abstractmethod
    def _definition(self, connection: Any) -> TableDefinition:
        """Return the table's definition, after checks of its columns and of the user's rights."""

    @abstractmethod
    def _prepare_query(self, connection: Any, table: TableDefinition) -> None:
        """Prepare the query for the rows of some keys."""

    def open(self, runtime_context: Any) -> None:
        """Check the table and prepare the statement.

        Raises:
            InvalidJob: the table does not have the fields' columns.
            SourceError: the server does not respond or refuses the user, or the table or a right is missing.
        """
        with self.server.session(SourceError) as connection:
            table = self._definition(connection)
            if self.column not in table.columns:
                raise SourceError(
                    f"{self.server.shown}: {table.sql} has no column {self.column!r}",
                    remedy=f"name one of {', '.join(table.columns)}",
                )
            self._prepare_query(connection, table)
        self._prepare()

    @property
    def shown(self) -> str:
        return self.server.shown

    def _by_key(self, keys: Iterable[Any], rows: Sequence[Sequence[Any]]) -> dict[str, list[Any]]:
        """Return the records of each key.

        Args:
            keys: the key of each row.
            rows: values of the fields.
        """
        found: dict[str, list[Any]] = {}
        if rows:
            for key, record in zip(keys, self.shape.maker(columns_of_read(rows, self.shape)), strict=True):
                found.setdefault(str(key), []).append(record)
        return found

    def _no_result(self) -> list[Any]:
        return []

    def _explained(self, error: Exception) -> tuple[PlatformError | None, bool]:
        if isinstance(error, SourceError):
            cause = error.__cause__
            return error, isinstance(cause, Exception) and bool(self.server.is_lost(cause))
        lost = self.server.is_lost(error)
        if lost is None:
            return None, False
        return self.server.explained(SourceError, f"table {self.table!r} cannot be read", error), lost
