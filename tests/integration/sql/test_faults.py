"""A MariaDB that closes connections, crashes, pauses or rejects rows, and the errors before a job starts."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy

from penstock.common.errors import InvalidJob, PenstockError, SinkError
from penstock.connectors.sql.server import Server
from penstock.connectors.tables import commits
from penstock.connectors.tables.commits import NOTES
from penstock.datastream.connectors.sql import DeliveryGuarantee, SqlSink
from tests.committables import settled
from tests.integration.sql.tables import Table, run
from tests.integration.sql.test_sink import AT_LEAST_ONCE, BOTH, ends, voted
from tests.integration.sql.test_source import opened, take
from tools.servers.mariadb import MariaDbServer

pytestmark = pytest.mark.mariadb


@pytest.fixture
def table(mariadb: MariaDbServer) -> Table:
    return Table(mariadb.url)


def done(writer: Any, committer: Any, checkpoint: int) -> None:
    """Complete the checkpoint, with its commit."""
    votes = settled(writer.prepare_commit(checkpoint))
    if committer is not None:
        committer.commit(votes)


def cut_connections(table: Table) -> None:
    """Close all connections except the one that executes this."""
    for (number,) in table.execute("select id from information_schema.processlist where id <> connection_id()"):
        with suppress(sqlalchemy.exc.OperationalError):  # the connection has already ended
            table.execute(f"kill {number}")


@BOTH
def test_the_sink_reconnects_after_a_lost_connection(table: Table, guarantee: DeliveryGuarantee) -> None:
    writer, committer = ends(table.sink(key=["id"], guarantee=guarantee), table.name)
    for checkpoint in range(1, 4):
        votes = voted(writer, checkpoint, checkpoint)
        cut_connections(table)
        if committer is not None:
            committer.commit(votes)
    assert table.ids() == [1, 2, 3]


def test_a_connection_lost_before_the_commit_writes_nothing_and_the_retry_writes_all(table: Table) -> None:
    writer, committer = ends(table.sink(), table.name)
    votes = voted(writer, 1, *range(1000))
    carry_out, tries = committer._write, 0

    def torn(*arguments: Any) -> None:
        nonlocal tries
        tries += 1
        carry_out(*arguments)
        if tries < 3:
            cut_connections(table)  # after the rows and the note, before the commit
            assert table.ids() == []

    committer._write = torn
    committer.commit(votes)
    assert tries == 3
    assert table.ids() == list(range(1000))


def test_a_commit_whose_answer_is_lost_is_not_repeated(table: Table) -> None:
    """The transaction has succeeded, but the connection breaks before the committer gets the answer."""
    writer, committer = ends(table.sink(), table.name)
    votes = voted(writer, 1, 1, 2)
    committer.commit(votes)
    tries = 0
    transaction = committer._transaction

    class Deaf:
        def __enter__(self) -> None:
            self.real = transaction()
            self.real.__enter__()

        def __exit__(self, *about: Any) -> None:
            nonlocal tries
            tries += 1
            self.real.__exit__(*about)
            if tries == 1:
                cut_connections(table)
                committer._connection.exec_driver_sql("select 1")

    committer._transaction = Deaf
    committer.commit(voted(writer, 2, 3))
    assert tries == 2
    assert table.ids() == [1, 2, 3]


@BOTH
def test_a_deadlock_is_retried(table: Table, guarantee: DeliveryGuarantee) -> None:
    """Two transactions lock the same rows crosswise. The server ends one of them, either ours or the other."""
    table.add(1, 2)
    sink = table.sink(key=["id"], guarantee=guarantee)
    other = sink.server.connect(SinkError)
    other.exec_driver_sql(f"update {table.name} set `key` = 'x' where id = 2")
    writer, committer = ends(sink, table.name)
    writer.write([{"id": 1, "key": "ours"}, {"id": 2, "key": "ours"}], None, 0)
    waiting = table.execute("select count(*) from information_schema.innodb_trx where trx_state = 'LOCK WAIT'")
    assert waiting == [(0,)]

    def cross() -> None:
        while table.execute("select count(*) from information_schema.innodb_trx where trx_state = 'LOCK WAIT'") == [
            (0,)
        ]:
            time.sleep(0.05)
        with suppress(sqlalchemy.exc.OperationalError):  # the server ended this transaction
            other.exec_driver_sql(f"update {table.name} set `key` = 'x' where id = 1")
        other.close()

    thread = threading.Thread(target=cross)
    thread.start()
    done(writer, committer, 1)
    thread.join(30)
    assert table.rows() == [(1, "ours"), (2, "ours")]


@BOTH
def test_a_server_that_is_killed_and_restarted_loses_and_repeats_nothing(
    tmp_path: Path, guarantee: DeliveryGuarantee
) -> None:
    with MariaDbServer(tmp_path) as server:
        table = Table(server.url)
        writer, committer = ends(table.sink(key=["id"], guarantee=guarantee), table.name)
        first = voted(writer, 1, 1)
        if committer is not None:
            committer.commit(first)
        server.kill()
        back = threading.Timer(1.0, server.restart)
        back.start()
        votes = voted(writer, 2, 2)
        if committer is not None:
            committer.commit(votes)
            committer.commit(votes)
        back.join()
        assert table.ids() == [1, 2]
        if committer is not None:
            assert table.execute(f"select count(*) from {NOTES} where checkpoint > 0") == [(2,)]


@BOTH
def test_a_paused_server_counts_as_lost_and_is_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guarantee: DeliveryGuarantee
) -> None:
    with MariaDbServer(tmp_path) as server:
        table = Table(server.url)
        url = f"{server.url}?read_timeout=1&connect_timeout=1"
        sink = SqlSink(url, table.name, {"id": int, "key": str}, key=["id"], guarantee=guarantee)
        writer, committer = ends(sink, table.name)
        first = voted(writer, 1, 1)
        if committer is not None:
            committer.commit(first)
        server.pause()
        on = threading.Timer(2.5, server.resume)
        on.start()
        votes = voted(writer, 2, 2)
        if committer is not None:
            committer.commit(votes)
        on.join()
        assert table.ids() == [1, 2]


@BOTH
def test_a_server_that_remains_unavailable_is_an_error_after_the_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guarantee: DeliveryGuarantee
) -> None:
    monkeypatch.setattr(commits, "PATIENCE_S", 1.0)
    monkeypatch.setattr(Server, "patience_s", 1.0)
    with MariaDbServer(tmp_path) as server:
        table = Table(server.url)
        rows, committer = ends(table.sink(guarantee=guarantee), table.name)
        server.kill()
        rows.write([{"id": 1, "key": "a"}], None, 0)
        with pytest.raises(SinkError, match=r"(?s)check that the server runs"):
            done(rows, committer, 1)


def test_giving_up_a_commit_ends_it_although_it_hangs(table: Table) -> None:
    table.add(1)
    holder = table.sink().server.connect(SinkError)
    holder.exec_driver_sql(f"update {table.name} set `key` = 'held' where id = 1")
    rows, committing = ends(table.sink(key=["id"]), table.name)
    votes = voted(rows, 1, 1)
    ended: list[Exception] = []

    def commit() -> None:
        try:
            committing.commit(votes)
        except Exception as error:
            ended.append(error)

    thread = threading.Thread(target=commit)
    thread.start()
    while table.execute("select count(*) from information_schema.innodb_trx where trx_state = 'LOCK WAIT'") == [(0,)]:
        time.sleep(0.02)
    committing.give_up()
    committing.interrupt()
    thread.join(10)
    holder.close()
    assert "given up" in str(ended[0])
    assert table.rows() == [(1, "k1")]
    ends(table.sink(key=["id"]), table.name)[1].commit(votes)


@BOTH
def test_a_row_above_the_servers_limit_is_an_error(tmp_path: Path, guarantee: DeliveryGuarantee) -> None:
    with MariaDbServer(tmp_path, max_allowed_packet="2M") as server:
        table = Table(server.url, "id bigint primary key, `key` longtext")
        rows, committer = ends(table.sink(guarantee=guarantee), table.name)
        rows.write([{"id": 1, "key": "x" * 1_500_000}], None, 0)
        done(rows, committer, 1)
        assert table.ids() == [1]
        rows.write([{"id": 2, "key": "x"}, {"id": 3, "key": "x" * 3_000_000}], None, 0)
        with pytest.raises(SinkError, match=r"3,000,\d+ bytes.*max_allowed_packet.*'id': 3"):
            done(rows, committer, 2)
        assert table.ids() == [1]


@pytest.mark.parametrize(
    ("columns", "value", "words"),
    [
        ("id bigint, `key` varchar(3)", "long", "Data too long"),
        ("id bigint, `key` varchar(30) character set latin1", "😀", "Incorrect string value"),
        ("id bigint, `key` varchar(30) not null", None, "cannot be null"),
        ("id bigint, `key` enum('a', 'b')", "c", "Data truncated"),
    ],
)
def test_values_that_do_not_fit_are_errors_where_the_server_is_not_strict(
    tmp_path: Path, mariadb: MariaDbServer, columns: str, value: Any, words: str
) -> None:
    """No value is truncated, and no character becomes a question mark."""
    run(mariadb.url, "set global sql_mode = ''")
    try:
        table = Table(mariadb.url, columns)
        for guarantee in DeliveryGuarantee.EXACTLY_ONCE, AT_LEAST_ONCE:
            rows, committer = ends(table.sink(guarantee=guarantee), table.name)
            rows.write([{"id": 1, "key": "a"}, {"id": 2, "key": value}], None, 0)
            with pytest.raises(SinkError, match=rf"(?s)such as \{{'id': 2, 'key': .*{words}"):
                done(rows, committer, 1)
        assert table.ids() == []
    finally:
        run(mariadb.url, "set global sql_mode = default")


@pytest.mark.parametrize(
    ("columns", "fields", "options", "message"),
    [
        ("", {"id": int, "extra": int}, {}, "no column 'extra'"),
        ("", {"id": str, "key": str}, {}, "column 'id' has the type BIGINT.*, but the job's field has string"),
        ("", {"key": str}, {}, "column 'id' is required"),
        ("", {"id": int, "key": str}, {"key": ["key"]}, "no primary key or unique index"),
        (
            "id int primary key, `key` text",
            {"id": int},
            {},
            "column 'id' has the type INTEGER.*, but the job's field has int64",
        ),
        ("id bigint unsigned primary key", {"id": int}, {}, "unsigned=True.*, but the job's field has int64"),
        (
            "id bigint primary key, x float",
            {"id": int, "x": float},
            {},
            "column 'x' has the type FLOAT.*, but the job's field has double",
        ),
        (
            "id bigint, x double generated always as (id + 1)",
            {"id": int, "x": float},
            {},
            "the server generates column 'x'",
        ),
        (
            "id bigint primary key, `key` varchar(9) unique",
            {"id": int, "key": str},
            {"key": ["id"]},
            "another unique index, of key",
        ),
        ("id bigint primary key) engine = (", {}, {}, ""),
    ],
)
def test_fields_that_do_not_fit_are_refused_at_the_start(
    mariadb: MariaDbServer, columns: str, fields: Any, options: Any, message: str
) -> None:
    if not message:
        table = Table(mariadb.url)
        table.execute(f"alter table {table.name} engine = MyISAM")
        fields, message = {"id": int}, "has the engine MyISAM, which has no transactions"
    else:
        table = Table(mariadb.url, *([columns] if columns else []))
    with pytest.raises(PenstockError, match=message):
        table.sink(fields, **options).validate()


def test_columns_that_accept_all_values_fit(mariadb: MariaDbServer) -> None:
    table = Table(
        mariadb.url,
        "id bigint unsigned auto_increment primary key, a int unsigned not null, b smallint, c float, d decimal(20, 4), e varchar(9) not null, unique (a, e)",
    )
    schema = pa.schema(
        [("a", pa.uint32()), ("b", pa.int16()), ("c", pa.float32()), ("d", pa.decimal128(9, 2)), ("e", pa.string())]
    )
    table.sink(schema, key=["a", "e"]).validate()


def test_missing_servers_users_and_tables_are_errors_at_the_start(
    table: Table, mariadb: MariaDbServer, tmp_path: Path
) -> None:
    secret = tmp_path / "password"
    secret.write_text("wrong\n")
    user = f"u{table.name}"
    table.execute(f"create user {user} identified by 'secret'")

    def refused(url: str, name: str = table.name, **options: Any) -> str:
        with pytest.raises(PenstockError) as caught:
            SqlSink(url, name, {"id": int, "key": str}, **options).validate()
        assert "secret" not in str(caught.value)
        return str(caught.value)

    assert "check user and password" in refused(mariadb.url_of("admin"), password_file=str(secret))
    assert "cannot be read" in refused(mariadb.url_of("admin"), password_file=str(tmp_path / "none"))
    assert "check that the server runs" in refused("mysql+pymysql://admin@127.0.0.1:1/test")
    assert "create the database" in refused(mariadb.url_of("admin", mariadb.password, "nowhere"))
    assert "table 'nothing' does not exist" in refused(mariadb.url, "nothing")
    assert "cannot be parsed" in refused("what=ever")
    assert "does not support the database oracle" in refused("oracle+oracledb://a@b/c")
    assert "parameters after '?'" in refused(f"{mariadb.url}?what=ever")
    secret.write_text("secret\n")
    given = mariadb.url_of(user), table.name
    assert "GRANT this right to the job's user" in refused(*given, password_file=str(secret))
    table.execute(f"grant select on test.{table.name} to {user}")
    assert "INSERT command denied" in refused(*given, password_file=str(secret))
    table.execute(f"grant insert on test.{table.name} to {user}")
    assert "UPDATE command denied" in refused(*given, password_file=str(secret), key=["id"], guarantee=AT_LEAST_ONCE)
    table.execute(f"drop table if exists {NOTES}")
    assert "let another user create the table, and GRANT SELECT, INSERT, UPDATE, DELETE" in refused(
        *given, password_file=str(secret)
    )
    SqlSink(*given, {"id": int, "key": str}, guarantee=AT_LEAST_ONCE, password_file=str(secret)).validate()
    table.sink().validate()
    assert table.execute(f"show tables like '{NOTES}'") == []  # a check creates nothing
    table.sink().create_committer({}, job_id="a", uid="b")
    assert "GRANT SELECT, INSERT, UPDATE, DELETE" in refused(*given, password_file=str(secret))
    table.execute(f"grant select, insert, update, delete on test.{NOTES} to {user}")
    sink = SqlSink(*given, {"id": int, "key": str}, password_file=str(secret))
    sink.validate()
    rows, committer = ends(sink, table.name)
    committer.commit(voted(rows, 1, 1))
    assert table.ids() == [1]


def test_a_source_continues_after_lost_connections_and_a_killed_server(tmp_path: Path) -> None:
    with MariaDbServer(tmp_path) as server:
        table = Table(server.url)
        table.add(*range(40))
        source = table.source(splits=1)
        [split] = source.create_enumerator().discover()
        reader = opened(source, split)
        seen = take(reader)
        cut_connections(table)
        seen += take(reader)
        server.kill()
        back = threading.Timer(0.5, server.restart)
        back.start()
        while not reader.finished:
            seen += take(reader)
        back.join()
        reader._reader.close()
        assert seen == list(range(40))


def test_exactly_once_needs_checkpoints(table: Table) -> None:
    with pytest.raises(InvalidJob, match="needs checkpoints"):
        table.sink().check_checkpoints(0, bounded=False)
    table.sink(guarantee=AT_LEAST_ONCE).check_checkpoints(0, bounded=False)


def test_a_prefix_index_of_keys_is_not_used_to_replace_rows(mariadb: MariaDbServer) -> None:
    """A row would otherwise replace a row whose key only starts with the same characters."""
    for index in ("unique (`key`(2))", "primary key (`key`(2))"):
        table = Table(mariadb.url, f"`key` varchar(20) not null, id bigint, {index}")
        with pytest.raises(SinkError, match="unique index on prefixes of key"):
            table.sink(key=["key"]).validate()


def test_views_and_notes_without_transactions_are_refused_at_the_start(tmp_path: Path) -> None:
    with MariaDbServer(tmp_path) as server:
        table, view = Table(server.url), Table(server.url)
        table.sink().create_committer({}, job_id="a", uid="b")
        table.execute(f"drop table {view.name}")
        table.execute(f"create view {view.name} as select * from {table.name}")
        with pytest.raises(SinkError, match="is a view"):
            view.sink().validate()
        view.sink(guarantee=AT_LEAST_ONCE).validate()
        table.sink().validate()
        table.execute(f"alter table {NOTES} engine = Aria")
        with pytest.raises(SinkError, match=f"{NOTES} has the engine Aria, which has no transactions"):
            table.sink().validate()
        with pytest.raises(SinkError, match=f"{NOTES} has the engine Aria, which has no transactions"):
            table.sink().create_committer({}, job_id="a", uid="b")


@BOTH
def test_a_read_only_server_is_refused_at_the_start(tmp_path: Path, guarantee: DeliveryGuarantee) -> None:
    with MariaDbServer(tmp_path) as server:
        table = Table(server.url)
        ends(table.sink(), table.name)
        table.execute("create user reader identified by 'secret'")
        table.execute("grant all on test.* to reader")
        sink = SqlSink(server.url_of("reader", "secret"), table.name, {"id": int, "key": str}, guarantee=guarantee)
        sink.validate()
        table.execute("set global read_only = 1")
        with pytest.raises(SinkError, match=r"(?s)read-only.*name the server that accepts writes"):
            sink.validate()
        assert table.ids() == []


@BOTH
def test_batches_use_statements_within_the_servers_limit(tmp_path: Path, guarantee: DeliveryGuarantee) -> None:
    with MariaDbServer(tmp_path, max_allowed_packet="128K") as server:
        table = Table(server.url, "id bigint primary key, `key` longtext")
        rows, committer = ends(table.sink(guarantee=guarantee), table.name)
        rows.write([{"id": number, "key": "x" * 1000} for number in range(1000)], None, 0)
        done(rows, committer, 1)
        assert table.ids() == list(range(1000))


def test_a_row_that_is_too_large_with_its_backslashes_is_an_error(tmp_path: Path) -> None:
    with MariaDbServer(tmp_path, max_allowed_packet="2M") as server:
        table = Table(server.url, "id bigint primary key, `key` longblob")
        rows, committer = ends(table.sink({"id": int, "key": bytes}), table.name)
        rows.write([{"id": 1, "key": b"\0'" * 600_000}], None, 0)
        with pytest.raises(SinkError, match=r"2,400,\d+ bytes.*max_allowed_packet.*'id': 1"):
            done(rows, committer, 1)


def test_zero_is_stored_as_zero_in_auto_increment_columns(mariadb: MariaDbServer) -> None:
    table = Table(mariadb.url, "id bigint auto_increment primary key, `key` varchar(20)")
    for checkpoint, key in enumerate(("a", "b"), 1):
        rows, committer = ends(table.sink(key=["id"]), table.name)
        rows.write([{"id": 0, "key": key}], None, 0)
        done(rows, committer, checkpoint)
    assert table.rows() == [(0, "b")]


def test_bytes_and_names_are_unchanged_with_any_quotes_of_the_server(tmp_path: Path) -> None:
    with MariaDbServer(tmp_path, sql_mode="ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT") as server:
        table = Table(server.url, 'id bigint primary key, "key" blob, "a%%b" text')
        sink = table.sink({"id": int, "key": bytes, "a%b": str}, key=["id"])
        sink.validate()
        rows, committer = ends(sink, table.name)
        rows.write([{"id": 1, "key": b"a\\'\"\0\xff", "a%b": "x\\'\"%s"}], None, 0)
        done(rows, committer, 1)
        assert table.rows() == [(1, b"a\\'\"\0\xff", "x\\'\"%s")]
