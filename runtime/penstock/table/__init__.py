"""The Table API: SQL statements on tables, under PyFlink's names. Flink's planner compiles them, and Penstock runs them.

`DataTypes` also declares the columns of CSV and Parquet files.

>>> from penstock.table import DataTypes
>>> DataTypes.ROW([DataTypes.FIELD("station", DataTypes.STRING()), DataTypes.FIELD("celsius", DataTypes.DOUBLE())])
RowTypeInfo([Types.STRING(), Types.DOUBLE()], ('station', 'celsius'))
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock.table.types import DataTypes

if TYPE_CHECKING:
    from penstock.table.compiled_plan import CompiledPlan, PlanReference, TablePipeline
    from penstock.table.environment_settings import EnvironmentSettings
    from penstock.table.expression import Expression
    from penstock.table.schema import Schema, TableDescriptor
    from penstock.table.statement_set import StatementSet
    from penstock.table.stream_table_environment import StreamTableEnvironment
    from penstock.table.table import Table
    from penstock.table.table_environment import TableEnvironment
    from penstock.table.table_result import TableResult
    from penstock.table.udf import AggregateFunction, FunctionContext, ScalarFunction, TableFunction
    from penstock.table.window import GroupWindow, Session, Slide, Tumble

__all__ = [
    "AggregateFunction",
    "CompiledPlan",
    "DataTypes",
    "EnvironmentSettings",
    "Expression",
    "FunctionContext",
    "GroupWindow",
    "PlanReference",
    "ScalarFunction",
    "Schema",
    "Session",
    "Slide",
    "StatementSet",
    "StreamTableEnvironment",
    "Table",
    "TableDescriptor",
    "TableEnvironment",
    "TableFunction",
    "TablePipeline",
    "TableResult",
    "Tumble",
]

_MODULES = {
    "Expression": "expression",
    "GroupWindow": "window",
    "Schema": "schema",
    "Session": "window",
    "Slide": "window",
    "TableDescriptor": "schema",
    "Tumble": "window",
    "AggregateFunction": "udf",
    "ScalarFunction": "udf",
    "TableFunction": "udf",
    "FunctionContext": "udf",
    "CompiledPlan": "compiled_plan",
    "PlanReference": "compiled_plan",
    "TablePipeline": "compiled_plan",
    "EnvironmentSettings": "environment_settings",
    "StatementSet": "statement_set",
    "StreamTableEnvironment": "stream_table_environment",
    "Table": "table",
    "TableEnvironment": "table_environment",
    "TableResult": "table_result",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"penstock.table.{_MODULES[name]}"), name)
    globals()[name] = found
    return found
