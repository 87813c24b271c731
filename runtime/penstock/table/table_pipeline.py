"""`TablePipeline`: a table together with the table into which it is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.table.compiled_plan import CompiledPlan

if TYPE_CHECKING:
    from penstock.table.session import Session
    from penstock.table.table_result import TableResult


class TablePipeline:
    """A complete pipeline, which `Table.insert_into` creates."""

    def __init__(self, environment: Session, statement: str) -> None:
        self._environment = environment
        self._statement = statement

    def execute(self) -> TableResult:
        """Start the job."""
        return self._environment.execute_sql(self._statement)

    def compile_plan(self) -> CompiledPlan:
        return CompiledPlan(self._environment, self._environment._compile(self._statement))

    def explain(self) -> str:
        """Return the syntax tree and the optimized plan."""
        return self._environment.explain_sql(self._statement)
