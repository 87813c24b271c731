"""`StatementSet`: several INSERT statements that run as one job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.common.errors import InvalidJob
from penstock.table.compiled_plan import CompiledPlan

if TYPE_CHECKING:
    from penstock.table.session import Session
    from penstock.table.table import Table
    from penstock.table.table_result import TableResult


class StatementSet:
    """INSERT statements. They share the parts of their plans that are equal, such as the scan of a table."""

    def __init__(self, environment: Session) -> None:
        self._environment = environment
        self._statements: list[str] = []

    def add_insert_sql(self, stmt: str) -> StatementSet:
        self._statements.append(stmt)
        return self

    def add_insert(self, target_path: str, table: Table, overwrite: bool = False) -> StatementSet:
        return self.add_insert_sql(table._insert(target_path, overwrite=overwrite))

    def compile_plan(self) -> CompiledPlan:
        """Compile the statements into one plan. The statements stay in the set."""
        return CompiledPlan(self._environment, self._environment._compile_all(self._checked()))

    def _checked(self) -> list[str]:
        if not self._statements:
            raise InvalidJob("SQL: the statement set is empty", remedy="call add_insert_sql() first")
        return self._statements

    def execute(self) -> TableResult:
        """Start the job, and remove the statements from the set.

        Raises:
            InvalidJob: the set is empty, or a statement is not supported.
        """
        statements, self._statements = self._checked(), []
        return self._environment._insert_all(statements)
