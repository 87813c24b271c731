"""The statements: an INSERT into a table, or the user's own statement."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from penstock.common.errors import InvalidJob, SinkError
from penstock.connectors.cassandra.cluster import ClusterBuilder, Connection
from penstock.connectors.cassandra.options import MapperOptions

_PLAIN = re.compile(r"[a-z][a-z0-9_]*\Z")
_WRITE = re.compile(r"\s*(insert|update|delete)\b", re.IGNORECASE)


def quoted(name: str) -> str:
    """Return a name in CQL's notation.

    >>> quoted("weather.Means")
    'weather."Means"'
    """
    return ".".join(part if _PLAIN.match(part) else '"' + part.replace('"', '""') + '"' for part in name.split("."))


def insert_into(table: str, columns: Sequence[str], options: MapperOptions) -> str:
    """Return an INSERT statement.

    >>> insert_into("weather.means", ["station", "celsius"], MapperOptions().ttl(60))
    'INSERT INTO weather.means (station, celsius) VALUES (?, ?) USING TTL 60'
    """
    if len(table.split(".")) != 2 or not all(table.split(".")):
        raise InvalidJob(f"table={table!r} does not name a table of Cassandra", remedy="write 'keyspace.table'")
    if isinstance(columns, str) or not columns or len(set(columns)) != len(tuple(columns)):
        raise InvalidJob(
            f"columns={columns!r} of table {table!r} is not a list of distinct columns",
            remedy="pass the columns in the order of the values",
        )
    names = ", ".join(map(quoted, columns))
    new = " IF NOT EXISTS" if options.only_new else ""
    ends = "" if options.seconds is None else f" USING TTL {options.seconds}"
    return f"INSERT INTO {quoted(table)} ({names}) VALUES ({', '.join('?' * len(columns))}){new}{ends}"


def check_statement(statement: str) -> None:
    """Check that a statement writes, and has placeholders for the values of a record.

    Raises:
        InvalidJob: the statement writes nothing, or writes the same values for each record.
    """
    if not _WRITE.match(statement):
        raise InvalidJob(
            f"the statement {statement!r} of a Cassandra sink does not write", remedy="pass an INSERT, UPDATE or DELETE"
        )
    if "?" not in statement and ":" not in statement:
        raise InvalidJob(
            f"the statement {statement!r} has no placeholders for values", remedy="write a ? for each value of a record"
        )


def check_table(connection: Connection, builder: ClusterBuilder, prepared: Any) -> None:
    """Check that the job may write to the table of a prepared statement.

    Raises:
        SinkError: the table has counters, or the user may not write to it.
    """
    column = prepared.column_metadata[0]
    keyspace, table = column.keyspace_name, column.table_name
    types = connection.execute(
        "SELECT column_name, type FROM system_schema.columns WHERE keyspace_name = %s AND table_name = %s",
        (keyspace, table),
    )
    counters = [row.column_name for row in types if row.type == "counter"]
    if counters:
        raise SinkError(
            f"{builder.shown}: {keyspace}.{table} has counters ({', '.join(counters)}). A repeated write would count twice",
            remedy="count in the job's state (key_by and reduce), and write the count into a bigint column",
        )
    if builder.user and not _may_write(connection, builder.user, f"{quoted(keyspace)}.{quoted(table)}"):
        raise SinkError(
            f"{builder.shown}: {builder.user!r} may not write to {keyspace}.{table}",
            remedy=f"grant modify on {keyspace}.{table} to {quoted(builder.user)}",
        )


def _may_write(connection: Connection, user: str, table: str) -> bool:
    """Return whether the user may write. Return True if the server does not use permissions, or does not let the user read them."""
    role = '"' + user.replace('"', '""') + '"'
    try:
        if connection.execute(f"LIST MODIFY PERMISSION ON {table} OF {role}"):
            return True
        return any(row.super for row in connection.execute(f"LIST ROLES OF {role}"))
    except Exception:
        return True
