"""`StreamTableEnvironment`: tables from streams, and streams from tables."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from penstock.common.errors import InvalidJob
from penstock.common.typeinfo import PickledBytesTypeInfo, RowTypeInfo, TupleTypeInfo, TypeInformation
from penstock.common.types import Row
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.functions import ProcessFunction, RuntimeContext
from penstock.sql.plan.types import SqlType, type_of
from penstock.sql.streams import SqlStream
from penstock.sql.tables.objects import value_of
from penstock.table.expression import Expression
from penstock.table.schema import Schema, SchemaColumn
from penstock.table.table import Table
from penstock.table.table_environment import TableEnvironment
from penstock.table.types import quoted, sql_type

if TYPE_CHECKING:
    from penstock.datastream import DataStream
    from penstock.table.environment_settings import EnvironmentSettings

_NOT_NULL = re.compile(r"\s+NOT\s+NULL\s*$", re.IGNORECASE)
_ROWTIME = "rowtime"
"""Key of the metadata column with the timestamps of records."""


class ToSqlRow(ProcessFunction):
    """The rows or changes of SQL of Python objects.

    Args:
        columns: names and types of the columns. The type of a column of timestamps is None.
        changelog: whether the kind of each Row tells its change.
    """

    def __init__(self, columns: list[tuple[str, SqlType | None]], zone: str, *, changelog: bool) -> None:
        self._columns = columns
        self._zone = zone
        self._changelog = changelog

    def open(self, runtime_context: RuntimeContext) -> None:
        self._converters: list[Callable[[Any], Any] | None] = [
            None if type is None else value_of(type, self._zone) for _, type in self._columns
        ]
        self._names = [name for name, type in self._columns if type is not None]

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        fields = iter(self._fields(value))
        time = ctx.timestamp()
        if time is None and None in self._converters:
            raise InvalidJob(
                f"SQL: the record {value!r} has no timestamp for the metadata column {_ROWTIME}",
                remedy="call assign_timestamps_and_watermarks() on the stream",
            )
        if self._changelog and not isinstance(value, Row):
            raise InvalidJob(f"SQL: the change {value!r} is not a Row", remedy="use Row.of_kind(RowKind.INSERT, …)")
        row = tuple([time * 1000 if convert is None else convert(next(fields)) for convert in self._converters])
        yield (value.get_row_kind().value, row) if self._changelog else row

    def _fields(self, value: Any) -> Sequence[Any]:
        names = self._names
        found = value.as_dict() if isinstance(value, Row) and value.get_field_names() else value
        if dataclasses.is_dataclass(found) and not isinstance(found, type):
            found = {field.name: getattr(found, field.name) for field in dataclasses.fields(found)}
        if isinstance(found, dict) and set(names) <= set(found):
            return [found[name] for name in names]
        is_record = isinstance(value, Row | tuple | list) and not (len(names) == 1 and isinstance(value, list))
        fields = list(value) if is_record else [value]
        if len(fields) != len(names):
            raise ValueError(
                f"the record {value!r} has {len(fields)} fields, but the table has the columns {', '.join(names)}"
            )
        return fields


def derived_schema(stream: DataStream[Any], names: Sequence[str]) -> Schema:
    """Return the columns of a stream whose type is known.

    Raises:
        InvalidJob: the type is not known, or has another number of fields.
    """
    info = stream.get_type()
    if info is None or isinstance(info, PickledBytesTypeInfo):
        raise InvalidJob(
            "SQL: the types of the stream's fields are not known",
            remedy="pass a Schema with the columns, or an output_type to the operation before",
        )
    found: list[str] = ["f0"]
    types: list[TypeInformation] = [info]
    if isinstance(info, RowTypeInfo | TupleTypeInfo):
        types = list(info.get_field_types())
        found = list(info.get_field_names() or ()) if isinstance(info, RowTypeInfo) else []
        found = found or [f"f{index}" for index in range(len(types))]
    if names and len(names) != len(types):
        raise InvalidJob(f"SQL: {len(names)} names for {len(types)} fields", remedy="pass a name for each field")
    return Schema.new_builder().from_fields(list(names or found), [sql_type(type) for type in types]).build()


class StreamTableEnvironment(TableEnvironment):
    """A `TableEnvironment` whose tables can become streams of a `StreamExecutionEnvironment`, and the reverse."""

    @staticmethod
    def create(  # type: ignore[override] # PyFlink's signature
        stream_execution_environment: StreamExecutionEnvironment | Any = None,
        environment_settings: EnvironmentSettings | None = None,
    ) -> StreamTableEnvironment:
        env = stream_execution_environment or StreamExecutionEnvironment.get_execution_environment()
        configuration = None if environment_settings is None else environment_settings.get_configuration()
        if configuration is not None:
            env.configure(configuration)
        return StreamTableEnvironment(env)

    # --- from streams -----------------------------------------------------------------------------------------

    def from_data_stream(self, data_stream: DataStream[Any], *fields_or_schema: Any) -> Table:
        """Return a table of a stream's records: Rows, tuples, dicts, dataclasses, or single values.

        Args:
            fields_or_schema: a `Schema`, or names of the columns. Without it, the stream's type tells the columns. A schema may have
                watermarks, computed columns, and `column_by_metadata("rowtime", DataTypes.TIMESTAMP_LTZ(3))` with the records' timestamps.

        Raises:
            InvalidJob: the types of the fields are not known.
        """
        return self._from_stream(data_stream, _schema_of(data_stream, fields_or_schema), changelog=False)

    def from_changelog_stream(self, data_stream: DataStream[Row], schema: Schema | None = None) -> Table:
        """Return a table of a stream of changes. The kind of each Row tells its change."""
        found = schema if schema is not None and schema.columns else _with_rest(derived_schema(data_stream, ()), schema)
        return self._from_stream(data_stream, found, changelog=True)

    def create_temporary_view(
        self, view_path: str, table_or_data_stream: Table | DataStream[Any], *fields_or_schema: Any
    ) -> None:
        """Give a table or a stream a name in SQL. The further arguments are those of `from_data_stream`."""
        if isinstance(table_or_data_stream, Table):
            super().create_temporary_view(view_path, table_or_data_stream)
            return
        super().create_temporary_view(view_path, self.from_data_stream(table_or_data_stream, *fields_or_schema))

    def _from_stream(self, stream: DataStream[Any], schema: Schema, *, changelog: bool) -> Table:
        number = len(self._given)
        name, zone = f"stream_{number}", self.get_config().get_local_timezone()
        columns: list[tuple[str, SqlType | None]] = []
        declared: list[SchemaColumn] = []
        for column in schema.columns:
            if column.kind == "metadata":
                if (column.metadata_key or column.name) != _ROWTIME:
                    raise InvalidJob(
                        f"SQL: a stream has no metadata {column.name}", remedy=f"the only key is {_ROWTIME}"
                    )
                columns.append((column.name, None))
                declared.append(SchemaColumn(column.name, "physical", column.text))
                continue
            if column.kind == "physical":
                columns.append((column.name, type_of(self._resolved(column.text))))
            declared.append(column)
        rows = stream.process(ToSqlRow(columns, zone, changelog=changelog)).name("FromRow").uid(f"sql-{name}-rows")
        self._given[f"default_catalog.default_database.{name}"] = SqlStream(rows, changelog=changelog)
        connector = "penstock-changelog" if changelog else "penstock-stream"
        clauses = Schema(tuple(declared), schema.watermarks, schema.keys).clauses()
        self._session().sql(f"CREATE TEMPORARY TABLE {quoted(name)} ({clauses}) WITH ('connector' = '{connector}')")
        return self.from_path(quoted(name))

    def _resolved(self, type: str) -> str:
        """Return a type as the planner writes it in plans."""
        ((_, found),) = self._schema_of(f"SELECT CAST(NULL AS {_NOT_NULL.sub('', type)})")
        return found

    # --- to streams -------------------------------------------------------------------------------------------

    def to_data_stream(self, table: Table) -> DataStream[Row]:
        """Return the stream of a table's rows. Continue with the DataStream API, and end with `env.execute()`.

        If the table has a time attribute, the records have its times and the stream has its watermarks.

        Raises:
            InvalidJob: the rows of the table are updated.
        """
        return self._to_stream(table, changes=False)

    def to_changelog_stream(self, table: Table) -> DataStream[Row]:
        """Return the stream of a table's changes. Each row has a kind."""
        return self._to_stream(table, changes=True)

    def _to_stream(self, table: Table, *, changes: bool) -> DataStream[Row]:
        answer = self._session().sql(table._query)
        stream, make = self._collected(answer)
        self._plans += 1
        if stream.changelog and not changes:
            raise InvalidJob(
                "SQL: to_data_stream cannot take this table, because later rows update its results",
                remedy="use to_changelog_stream(), aggregate over windows, or write to a table with a primary key",
            )
        return stream.stream.map(make).name("ToRow").uid(f"sql{self._plans}-rows")


def _schema_of(stream: DataStream[Any], arguments: Sequence[Any]) -> Schema:
    if len(arguments) == 1 and isinstance(arguments[0], Schema):
        schema = arguments[0]
        has_columns = any(column.kind == "physical" for column in schema.columns)
        return schema if has_columns else _with_rest(derived_schema(stream, ()), schema)
    found = [part.column if isinstance(part, Expression) else part for part in arguments]
    names = [name for name in found if isinstance(name, str)]
    if len(names) < len(found):
        raise InvalidJob(f"SQL: {arguments!r} are not columns", remedy="pass a Schema, or names of columns")
    return derived_schema(stream, names)


def _with_rest(columns: Schema, schema: Schema | None) -> Schema:
    """Return derived columns with the other parts of a schema."""
    builder = Schema.new_builder().from_schema(columns)
    return (builder if schema is None else builder.from_schema(schema)).build()
