"""A table as it is, and whether a job's fields fit it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.common.errors import InvalidJob, PlatformError
from penstock.connectors.sql.server import Server, package

_BITS = {"TINYINT": 8, "SMALLINT": 16, "MEDIUMINT": 24, "INTEGER": 32, "INT": 32, "BIGINT": 64}


@dataclass(frozen=True)
class Column:
    name: str
    type: Any
    """SQLAlchemy's."""
    is_required: bool
    """NOT NULL and no default."""
    is_generated: bool
    counts: bool
    """The server gives it a number."""


@dataclass(frozen=True)
class Table:
    """A table as it is. `sql`: its name, quoted. `unique`: sets of columns that are unique and never null."""

    sql: str
    columns: dict[str, Column]
    unique: tuple[frozenset[str], ...]
    any_unique: tuple[frozenset[str], ...]
    """Also those of columns that may be null."""
    cut: frozenset[frozenset[str]]
    """Those that know the beginnings of values alone (MySQL's `unique (name(10))`): different values are equal to them."""
    keeps_types: bool
    """Columns take what their type says, and nothing else."""
    engine: str
    """MySQL's and MariaDB's, or "view"; empty: all tables have transactions."""


def quoting(connection: Any) -> Callable[[str], str]:
    """Quotes a name."""
    found: Callable[[str], str] = connection.dialect.identifier_preparer.quote_identifier
    return found


def quoted_table(connection: Any, name: str) -> str:
    return ".".join(map(quoting(connection), name.split(".")))


def look_up(connection: Any, server: Server, name: str, kind: type[PlatformError]) -> Table:
    """
    Raises:
        PlatformError: of this kind: there is no such table, or the user may not look at it.
    """
    schema, _, short = name.rpartition(".")
    where = {"schema": schema or None}
    try:
        inspector = package().inspect(connection)
        if not inspector.has_table(short, **where):
            raise kind(
                f"{server.shown}: there is no table {name!r} that the user may see",
                remedy="create it, or GRANT the job's user rights on it, or write 'schema.table' with names as they are (no quotes)",
            )
        primary = frozenset(inspector.get_pk_constraint(short, **where)["constrained_columns"])
        columns = {found["name"]: _column(found, primary) for found in inspector.get_columns(short, **where)}
        sets = {primary} if primary else set()
        sets |= {
            frozenset(index["column_names"])
            for index in inspector.get_indexes(short, **where)
            if index["unique"]
            and None not in index["column_names"]
            and not index.get("dialect_options", {}).get("postgresql_where")
        }
        sets |= {frozenset(found["column_names"]) for found in inspector.get_unique_constraints(short, **where)}
        if connection.dialect.name == "sqlite":
            sets |= _unique_of_sqlite(connection, schema, short)
        sure = {found["name"] for found in inspector.get_columns(short, **where) if not found["nullable"]} | primary
        is_mysql = connection.dialect.name in ("mysql", "mariadb")
        cut = _cut_of_mysql(connection, schema, short) if is_mysql else frozenset()
        engine = engine_of(connection, short, schema)
    except package("sqlalchemy.exc").DBAPIError as error:
        raise server.explained(kind, f"table {name!r} cannot be looked at", error) from error
    return Table(
        quoted_table(connection, name),
        columns,
        tuple(found for found in sets if found <= sure),
        tuple(sets),
        cut,
        connection.dialect.name != "sqlite",
        engine,
    )


def engine_of(connection: Any, table: str, schema: str = "") -> str:
    """As `Table.engine`."""
    name = connection.dialect.name
    if name not in ("mysql", "mariadb"):
        return ""
    options = package().inspect(connection).get_table_options(table, schema=schema or None)
    return str(options.get(f"{name}_engine") or "view")


def _cut_of_mysql(connection: Any, schema: str, table: str) -> frozenset[frozenset[str]]:
    rows = connection.exec_driver_sql(
        "select index_name, column_name, sub_part from information_schema.statistics "
        "where table_schema = coalesce(%s, database()) and table_name = %s and non_unique = 0",
        (schema or None, table),
    ).fetchall()
    cut = {index for index, _, length in rows if length is not None}
    return frozenset(frozenset(name for index, name, _ in rows if index == found) for found in cut)


def _unique_of_sqlite(connection: Any, schema: str, table: str) -> set[frozenset[str]]:
    """Those of UNIQUE beside a column, too, which SQLAlchemy finds by the text of CREATE TABLE."""
    where = f"{quoting(connection)(schema)}." if schema else ""
    sets = set()
    for _, index, unique, _, partial in connection.exec_driver_sql(
        f"pragma {where}index_list({quoting(connection)(table)})"
    ).fetchall():
        names = [
            row[2] for row in connection.exec_driver_sql(f"pragma {where}index_info({quoting(connection)(index)})")
        ]
        if unique and not partial and None not in names:
            sets.add(frozenset(names))
    return sets


def _column(found: dict[str, Any], primary: frozenset[str]) -> Column:
    counts = found.get("autoincrement") is True or bool(found.get("identity"))
    if found["name"] in primary and len(primary) == 1 and type(found["type"]).__name__ == "INTEGER":
        counts = counts or found.get("autoincrement") == "auto"  # SQLite's rowid
    generated = bool(found.get("computed")) or bool((found.get("identity") or {}).get("always"))
    required = not found["nullable"] and found.get("default") is None and not counts and not generated
    return Column(found["name"], found["type"], required, generated, counts)


def check_fields(schema: pa.Schema, table: Table, *, writes: bool) -> None:
    """
    Raises:
        InvalidJob: fields and columns do not fit; names all that do not.
    """
    problems = []
    for name in schema.names:
        column = table.columns.get(name)
        kind = schema.field(name).type
        if column is None:
            problems.append(f"no column {name!r}")
        elif writes and column.is_generated:
            problems.append(f"column {name!r} is generated by the server")
        elif writes and not (fits(kind, column.type) if table.keeps_types else kind != pa.uint64()):
            problems.append(f"column {name!r} is {column.type!r}, the job's field {kind}")
    if writes:
        unset = [
            column.name for column in table.columns.values() if column.is_required and column.name not in schema.names
        ]
        problems += [f"column {name!r} is required, and the job has no such field" for name in unset]
    if problems:
        raise InvalidJob(
            f"the fields {', '.join(f'{f.name}: {f.type}' for f in schema)} do not fit table {table.sql}: {'; '.join(problems)}",
            remedy="give the fields that the table has (a pyarrow.Schema says types exactly), or alter the table",
        )


def fits(kind: pa.DataType, column: Any) -> bool:
    """Whether a column of this type of SQLAlchemy's takes all values of that kind.

    >>> import sqlalchemy
    >>> fits(pa.int64(), sqlalchemy.BigInteger()), fits(pa.int64(), sqlalchemy.Integer()), fits(pa.string(), sqlalchemy.Date())
    (True, False, False)
    """
    types = package("sqlalchemy.types")
    if isinstance(column, types.NullType):  # one that SQLAlchemy does not know: inet, uuid, …
        return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
    if pa.types.is_boolean(kind):
        return isinstance(column, types.Boolean | types.Integer)
    if pa.types.is_integer(kind):
        return _takes_integers(kind, column)
    if pa.types.is_floating(kind):
        is_wide = isinstance(column, types.Double) or (
            column.__visit_name__ in ("double_precision", "DOUBLE_PRECISION", "DOUBLE")
        )
        return isinstance(column, types.Float) and (is_wide or kind.bit_width <= 32)
    if pa.types.is_decimal(kind):
        return isinstance(column, types.Numeric) and not isinstance(column, types.Float)
    if pa.types.is_date(kind):
        return isinstance(column, types.Date | types.DateTime)
    if pa.types.is_timestamp(kind):
        return isinstance(column, types.DateTime)
    if pa.types.is_time(kind):
        return isinstance(column, types.Time)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return isinstance(column, types._Binary)
    if pa.types.is_nested(kind):
        is_long = isinstance(column, types.String) and column.__visit_name__.upper() in (
            "TEXT",
            "MEDIUMTEXT",
            "LONGTEXT",
        )
        return is_long or isinstance(column, types.JSON)
    return isinstance(column, types.String | types.Enum | types.JSON | types.Uuid)


def _takes_integers(kind: pa.DataType, column: Any) -> bool:
    types = package("sqlalchemy.types")
    if isinstance(column, types.Numeric) and not isinstance(column, types.Float):
        return True
    if not isinstance(column, types.Integer):
        return False
    bits = _BITS.get(column.__visit_name__.upper(), 32)
    if isinstance(column, types.BigInteger):
        bits = 64
    elif isinstance(column, types.SmallInteger):
        bits = 16
    if getattr(column, "unsigned", False):
        return bool(pa.types.is_unsigned_integer(kind) and kind.bit_width <= bits)
    return bool(kind.bit_width <= bits - (1 if pa.types.is_unsigned_integer(kind) else 0))


def is_integer(column: Column) -> bool:
    return isinstance(column.type, package("sqlalchemy.types").Integer)
