"""PyFlink's names for JDBC: options, URLs, placeholders."""

from __future__ import annotations

import pickle
import sqlite3
import traceback
from pathlib import Path

import pytest

from penstock.common.errors import InvalidJob
from penstock.common.typeinfo import Types
from penstock.connectors.core.sink import WriterContext
from penstock.connectors.sql.databases import KNOWN
from penstock.connectors.sql.jdbc.urls import sqlalchemy_url
from penstock.connectors.sql.marks import count_marks, with_marks
from penstock.datastream.connectors.jdbc import JdbcConnectionOptions, JdbcExecutionOptions, JdbcSink

BUILDER = JdbcConnectionOptions.JdbcConnectionOptionsBuilder
ROW = Types.ROW([Types.LONG(), Types.STRING()])


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("jdbc:mysql://db/shop", "mysql+pymysql://job:s3cret@db:3306/shop"),
        ("jdbc:mysql://db:3307/shop?useSSL=false&serverTimezone=UTC", "mysql+pymysql://job:s3cret@db:3307/shop"),
        ("jdbc:mariadb://other:x@db/shop", "mariadb+pymysql://other:x@db:3306/shop"),
        ("jdbc:mysql://db/shop?user=a&password=b", "mysql+pymysql://a:b@db:3306/shop"),
        ("jdbc:postgresql://db/shop?sslmode=require", "postgresql+psycopg://job:s3cret@db:5432/shop?sslmode=require"),
        (
            "jdbc:postgresql://[::1]:5433/shop?currentSchema=a",
            "postgresql+psycopg://job:s3cret@[::1]:5433/shop?options=-csearch_path%3Da",
        ),
        ("jdbc:postgresql:shop", "postgresql+psycopg://job:s3cret@localhost:5432/shop"),
        ("jdbc:sqlite:/data/a.db", "sqlite:////data/a.db"),
        ("jdbc:sqlite:a.db", "sqlite:///a.db"),
        ("mysql+mysqldb://db/shop", "mysql+mysqldb://job:s3cret@db/shop"),
    ],
)
def test_jdbc_urls_become_sqlalchemy_urls(url: str, expected: str) -> None:
    assert sqlalchemy_url(url, "job", "s3cret") == expected


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("jdbc:oracle:thin:@db:1521/x", "oracle.oracledb://"),
        ("jdbc:sqlserver://db;databaseName=x", "mssql.pyodbc://"),
        ("jdbc:mysql://a,b/shop", "several hosts"),
        ("jdbc:mysql://db:port/shop", "cannot be parsed"),
        ("jdbc:mysql://db/shop?useSSL=true", "useSSL=.*ssl_ca="),
    ],
)
def test_an_error_about_an_unsupported_url_shows_the_form_for_sqlalchemy(url: str, words: str) -> None:
    with pytest.raises(InvalidJob, match=f"(?s){words}"):
        sqlalchemy_url(url, "job", None)


@pytest.mark.parametrize(
    ("dialect", "sql", "count", "made"),
    [
        ("mysql", "insert into t values (?, '?', \"?\", `?`, ?) /* ? */ -- ?", 2, "insert into t values (%s, '?', \"?\", `?`, %s) /* ? */ -- ?"),
        ("mysql", r"select 'it\'s ?', ?", 1, r"select 'it\'s ?', %s"),
        ("postgresql", r"select 'a\', ?", 1, r"select 'a\', %s"),
        ("postgresql", "select a ?? 'b' and c = ?", 1, "select a ? 'b' and c = %s"),
        ("mysql", "select 5 % 2, '100%', ?", 1, "select 5 %% 2, '100%%', %s"),
        ("mysql", "select '''?''', ?", 1, "select '''?''', %s"),
    ],
)  # fmt: skip
def test_placeholders_are_found_outside_of_quotes_and_comments(dialect: str, sql: str, count: int, made: str) -> None:
    assert count_marks(sql, dialect) == count
    assert with_marks(sql, "%s", dialect) == made


def test_options_have_flinks_defaults() -> None:
    for options in (JdbcExecutionOptions.defaults(), JdbcExecutionOptions.builder().build()):
        assert (options.get_batch_interval_ms(), options.get_batch_size(), options.get_max_retries()) == (0, 5_000, 3)
    made = JdbcExecutionOptions.builder().with_batch_interval_ms(1).with_batch_size(2).with_max_retries(4).build()
    assert (made.get_batch_interval_ms(), made.get_batch_size(), made.get_max_retries()) == (1, 2, 4)
    with pytest.raises(InvalidJob):
        JdbcExecutionOptions.builder().with_max_retries(-1).build()


def test_options_return_their_values_and_show_no_password() -> None:
    builder = BUILDER().with_url("jdbc:mysql://db/x").with_driver_name("com.mysql.cj.jdbc.Driver")
    options = builder.with_user_name("me").with_password("s3cret").build()
    assert (options.get_db_url(), options.get_driver_name()) == ("jdbc:mysql://db/x", "com.mysql.cj.jdbc.Driver")
    assert (options.get_user_name(), options.get_password()) == ("me", "s3cret")
    assert "s3cret" not in repr(options)
    with pytest.raises(InvalidJob, match="has no URL"):
        BUILDER().build()


def test_a_sink_is_picklable_and_checks_the_number_of_placeholders(tmp_path: Path) -> None:
    options = BUILDER().with_url(f"jdbc:sqlite:{tmp_path}/a.db").build()
    made = pickle.loads(pickle.dumps(JdbcSink.sink("insert into t values (?, ?)", ROW, options)))
    assert made.names == ("f0", "f1")
    assert JdbcSink.sink("insert into t values (?)", Types.TUPLE([Types.LONG()]), options).names == ("f0",)  # type: ignore[arg-type]
    with pytest.raises(InvalidJob, match="has 1 placeholders"):
        JdbcSink.sink("insert into t values (?)", ROW, options)
    with pytest.raises(InvalidJob, match="type_info"):
        JdbcSink.sink("insert into t values (?)", Types.LONG(), options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("url", "name"), [("mssql+pymssql://db/shop", "pymssql"), ("nodatabase://db/shop", "nodatabase")]
)
def test_a_driver_that_is_not_installed_is_named(url: str, name: str) -> None:
    with pytest.raises(InvalidJob, match=name):
        JdbcSink.sink("insert into t values (?, ?)", ROW, BUILDER().with_url(url).build()).validate()


def test_an_unknown_database_is_written_with_sqlalchemys_placeholders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(KNOWN, "sqlite")
    with sqlite3.connect(tmp_path / "a.db") as connection:
        connection.execute("create table t (id integer, at text)")
    options = BUILDER().with_url(f"jdbc:sqlite:{tmp_path}/a.db").build()
    writer = JdbcSink.sink("insert into t values (?, '10:20 ?' || ?)", ROW, options).create_writer(
        WriterContext(0, 1, 0, "sink", "job"), []
    )
    writer.write([(1, "x"), (2, "y")], None, 0)
    writer.prepare_commit(1)
    writer.close()
    with sqlite3.connect(tmp_path / "a.db") as connection:
        assert connection.execute("select * from t").fetchall() == [(1, "10:20 ?x"), (2, "10:20 ?y")]


@pytest.mark.parametrize(
    "url",
    [
        "jdbc:mysql://job:s3cret/2@db/shop",
        "jdbc:mysql://db/shop?trustCertificateKeyStorePassword=s3cret",
        "jdbc:postgresql://db/shop?sslpassword=s3cret",
        "mysql+pymysql://job@db:s3cret/shop",
        "s3cret",
    ],
)
def test_no_part_of_a_url_that_may_be_a_password_is_shown(url: str) -> None:
    options = BUILDER().with_url(url).with_user_name("job").build()
    with pytest.raises(InvalidJob) as caught:
        JdbcSink.sink("insert into t values (?, ?)", ROW, options)
    assert "s3cret" not in "".join(traceback.format_exception_only(caught.value))
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert "s3cret" not in repr(options)
