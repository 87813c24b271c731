"""`Session`: a `TableEnvironment` as its tables and statement sets see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from penstock.table.table_result import TableResult
    from penstock.table.udf import UserDefinedFunctionWrapper


class Session(Protocol):
    """The tables, views and options of a session."""

    def execute_sql(self, stmt: str) -> TableResult: ...

    def explain_sql(self, stmt: str) -> str: ...

    def _schema_of(self, query: str) -> list[tuple[str, str]]:
        """Return the names and types of a query's columns, as SQL text."""

    def _ensure_function(self, name: str, function: UserDefinedFunctionWrapper) -> None:
        """Register a Python function under this name, if it is not registered."""

    def _view_of(self, query: str) -> str:
        """Create a temporary view of a query, and return its name in SQL."""

    def _insert_all(self, statements: list[str]) -> TableResult:
        """Start one job for several INSERT statements."""

    def _option(self, key: str) -> str | None:
        """Return an option of the session, or None if it is not set."""

    def _compile(self, statement: str) -> str:
        """Return the compiled plan of an INSERT statement as JSON."""

    def _compile_all(self, statements: list[str]) -> str:
        """Return one compiled plan for several INSERT statements as JSON."""

    def _execute_compiled(self, plan: str) -> TableResult:
        """Start the job of a compiled plan."""

    def _explain_compiled(self, plan: str) -> str:
        """Return the nodes of a compiled plan as text."""
