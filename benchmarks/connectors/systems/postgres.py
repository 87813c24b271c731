"""Postgres: a server with `wal_level=logical`; psycopg without Penstock."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row

from benchmarks.connectors import job
from benchmarks.connectors.case import Case
from benchmarks.connectors.cost import Cost, consumed, timed
from benchmarks.connectors.records import BATCH, FIELDS, expect, parts, rows
from penstock.datastream.connectors.postgres import DeliveryGuarantee, PostgresCdcSource, PostgresSink, PostgresSource
from tools.servers.postgres import PostgresServer

PER_TRANSACTION = 100_000
PER_CHANGE = 1_000
"""Rows per captured transaction."""
_COLUMNS = "sensor_id text, ts bigint primary key, temp double precision"
_INSERT = "insert into {} (sensor_id, ts, temp) values (%s, %s, %s)"
_UPSERT = f"{_INSERT} on conflict (ts) do update set sensor_id = excluded.sensor_id, temp = excluded.temp"


@contextmanager
def postgres(folder: Path) -> Iterator[list[Case]]:
    with PostgresServer(folder, wal_level="logical", max_replication_slots="50") as server:
        tables = _Tables(server)
        select = "psycopg: a cursor of the server, 10,000 rows at a time, as dicts"
        yield [
            Case("postgres.source", partial(_read, tables), partial(_select, tables), select),
            Case("postgres.cdc-rows", partial(_captured_rows, tables), partial(_select, tables), select, share=0.4),
            Case("postgres.cdc-changes", partial(_captured, tables), share=0.2),
            Case(
                "postgres.sink-exactly-once",
                lambda count: _write(tables, count, DeliveryGuarantee.EXACTLY_ONCE, ()),
                lambda count: _bare(tables, count, _copied),
                f"psycopg: COPY, a transaction for every {PER_TRANSACTION:,}",
            ),
            Case(
                "postgres.sink-at-least-once",
                lambda count: _write(tables, count, DeliveryGuarantee.AT_LEAST_ONCE, ("ts",)),
                lambda count: _bare(tables, count, _upserted),
                "psycopg: executemany of INSERT … ON CONFLICT, 5,000 rows at a time",
                share=0.2,
            ),
        ]


class _Tables:
    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self._numbers = itertools.count()
        self._filled: dict[int, str] = {}

    def new(self) -> str:
        name = f"readings_{next(self._numbers)}"
        self.execute(f"create table {name} ({_COLUMNS})")
        return name

    def filled(self, count: int) -> str:
        """Return the name of a table with this many readings."""
        if count not in self._filled:
            name = self._filled[count] = self.new()
            _copied(self.server, name, count)
            self.execute(f"vacuum analyze {name}")
        return self._filled[count]

    def execute(self, statement: str) -> list[Any]:
        with psycopg.connect(self.server.conninfo, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def check(self, name: str, count: int) -> None:
        expect(self.execute(f"select count(*) from {name}"), [(count,)], "rows written")
        self.execute(f"drop table {name}")


def _read(tables: _Tables, count: int) -> Cost:
    name = tables.filled(count)
    return job.read(PostgresSource(tables.server.conninfo, name, FIELDS, key="ts", splits=1), count)


def _select(tables: _Tables, count: int) -> Cost:
    return consumed(count, _selected(tables.server, tables.filled(count)))


def _selected(server: PostgresServer, name: str) -> Iterator[list[Any]]:
    with (
        psycopg.connect(server.conninfo) as connection,
        connection.cursor("bare", row_factory=dict_row, withhold=False) as cursor,
    ):
        cursor.execute(f"select sensor_id, ts, temp from {name} order by ts", binary=True)
        while found := cursor.fetchmany(BATCH):
            yield found


def _captured_rows(tables: _Tables, count: int) -> Cost:
    """Measure a source that captures the rows that exist at its start."""
    name = tables.filled(count)
    with _publication(tables, name) as slot:
        return job.read(_cdc(tables, name, slot), count, form="rows")


def _captured(tables: _Tables, count: int) -> Cost:
    """Measure a source that captures inserts that the slot has kept since its creation."""
    name = tables.new()
    with _publication(tables, name) as slot:
        tables.execute(f"select pg_create_logical_replication_slot('{slot}', 'pgoutput')")
        with psycopg.connect(tables.server.conninfo) as connection, connection.cursor() as cursor:
            for part in parts(rows(count), PER_CHANGE):
                with cursor.copy(f"copy {name} (sensor_id, ts, temp) from stdin") as copy:
                    for row in part:
                        copy.write_row(tuple(row.values()))
                connection.commit()
        cost = job.read(_cdc(tables, name, slot, "latest"), count, form="rows")
    tables.check(name, count)
    return cost


def _cdc(tables: _Tables, name: str, slot: str, startup: str = "initial") -> PostgresCdcSource:
    source = PostgresCdcSource.builder().set_conninfo(tables.server.conninfo).set_table(name, FIELDS)
    return source.set_slot_name(slot).set_publication(slot).set_startup(startup).build()


@contextmanager
def _publication(tables: _Tables, name: str) -> Iterator[str]:
    """Yield the name of a publication and its slot, and drop both at the end."""
    slot = f"{name}_slot"
    tables.execute(f"create publication {slot} for table {name}")
    try:
        yield slot
    finally:
        tables.execute(f"drop publication {slot}")
        ended = (
            f"select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = '{slot}' and active"
        )
        tables.execute(ended)
        found = f"from pg_replication_slots where slot_name = '{slot}'"
        for _ in range(1000):
            tables.execute(f"select pg_drop_replication_slot(slot_name) {found} and not active")
            if not tables.execute(f"select slot_name {found}"):
                break


def _write(tables: _Tables, count: int, guarantee: DeliveryGuarantee, key: tuple[str, ...]) -> Cost:
    name = tables.new()
    cost = job.write(PostgresSink(tables.server.conninfo, name, FIELDS, guarantee=guarantee, key=key), count)
    tables.check(name, count)
    return cost


def _bare(tables: _Tables, count: int, work: Any) -> Cost:
    name = tables.new()
    cost = timed(count, partial(work, tables.server, name, count))
    tables.check(name, count)
    return cost


def _copied(server: PostgresServer, name: str, count: int) -> None:
    with psycopg.connect(server.conninfo) as connection, connection.cursor() as cursor:
        for part in parts(rows(count), PER_TRANSACTION):
            with cursor.copy(f"copy {name} (sensor_id, ts, temp) from stdin") as copy:
                for row in part:
                    copy.write_row(tuple(row.values()))
            connection.commit()


def _upserted(server: PostgresServer, name: str, count: int) -> None:
    with psycopg.connect(server.conninfo) as connection, connection.cursor() as cursor:
        for part in parts(rows(count), 5_000):
            cursor.executemany(_UPSERT.format(name), [tuple(row.values()) for row in part])
            connection.commit()
