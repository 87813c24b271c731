"""The definition of a table, and the check that a job's fields fit it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.common.errors import PlatformError, SourceError
from penstock.connectors.sql.server import Server, package
from penstock.connectors.tables.columns import ColumnDefinition, TableDefinition, check_columns

_BITS = {"TINYINT": 8, "SMALLINT": 16, "MEDIUMINT": 24, "INTEGER": 32, "INT": 32, "BIGINT": 64}


@dataclass(frozen=True)
class Column(ColumnDefinition):
    """A column. Its `type` is a type of SQLAlchemy."""

    counts: bool = False
    """Whether the server numbers the rows in this column (AUTO_INCREMENT or identity)."""

    @property
    def shown_type(self) -> str:
        return repr(self.type)


@dataclass(frozen=True)
class Table(TableDefinition):
    """The definition of a table on the server."""

    columns: Mapping[str, Column]
    any_unique: tuple[frozenset[str], ...]
    """Sets of columns that are unique, including sets with columns that may be null."""
    cut: frozenset[frozenset[str]]
    """Unique indexes on prefixes of values (`unique (name(10))` in MySQL). They treat different values with the same prefix as equal."""
    keeps_types: bool
    """Whether columns accept only values of their type."""
    engine: str
    """Storage engine of MySQL and MariaDB, or "view". Empty if all tables of the database have transactions."""


def quoting(connection: Any) -> Callable[[str], str]:
    """Return the function that quotes a name."""
    found: Callable[[str], str] = connection.dialect.identifier_preparer.quote_identifier
    return found


def quoted_table(connection: Any, name: str) -> str:
    return ".".join(map(quoting(connection), name.split(".")))


def look_up(connection: Any, server: Server, name: str, kind: type[PlatformError]) -> Table:
    """Read the definition of a table.

    Raises:
        PlatformError: the table does not exist, or the user may not read its definition. `kind` is the class of the error.
    """
    schema, _, short = name.rpartition(".")
    where = {"schema": schema or None}
    try:
        inspector = package().inspect(connection)
        if not inspector.has_table(short, **where):
            raise kind(
                f"{server.shown}: the table {name!r} does not exist, or the user has no rights on it",
                remedy="create it, or GRANT rights on it to the job's user, or write 'schema.table' with exact names and no quotes",
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
        raise server.explained(kind, f"the definition of table {name!r} cannot be read", error) from error
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
    """Return the value of `Table.engine`."""
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
    """Return all unique sets of columns, including columns that are declared as UNIQUE.

    SQLAlchemy itself finds such columns only by parsing the text of CREATE TABLE.
    """
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
    return Column(found["name"], found["type"], required, generated, counts=counts)


def check_fields(schema: pa.Schema, table: Table, *, writes: bool) -> None:
    """Check that the job's fields fit the table.

    Raises:
        InvalidJob: some fields do not fit. The error names all of them.
    """
    stores: Callable[[pa.DataType, Any], bool] = fits if table.keeps_types else lambda kind, _: kind != pa.uint64()
    check_columns(schema, table, stores if writes else None)


def readable_table(connection: Any, server: Server, name: str, schema: pa.Schema) -> Table:
    """Return the definition of a table that the job reads.

    Raises:
        InvalidJob: the table does not have the fields' columns.
        SourceError: the table or a right is missing.
    """
    table = look_up(connection, server, name, SourceError)
    check_fields(schema, table, writes=False)
    return table


def fits(kind: pa.DataType, column: Any) -> bool:
    """Return whether a column of this SQLAlchemy type can store all values of the Arrow type `kind`.

    >>> import sqlalchemy
    >>> fits(pa.int64(), sqlalchemy.BigInteger()), fits(pa.int64(), sqlalchemy.Integer()), fits(pa.string(), sqlalchemy.Date())
    (True, False, False)
    """
    types = package("sqlalchemy.types")
    if isinstance(column, types.NullType):  # SQLAlchemy does not know the type: inet, uuid, …
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


def is_integer(column: ColumnDefinition) -> bool:
    return isinstance(column.type, package("sqlalchemy.types").Integer)
