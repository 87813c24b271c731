"""`TableEnvironment` and `StreamTableEnvironment`: the start of an SQL program."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock.common.errors import InvalidJob
from penstock.common.time import as_millis, parse_duration
from penstock.common.types import Row, RowKind
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.streams.closeable_iterator import CloseableIterator
from penstock.sql.plan.nodes import Sink
from penstock.sql.plan.reading import read_plan
from penstock.sql.plan.user_functions import UserFunction, plan_name
from penstock.sql.planner.process import Answer, PlannerProcess
from penstock.sql.planner.record import PlanRecord
from penstock.sql.streams import SqlStream
from penstock.sql.tables.connectors import CONNECTORS
from penstock.sql.tables.values import to_python
from penstock.sql.translation import StreamPlan
from penstock.table.compiled_plan import CompiledPlan, PlanReference, PlanStatement, local_path, plan_statement
from penstock.table.statement_set import StatementSet
from penstock.table.table import Table
from penstock.table.table_result import TableResult
from penstock.table.udf import AggregateFunction, UserDefinedFunctionWrapper, wrapped

if TYPE_CHECKING:
    from penstock.sql.plan.nodes import Plan
    from penstock.sql.plan.types import SqlType
    from penstock.table.environment_settings import EnvironmentSettings
    from penstock.table.schema import TableDescriptor

_SET = re.compile(r"\s*SET\s+'([^']+)'\s*=\s*'((?:[^']|'')*)'\s*;?\s*$", re.IGNORECASE)
_ZONE = "table.local-time-zone"
_PLANNER_OPTIONS = ("table.", "sql.")
_DATABASE = ("default_catalog", "default_database")
_PYTHON_FUNCTION = re.compile(
    r"\s*CREATE\s+TEMPORARY\s+(?P<system>SYSTEM\s+)?FUNCTION\s+(?P<name>[\w.]+)\s+AS\s+'(?P<place>[\w.]+)'\s+LANGUAGE\s+PYTHON\s*;?\s*$",
    re.IGNORECASE,
)
_DEFAULTS = {"table.optimizer.agg-phase-strategy": "ONE_PHASE", _ZONE: "UTC"}
"""Options of the planner that differ from Flink. Penstock has no local aggregates, and the zone does not depend on the machine."""


class TableConfig:
    """The options of a `TableEnvironment`. Options of the planner begin with `table.`, all others belong to the jobs."""

    def __init__(self, set_option: Callable[[str, str], None], options: dict[str, str]) -> None:
        self._set_option = set_option
        self._options = options

    def set(self, key: str, value: str) -> TableConfig:
        self._set_option(key, value)
        return self

    def get(self, key: str, default_value: str) -> str:
        return self._options.get(key, default_value)

    def set_local_timezone(self, timezone_id: str) -> None:
        """Set the zone of TIMESTAMP_LTZ, for example `Europe/Berlin`."""
        self._set_option(_ZONE, timezone_id)

    def get_local_timezone(self) -> str:
        return self._options[_ZONE]


class TableEnvironment:
    """The tables, views and options of a session, and the execution of SQL statements.

    A Java process with Flink's planner starts with the first statement. It compiles statements, and does not run them.
    """

    def __init__(self, env: StreamExecutionEnvironment) -> None:
        self._env = env
        self._options: dict[str, str] = {}
        record = PlanRecord(lambda: env._recorded_plans().get("answers", {}))
        self._planner = PlannerProcess({name: connector.modes for name, connector in CONNECTORS.items()}, record=record)
        weakref.finalize(self, self._planner.close)
        self._has_defaults = False
        self._given: dict[str, SqlStream] = {}
        """Streams of the program as tables, by their full names."""
        self._functions: dict[str, UserFunction] = {}
        """Functions of the program by their names in a plan."""
        self._views = 0
        self._plans = 0
        self._options.update(_DEFAULTS)
        self._configured = env.get_configuration().to_dict()
        """Settings of the jobs before the first `SET`."""

    @staticmethod
    def create(environment_settings: EnvironmentSettings | Any = None) -> TableEnvironment:
        """Return a new environment."""
        configuration = getattr(environment_settings, "get_configuration", lambda: None)()
        return TableEnvironment(StreamExecutionEnvironment.get_execution_environment(configuration))

    # --- options ----------------------------------------------------------------------------------------------

    def get_config(self) -> TableConfig:
        return TableConfig(self._set_option, self._options)

    def _set_option(self, key: str, value: str) -> None:
        if key.startswith(_PLANNER_OPTIONS):
            self._session().set_option(key, value)
            self._options[key] = value
            return
        from penstock.common.configuration import Configuration

        configuration = Configuration()
        configuration.set_string(key, value)
        self._env.configure(configuration)
        self._options[key] = value

    def _reset_options(self, key: str | None = None) -> None:
        """Reset an option, or all options, to its value at the start of the session."""
        for name in [*self._options] if key is None else [key]:
            if name in _DEFAULTS:
                self._set_option(name, _DEFAULTS[name])
            elif name.startswith(_PLANNER_OPTIONS):
                self._session().reset_option(name)
                self._options.pop(name, None)
            elif name in self._options:
                self._env._configuration.remove_config(name)
                if name in self._configured:
                    self._env._configuration.set_string(name, self._configured[name])
                self._options.pop(name)

    def _session(self) -> PlannerProcess:
        """Return the planner with the options of the session."""
        if not self._has_defaults:
            for key, value in _DEFAULTS.items():
                self._planner.set_option(key, value)
            self._has_defaults = True
        return self._planner

    # --- statements -------------------------------------------------------------------------------------------

    def execute_sql(self, stmt: str) -> TableResult:
        """Execute one statement.

        A SELECT runs when its rows are collected or printed. An INSERT starts a job and returns. DDL statements, SHOW, DESCRIBE and
        EXPLAIN have their result immediately. `SET 'key' = 'value'` sets an option. COMPILE PLAN writes a plan into a local file, and
        EXECUTE PLAN starts its job without the planner.

        Raises:
            SqlError: Flink's planner refuses the statement. The error has the line and the column.
            InvalidJob: the plan contains something that Penstock does not have. The error names it.
        """
        option = _SET.match(stmt)
        if option:
            self._set_option(option[1], option[2].replace("''", "'"))
            return _fixed(["result"], [("OK",)])
        function = _PYTHON_FUNCTION.match(stmt)
        if function:
            create = self.create_temporary_system_function if function["system"] else self.create_temporary_function
            create(function["name"], _imported(function["place"]))
            return _fixed(["result"], [("OK",)])
        plan = plan_statement(stmt)
        if plan is not None:
            return self._execute_plan_statement(plan)
        answer = self._session().sql(stmt)
        if answer.kind == "insert":
            return self._insert(answer.plan)
        if answer.kind == "query":
            return self._query(answer)
        return _fixed(answer.names, answer.rows)

    def compile_plan_sql(self, stmt: str) -> CompiledPlan:
        """Compile an INSERT statement, or a statement set. Nothing runs yet.

        Raises:
            SqlError: Flink's planner refuses the statement.
            InvalidJob: the statement is another one.
        """
        return CompiledPlan(self, self._compile(stmt))

    def load_plan(self, plan_reference: PlanReference) -> CompiledPlan:
        """Return a compiled plan from a file or a string. The planner is not needed.

        Raises:
            InvalidJob: this is not a compiled plan, or it has parts that Penstock does not have.
        """
        text = plan_reference.read()
        self._read(text)
        return CompiledPlan(self, text)

    def execute_plan(self, plan_reference: PlanReference) -> TableResult:
        """Start the job of a compiled plan."""
        return self.load_plan(plan_reference).execute()

    def sql_query(self, query: str) -> Table:
        """Return the table of a query. The planner checks the query now, and nothing runs.

        Raises:
            SqlError: Flink's planner refuses the query.
        """
        self._view_of(query)
        return Table(self, query)

    def from_path(self, path: str) -> Table:
        """Return the table with this name."""
        return self.sql_query(f"SELECT * FROM {path}")

    def from_descriptor(self, descriptor: TableDescriptor) -> Table:
        """Return a table that is not in the catalog."""
        path = f"`UnnamedTable${self._views}`"
        self._views += 1
        self.create_temporary_table(path, descriptor)
        return self.from_path(path)

    def create_temporary_table(self, path: str, descriptor: TableDescriptor) -> None:
        self._session().sql(descriptor.create(path, is_temporary=True))

    def create_table(self, path: str, descriptor: TableDescriptor, ignore_if_exists: bool = False) -> bool:
        """Create a table in the catalog. Return False if it exists."""
        exists = ignore_if_exists and path in self.list_tables()
        self._session().sql(descriptor.create(path, is_temporary=False, ignore_if_exists=ignore_if_exists))
        return not exists

    def drop_temporary_table(self, table_path: str) -> bool:
        """Drop a temporary table. Return False if it does not exist."""
        exists = table_path in self.list_tables()
        self._session().sql(f"DROP TEMPORARY TABLE IF EXISTS {table_path}")
        return exists

    def create_temporary_view(self, view_path: str, table: Table) -> None:
        """Give a table a name in SQL."""
        self._session().create_view(view_path, table._query)

    def drop_temporary_view(self, view_path: str) -> bool:
        """Drop a view. Return False if it does not exist."""
        exists = view_path in self.list_views()
        self._session().sql(f"DROP TEMPORARY VIEW IF EXISTS {view_path}")
        return exists

    def create_temporary_system_function(self, name: str, function: Any) -> None:
        """Register a Python function for SQL and the Table API. Its name has no database.

        Args:
            function: result of `udf`, `udtf` or `udaf`, an instance of `ScalarFunction`, `TableFunction` or `AggregateFunction`, or a plain
                function with annotations.

        Raises:
            InvalidJob: the types of the function are not known.
            SqlError: a function with this name exists.
        """
        self._create_function(name, name, wrapped(function), is_system=True)

    def create_temporary_function(self, path: str, function: Any) -> None:
        """Register a Python function in a database. Without a database, it belongs to `default_database`."""
        full = ".".join([*_DATABASE, *path.split(".")][-3:])
        self._create_function(path, full, wrapped(function), is_system=False)

    def drop_temporary_system_function(self, name: str) -> bool:
        """Drop a function. Return False if it does not exist."""
        return self._drop_function(name, name, "TEMPORARY SYSTEM")

    def drop_temporary_function(self, path: str) -> bool:
        """Drop a function. Return False if it does not exist."""
        return self._drop_function(path, ".".join([*_DATABASE, *path.split(".")][-3:]), "TEMPORARY")

    def list_user_defined_functions(self) -> list[str]:
        return [str(row[0]) for row in self._session().sql("SHOW USER FUNCTIONS").rows]

    def list_functions(self) -> list[str]:
        return [str(row[0]) for row in self._session().sql("SHOW FUNCTIONS").rows]

    def _create_function(self, name: str, full: str, found: UserDefinedFunctionWrapper, *, is_system: bool) -> None:
        function, kind = found.function, found.kind
        self._session().create_function(
            name, kind, found.arguments, found.result, deterministic=function.is_deterministic(), is_system=is_system
        )
        can_retract = kind == "aggregate" and type(function).retract is not AggregateFunction.retract  # type: ignore[attr-defined]
        key = plan_name(full)
        self._functions[key] = UserFunction(key, kind, function, can_retract=can_retract)

    def _drop_function(self, name: str, full: str, scope: str) -> bool:
        exists = self._functions.pop(plan_name(full), None) is not None
        self._session().sql(f"DROP {scope} FUNCTION IF EXISTS {name}")
        return exists

    def create_statement_set(self) -> StatementSet:
        return StatementSet(self)

    def explain_sql(self, stmt: str) -> str:
        """Return the syntax tree and the optimized plan of a statement."""
        return self._session().explain(stmt)

    def list_tables(self) -> list[str]:
        return [str(row[0]) for row in self._session().sql("SHOW TABLES").rows]

    def list_views(self) -> list[str]:
        return [str(row[0]) for row in self._session().sql("SHOW VIEWS").rows]

    # --- translation ------------------------------------------------------------------------------------------

    def _view_of(self, query: str) -> str:
        name = f"UnnamedTable${self._views}"
        self._session().create_view(f"`{name}`", query)
        self._views += 1
        return f"`{name}`"

    def _schema_of(self, query: str) -> list[tuple[str, str]]:
        answer = self._session().schema(query)
        return list(zip(answer.names, answer.types, strict=True))

    def _ensure_function(self, name: str, function: UserDefinedFunctionWrapper) -> None:
        if plan_name(name) not in self._functions:
            self._create_function(name, name, function, is_system=True)

    def _streams(self, plan: Plan) -> SqlStream:
        prefix = "sql" if self._plans == 0 else f"sql{self._plans}"
        found = StreamPlan(
            self._env, plan, name=prefix, zone=self._options[_ZONE], tables=self._given
        ).add_to_environment()
        recorded = self._env._plans.get("answers", {})
        self._env._plans["answers"] = {**recorded, **self._planner.record.stored()}
        return found

    def _read(self, text: str) -> Plan:
        ttl = as_millis(parse_duration(self._options.get("table.exec.state.ttl", "0 ms")))
        for function in self._functions.values():
            function.zone = self._options[_ZONE]
        return read_plan(text, self._options[_ZONE], ttl, self._functions)

    def _insert(self, text: str) -> TableResult:
        plan = self._read(text)
        self._streams(plan)
        targets = ",".join(node.table.name for node in plan.nodes if isinstance(node, Sink))
        name = self._options.get("pipeline.name") or f"insert-into_{targets}"
        client = self._env.execute_async(name)
        rows = [Row(str(client.get_job_id()))]
        return TableResult(["result"], lambda: iter(rows), job_client=client, job_name=name)

    def _option(self, key: str) -> str | None:
        return self._options.get(key)

    def _compile(self, statement: str) -> str:
        answer = self._session().sql(statement)
        if answer.kind != "insert":
            raise InvalidJob(
                "SQL: only INSERT statements and statement sets can be compiled", remedy="write INSERT INTO …"
            )
        return answer.plan

    def _compile_all(self, statements: list[str]) -> str:
        return self._session().statement_set(statements).plan

    def _execute_compiled(self, plan: str) -> TableResult:
        return self._insert(plan)

    def _explain_compiled(self, plan: str) -> str:
        return self._read(plan).describe()

    def _execute_plan_statement(self, found: PlanStatement) -> TableResult:
        file = local_path(found.file)
        if found.statement and not (found.keep and file.exists()):
            self.compile_plan_sql(found.statement).write_to_file(file)
        return self.execute_plan(PlanReference.from_file(file)) if found.execute else _fixed(["result"], [("OK",)])

    def _insert_all(self, statements: list[str]) -> TableResult:
        return self._insert(self._session().statement_set(statements).plan)

    def _collected(self, answer: Answer) -> tuple[SqlStream, _RowMaker]:
        plan = self._read(answer.plan)
        (sink,) = (node for node in plan.nodes if isinstance(node, Sink))
        stream = self._streams(plan)
        converters = [to_python(column.type, self._options[_ZONE]) for column in sink.table.columns]
        types = [column.type for column in sink.table.columns]
        return stream, _RowMaker(answer.names, converters, types, changelog=stream.changelog)

    def _query(self, answer: Answer) -> TableResult:
        stream, make = self._collected(answer)

        def rows() -> CloseableIterator:
            return stream.stream.execute_and_collect("collect").mapped(make)

        return TableResult(answer.names, rows, changelog=True, types=make.types)


class _RowMaker:
    """A function from a row or change of SQL to a `Row` with Python objects."""

    def __init__(self, names: tuple[str, ...], converters: list[Any], types: list[SqlType], *, changelog: bool) -> None:
        self._names = names
        self.types = types
        self._converters = converters
        self._changelog = changelog

    def __call__(self, value: Any) -> Row:
        kind, fields = value if self._changelog else (0, value)
        row = Row.of(
            [
                field if field is None or convert is None else convert(field)
                for convert, field in zip(self._converters, fields, strict=True)
            ],
            self._names,
        )
        if kind:
            row.set_row_kind(RowKind(kind))
        return row


def _imported(place: str) -> Any:
    """Return the object `module.name`.

    Raises:
        InvalidJob: the module or the object does not exist.
    """
    module, _, name = place.rpartition(".")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidJob(
            f"SQL: the function {place} cannot be imported: {error}", remedy="write 'module.name' of a Python function"
        ) from error


def _fixed(names: Any, rows: Any) -> TableResult:
    return TableResult(list(names), lambda: iter([Row(*row) for row in rows]))
