"""Follow a table on a standby, which learns of a transaction only when it replays the log of the primary."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psycopg
import pytest

from penstock.datastream.connectors.postgres import PostgresSource
from tests.integration.postgres.reading import opened, take
from tests.integration.postgres.tables import FIELDS, Table
from tools.servers.postgres import PostgresServer

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def standby(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    with PostgresServer(tmp_path_factory.mktemp("standby"), standby_of=postgres) as server:
        yield server


def wait_until_replayed(primary: PostgresServer, standby: PostgresServer) -> None:
    """Wait until the standby has replayed all commits of the primary, and the records before them."""
    with psycopg.connect(primary.conninfo, autocommit=True) as connection:
        (logged,) = connection.execute("select pg_current_wal_flush_lsn()").fetchone() or ()
    deadline = time.monotonic() + 20
    with psycopg.connect(standby.conninfo, autocommit=True) as connection:
        while connection.execute("select pg_last_wal_replay_lsn() >= %s::pg_lsn", [logged]).fetchone() != (True,):
            assert time.monotonic() < deadline, f"the standby has not replayed the log up to {logged}"
            time.sleep(0.01)


@pytest.mark.parametrize("first", ["the late transaction", "the other transaction"])
def test_a_transaction_that_commits_late_is_not_skipped(
    postgres: PostgresServer, standby: PostgresServer, first: str
) -> None:
    table = Table(postgres)
    source = PostgresSource(standby.conninfo, table.name, FIELDS, key="id", follow=10)
    wait_until_replayed(postgres, standby)
    [split] = source.create_enumerator().discover()
    reader = opened(source, split)
    inserted = f"insert into {table.name} values (%s, 'k')"
    with psycopg.connect(postgres.conninfo) as late, psycopg.connect(postgres.conninfo) as other:
        writes = [(late, 1), (other, 2)]
        for connection, key in writes if first == "the late transaction" else writes[::-1]:
            connection.execute(inserted, [key])
        other.commit()
        wait_until_replayed(postgres, standby)
        assert take(reader) == []
        assert take(reader) == []
        late.commit()
    wait_until_replayed(postgres, standby)
    assert take(reader) == [1, 2]


def test_the_source_continues_while_the_primary_is_idle(postgres: PostgresServer, standby: PostgresServer) -> None:
    table = Table(postgres)
    table.add(1, 2, 3)
    source = PostgresSource(standby.conninfo, table.name, FIELDS, key="id", follow=10)
    wait_until_replayed(postgres, standby)
    [split] = source.create_enumerator().discover()
    assert take(opened(source, split)) == [1, 2, 3]
