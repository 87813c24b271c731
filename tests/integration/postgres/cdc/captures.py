"""A table whose changes are captured, and a reader of them that crashes now and then."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from penstock.common.types import Row, RowKind
from penstock.connectors.core.source import ReadBounds, ReaderContext, Split
from penstock.datastream.connectors.postgres import PostgresCdcSource
from tests.integration.postgres.tables import Table
from tools.servers.postgres import PostgresServer

FIELDS = {"id": int, "key": str, "n": int}
COLUMNS = "id bigint primary key, key text, n bigint not null default 0"


class CapturedTable(Table):
    """A table with a separate publication and slot."""

    def __init__(self, server: PostgresServer, columns: str = COLUMNS) -> None:
        super().__init__(server, columns)
        self.execute(f"create publication {self.name} for table {self.name}")

    def builder(self, fields: Any = FIELDS) -> Any:
        builder = PostgresCdcSource.builder().set_conninfo(self.server.conninfo).set_table(self.name, fields)
        return builder.set_slot_name(self.name).set_publication(self.name).set_heartbeat_interval(50)

    def load(self, chance: random.Random, count: int, most: int = 200) -> None:
        """Execute random transactions."""
        with psycopg.connect(self.server.conninfo) as connection:
            for _ in range(count):
                try:
                    self.change(connection, chance, most)
                except psycopg.Error:  # two transactions changed the same row
                    connection.rollback()
                if chance.random() < 0.1:
                    connection.rollback()
                else:
                    connection.commit()

    def change(self, connection: Any, chance: random.Random, most: int) -> None:
        for _ in range(chance.randrange(1, 5)):
            number, kind = chance.randrange(most), chance.randrange(8)
            if kind < 3:
                statement = f"insert into {self.name} values (%s, %s, 0) on conflict do nothing"
                connection.execute(statement, [number, f"k{number % 7}"])
            elif kind < 6:
                connection.execute(f"update {self.name} set n = n + 1 where id = %s", [number])
            elif kind == 6:
                connection.execute(f"delete from {self.name} where id = %s", [number])
            else:
                with connection.transaction(force_rollback=chance.random() < 0.1):
                    statement = f"update {self.name} set id = %s where id = %s and not exists (select from {self.name} where id = %s)"
                    other = chance.randrange(most)
                    connection.execute(statement, [other, number, other])

    def rows(self, columns: str = "*") -> list[Any]:
        return self.execute(f"select {columns} from {self.name} order by 1")

    def forget(self) -> None:
        """Drop the table and its slot: a remaining slot would keep the log forever."""
        self.execute(
            "select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = %s and active",
            [self.name],
        )
        for _ in range(100):
            found = self.execute(
                "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = %s and not active",
                [self.name],
            )
            if found or not self.execute("select from pg_replication_slots where slot_name = %s", [self.name]):
                break
        self.execute(f"drop publication if exists {self.name}")
        self.execute(f"set lock_timeout = '5s'; drop table {self.name}")


class Job:
    """A reader that behaves like a job: after each crash it continues from its newest checkpoint."""

    def __init__(self, source: Any, parallelism: int = 2) -> None:
        self.source = source
        self.parallelism = parallelism
        self.records: list[Any] = []
        self._checkpoint: Any = json.dumps({"enumerator": None, "splits": [], "records": 0})
        self._number = 0
        self._begin()

    def _begin(self) -> None:
        restored = json.loads(self._checkpoint)
        self.enumerator = self.source.create_enumerator()
        self.enumerator.parallelism = self.parallelism
        self.enumerator.restore(restored["enumerator"])
        del self.records[restored["records"] :]
        self.reader = self.source.create_reader(ReaderContext(0, 1, "in"))
        self.splits: dict[str, tuple[Split, Any]] = {}
        for id, properties, position in restored["splits"]:
            self._open(Split(id, properties), position)

    def _open(self, split: Split, position: Any = None) -> None:
        travelled = Split(split.id, json.loads(json.dumps(split.properties)), split.size)
        self.splits[split.id] = travelled, self.reader.open_split(travelled, position)

    def step(self, most: int = 50) -> int:
        """Read some records of each split. Return the number of records."""
        came = 0
        for split in self.enumerator.discover():
            self._open(split)
        for id, (split, reader) in list(self.splits.items()):
            batch = reader.read(ReadBounds(max_records=most))
            values = [] if batch is None else batch.rows().values
            came += len(values)
            self.records += values
            if reader.finished:
                del self.splits[id]
                self.enumerator.on_split_ended(split, json.loads(json.dumps(reader.position)))
        return came

    def checkpoint(self) -> None:
        self._number += 1
        self.reader.snapshot(self._number)
        splits = [(id, split.properties, reader.position) for id, (split, reader) in self.splits.items()]
        snapshot = {"enumerator": self.enumerator.snapshot(), "splits": splits, "records": len(self.records)}
        self._checkpoint = json.dumps(snapshot)
        self.reader.notify_checkpoint_complete(self._number)

    def die(self) -> None:
        self.close()
        self._begin()

    def close(self) -> None:
        for _, reader in self.splits.values():
            reader.close()

    def until(self, condition: Callable[[], bool]) -> None:
        import time

        deadline = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain; the last records: {self.records[-3:]}"
            if not self.step():
                time.sleep(0.005)


def applied(records: list[Row]) -> list[tuple[Any, ...]]:
    """Return the table that results from rows of kind "upsert". Each row must fit the table's state."""
    table: dict[Any, tuple[Any, ...]] = {}
    for row in records:
        key, kind = row[0], row.get_row_kind()
        if kind is RowKind.INSERT:
            assert key not in table, f"{row} comes a second time"
            table[key] = tuple(row)
        elif kind is RowKind.DELETE:
            del table[key]
        else:
            assert kind is RowKind.UPDATE_AFTER
            table[key] = tuple(row)
    return [table[key] for key in sorted(table)]


def updates(records: list[Row]) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in records if row.get_row_kind() is RowKind.UPDATE_AFTER]


@pytest.fixture(scope="module")
def logical(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """Start a server with logical replication."""
    root = tmp_path_factory.mktemp(f"logical-{uuid.uuid4().hex[:6]}")
    with PostgresServer(root, is_logical=True) as server:
        yield server
