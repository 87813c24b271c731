"""`Table`: a query that has not run yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.table.table_pipeline import TablePipeline

if TYPE_CHECKING:
    from penstock.table.session import Session
    from penstock.table.table_result import TableResult


class Table:
    """A query of a `TableEnvironment`. In the text of another query, `{table}` stands for it."""

    def __init__(self, environment: Session, query: str) -> None:
        self._environment = environment
        self._query = query
        self._name: str | None = None

    def execute(self) -> TableResult:
        """Return the result of the query."""
        return self._environment.execute_sql(self._query)

    def execute_insert(self, table_path: str, overwrite: bool = False) -> TableResult:
        """Start a job that writes the rows of the query into a table.

        Raises:
            SqlError: the table does not exist, or its columns do not fit.
        """
        return self._environment.execute_sql(self._insert(table_path, overwrite=overwrite))

    def insert_into(self, table_path: str, overwrite: bool = False) -> TablePipeline:
        """Return the pipeline that writes the rows of the query into a table. Nothing runs yet."""
        return TablePipeline(self._environment, self._insert(table_path, overwrite=overwrite))

    def _insert(self, table_path: str, *, overwrite: bool = False) -> str:
        return f"INSERT {'OVERWRITE' if overwrite else 'INTO'} {table_path} {self._query}"

    def explain(self) -> str:
        """Return the syntax tree and the optimized plan of the query."""
        return self._environment.explain_sql(self._query)

    def get_column_names(self) -> list[str]:
        return self._environment._column_names(self._query)

    def __str__(self) -> str:
        """Return a name for this table in SQL. The first call creates a temporary view."""
        if self._name is None:
            self._name = self._environment._view_of(self._query)
        return self._name
