"""`JdbcSink` as PyFlink programs use it, on every database."""

from __future__ import annotations

import datetime
import decimal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy

from penstock.common.errors import PenstockError, SinkError
from penstock.common.typeinfo import Types
from penstock.common.types import Row
from penstock.connectors.core.sink import WriterContext
from penstock.connectors.sql.jdbc.sink import JdbcSink as Made
from penstock.datastream.connectors.jdbc import JdbcConnectionOptions, JdbcExecutionOptions, JdbcSink
from tests.in_process import environment, run
from tests.integration.sql.tables import Table
from tools.servers.mariadb import MariaDbServer

FIELDS = Types.ROW_NAMED(["id", "key"], [Types.LONG(), Types.STRING()])


def connection(url: str) -> JdbcConnectionOptions:
    """Return the options as JDBC has them."""
    builder = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_driver_name("org.example.Driver")
    if url.startswith("sqlite"):
        return builder.with_url(f"jdbc:sqlite:{url.removeprefix('sqlite:///')}").build()
    parsed = sqlalchemy.make_url(url)
    name = "postgresql" if parsed.get_backend_name() == "postgresql" else "mariadb"
    builder = builder.with_url(f"jdbc:{name}://{parsed.host}:{parsed.port}/{parsed.database}")
    return builder.with_user_name(str(parsed.username)).with_password(str(parsed.password)).build()


def sink(table: Table, sql: str = "", fields: Any = FIELDS, **options: int) -> Made:
    given = JdbcExecutionOptions.builder()
    for name, value in options.items():
        getattr(given, f"with_{name}")(value)
    sql = sql or f"insert into {table.name} values (?, ?)"
    return JdbcSink.sink(sql, fields, connection(table.url), given.build())


def opened(made: Made) -> Any:
    return made.create_writer(WriterContext(0, 1, 0, "sink", "job"), [])


def rows(*ids: int) -> list[Row]:
    return [Row(n, f"k{n}") for n in ids]


def test_records_are_sent_in_batches_and_at_checkpoints(table: Table) -> None:
    made = sink(table, batch_size=3)
    made.validate()
    writer = opened(made)
    writer.write(rows(1, 2), None, 0)
    assert table.ids() == []
    writer.write(rows(3, 4), None, 0)
    assert table.ids() == [1, 2, 3]
    assert writer.next_processing_time(1000) is None
    writer.prepare_commit(1)
    assert table.rows() == [(1, "k1"), (2, "k2"), (3, "k3"), (4, "k4")]
    writer.write(rows(5), None, 0)
    writer.finish()
    assert table.ids() == [1, 2, 3, 4, 5]
    writer.close()


def test_records_are_sent_when_the_interval_is_over(table: Table) -> None:
    writer = opened(sink(table, batch_interval_ms=200))
    writer.write(rows(1), None, 0)
    assert writer.next_processing_time(5_000) == 5_200
    writer.advance_processing_time(5_200)
    assert table.ids() == [1]
    writer.close()


def test_an_own_upsert_statement_and_texts_with_question_marks(table: Table) -> None:
    quote = "`key`" if "mysql" in table.url else "key"
    instead = f"on duplicate key update {quote} = values({quote})"
    if "mysql" not in table.url:
        instead = "on conflict (id) do update set key = excluded.key"
    joined = "concat('?%s%', ?)" if "mysql" in table.url else "'?%s%' || ?"
    made = sink(table, f"insert into {table.name} (id, {quote}) values (?, {joined}) {instead} -- ?")
    made.validate()
    writer = opened(made)
    for text in ("a", "b"):
        writer.write([(1, text), (2, text)], None, 0)
        writer.prepare_commit(1)
    assert table.rows() == [(1, "?%s%b"), (2, "?%s%b")]
    writer.close()


def test_updates_and_deletes(table: Table) -> None:
    table.add(1, 2, 3)
    quote = "`key`" if "mysql" in table.url else "key"
    one = Types.ROW([Types.STRING(), Types.LONG()])
    for sql, fields, record in (
        (f"update {table.name} set {quote} = ? where id = ?", one, ("new", 2)),
        (f"delete from {table.name} where id = ?", Types.ROW([Types.LONG()]), (3,)),
    ):
        made = sink(table, sql, fields)
        made.validate()
        writer = opened(made)
        writer.write([record], None, 0)
        writer.prepare_commit(1)
        writer.close()
    assert table.rows() == [(1, "k1"), (2, "new")]


def test_values_of_many_kinds(url: str) -> None:
    zone = "timestamptz" if url.startswith("postgresql") else "datetime(6)"
    plain, raw = ("timestamp", "bytea") if url.startswith("postgresql") else ("datetime(6)", "longblob")
    double = "double precision" if url.startswith("postgresql") else "double"
    text = "text" if url.startswith("postgresql") else "longtext"
    table = Table(
        url,
        f"id bigint, x {double}, price decimal(9, 2), day date, moment {plain}, zoned {zone}, raw {raw}, note {text}, flag boolean",
    )
    at = datetime.datetime(2013, 7, 1, 12, 0, 0, 123456)
    large, smile = b"\x00\xff" * 500_000, "😀" * 250_000
    fields = Types.ROW([Types.LONG()] * 9)
    made = sink(table, f"insert into {table.name} values (?, ?, ?, ?, ?, ?, ?, ?, ?)", fields)
    writer = opened(made)
    zoned = at.replace(tzinfo=datetime.UTC)
    writer.write(
        [
            Row(1, 0.1, decimal.Decimal("1.50"), at.date(), at, zoned, large, smile, True),
            Row(
                np.int64(2),
                np.float64(0.1),
                None,
                None,
                np.datetime64(at),
                None,
                bytearray(b"x"),
                np.str_("ä"),
                np.bool_(False),
            ),
        ],
        None,
        0,
    )
    writer.prepare_commit(1)
    first, second = table.rows()
    assert [type(value)(value) if index != 2 else float(value) for index, value in enumerate(first) if index not in (3, 4, 5)] == [
        1, 0.1, 1.5, large, smile, True
    ]  # fmt: skip
    assert str(first[3]) == "2013-07-01"
    assert {str(first[4]), str(first[5])[:26]} == {"2013-07-01 12:00:00.123456"}
    assert (second[0], second[1], second[2], second[6], second[7], second[8]) == (2, 0.1, None, b"x", "ä", False)
    assert str(second[4]) == "2013-07-01 12:00:00.123456"
    writer.close()


def test_a_record_that_the_database_rejects_is_an_error_and_its_batch_is_not_written(table: Table) -> None:
    table.add(7)
    writer = opened(sink(table, max_retries=3))
    writer.write(rows(*range(10)), None, 0)
    began = time.monotonic()
    with pytest.raises(SinkError, match=r"(?s)such as \{'id': 7, 'key': 'k7'\}"):
        writer.prepare_commit(1)
    assert time.monotonic() - began < 5
    assert table.ids() == [7]


@pytest.mark.parametrize(
    ("sql", "words"),
    [("insert into nothing values (?, ?)", "nothing"), ("insert into {} (id, wrong) values (?, ?)", "wrong"), ("insert nonsense ? ?", "(?i)syntax")],
)  # fmt: skip
def test_statements_that_the_database_rejects_are_errors_at_the_start(table: Table, sql: str, words: str) -> None:
    with pytest.raises(SinkError, match=words):
        sink(table, sql.format(table.name)).validate()


def test_a_pyflink_program_runs(table: Table, tmp_path: Path) -> None:
    env = environment(tmp_path)
    env.set_parallelism(2)
    stream = env.from_collection([Row(n, f"k{n}") for n in range(500)], FIELDS)
    stream.add_sink(sink(table, batch_size=100, batch_interval_ms=50))
    run(env)
    assert table.ids() == list(range(500))


@pytest.mark.mariadb
def test_a_server_that_returns_within_the_retries_gets_all_records(tmp_path: Path) -> None:
    with MariaDbServer(tmp_path) as server:
        table = Table(server.url)
        writer = opened(sink(table, max_retries=5))
        writer.write(rows(1), None, 0)
        writer.prepare_commit(1)
        server.kill()
        back = threading.Timer(1.0, server.restart)
        back.start()
        writer.write(rows(2, 3), None, 0)
        writer.prepare_commit(2)
        back.join()
        assert table.ids() == [1, 2, 3]
        server.kill()
        once = opened(sink(table, max_retries=0))
        once.write(rows(4), None, 0)
        with pytest.raises(SinkError, match="check that the server runs"):
            once.prepare_commit(3)


@pytest.mark.mariadb
def test_a_missing_right_of_the_user_is_an_error_at_the_start(mariadb: MariaDbServer, tmp_path: Path) -> None:
    table = Table(mariadb.url)
    user = f"u{table.name}"
    table.execute(f"create user {user} identified by 'secret'")
    table.execute(f"grant select on test.{table.name} to {user}")
    secret = tmp_path / "password"
    secret.write_text("secret\n")
    builder = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_user_name(user).with_password_file(str(secret))
    options = builder.with_url(f"jdbc:mariadb://127.0.0.1:{mariadb.port}/test").build()
    with pytest.raises(PenstockError, match="INSERT command denied") as caught:
        JdbcSink.sink(f"insert into {table.name} values (?, ?)", FIELDS, options).validate()
    assert "GRANT" in caught.value.remedy
