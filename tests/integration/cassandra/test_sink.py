"""Rows into a table: the last upsert wins, values of all types are stored, and invalid values are rejected."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import ipaddress
import uuid
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

from penstock.common.errors import InvalidJob, PenstockError, SinkError
from penstock.common.types import Row, RowKind
from penstock.connectors.cassandra.requests import Requests
from penstock.datastream.connectors.cassandra import (
    CassandraSink,
    CassandraTableSink,
    ClusterBuilder,
    ConsistencyLevel,
    MapperOptions,
)
from tests.in_process import environment, run
from tests.integration.cassandra.tables import KEYSPACE, Table, ends
from tools.servers.base.server import HOST
from tools.servers.cassandra import PASSWORD, CassandraServer

pytestmark = pytest.mark.cassandra


@pytest.fixture
def table(cassandra: CassandraServer) -> Table:
    return Table(cassandra)


def written(sink: CassandraTableSink, *records: Any) -> None:
    writer, committer = ends(sink)
    assert committer is None
    try:
        writer.write(list(records), None, 0)
        assert writer.prepare_commit(1) == []
    finally:
        writer.close()


def test_upserts_replace_rows_with_their_key_and_the_last_one_wins(table: Table) -> None:
    sink = table.sink()
    sink.validate()
    written(sink, *((n % 7, str(n)) for n in range(3_000)))
    assert table.rows() == {n % 7: str(n) for n in range(3_000)}


def test_a_write_that_was_lost_and_is_sent_again_replaces_nothing_newer(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cassandra import OperationTimedOut

    ask, lost = Requests._ask, 0

    def asking(requests: Requests, prepared: Any, write: Any) -> None:
        nonlocal lost
        if write.record in [(1, "old"), (2, "only")] and lost < 2:
            lost += 1
            with requests._changed:
                requests._under_way += 1
            later = [(1, "new"), (3, "other")]
            for record in later if lost == 1 else []:  # later rows overtake the lost ones
                newer = next(found for found in encoded if found.record == record)
                ask(requests, prepared, newer)
            requests._missed(OperationTimedOut(), write)
            return
        ask(requests, prepared, write)

    writer, _ = ends(table.sink())
    records = [(1, "old"), (2, "only"), (1, "new"), (3, "other")]
    encoded = writer._writes(records)
    monkeypatch.setattr(writer, "_writes", lambda records: encoded)
    monkeypatch.setattr(Requests, "_ask", asking)
    writer.write(records, None, 0)
    writer.prepare_commit(1)
    writer.close()
    assert lost == 2
    assert table.rows() == {1: "new", 2: "only", 3: "other"}


def test_records_are_tuples_rows_dicts_and_objects(table: Table) -> None:
    class Named(NamedTuple):
        id: int
        key: str

    @dataclasses.dataclass
    class Shape:
        key: str
        id: int

    records = [(1, "a"), [2, "b"], Row(3, "c"), Row(id=4, key="d"), Named(5, "e"), {"key": "f", "id": 6}, Shape("g", 7)]
    written(table.sink(), *records)
    assert "".join(value for _, value in sorted(table.rows().items())) == "abcdefg"
    statement = f"UPDATE {table.name} SET key = :key WHERE id = :id"
    written(table.sink(statement=statement), {"id": 1, "key": "A"}, ("B", 2))
    assert table.rows()[1] == "A"
    assert table.rows()[2] == "B"
    written(table.sink(statement=f"DELETE FROM {table.name} WHERE id = ?"), (1,), {"id": 2})
    assert sorted(table.rows()) == [3, 4, 5, 6, 7]


def test_options_set_the_time_to_live_and_the_handling_of_none(table: Table) -> None:
    written(table.sink(options=MapperOptions().ttl(1000)), (1, "a"), (2, "b"), (3, "c"))
    written(table.sink(options=MapperOptions().save_null_fields(False)), (1, None))
    written(table.sink(), (2, None))
    written(table.sink(options=MapperOptions().if_not_exists(True)), (3, "d"), (4, "e"))
    written(table.sink(options=MapperOptions().timestamp(1_000).tracing(True)), (4, "f"), (5, "g"))
    assert table.rows() == {1: "a", 2: None, 3: "c", 4: "e", 5: "g"}
    lives = {row.id: row.lives for row in table.execute("SELECT id, ttl(key) AS lives FROM {}")}
    assert 900 < lives[1] <= 1000
    assert lives[5] is None
    [five] = table.execute("SELECT writetime(key) AS at FROM {} WHERE id = 5")
    assert five.at == 1_000


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ((1, 5), "column 'key' is text, not int '5'"),
        (("x", "a"), "column 'id' is int, not str 'x'"),
        ((2**40, "a"), "column 'id' is int, not int '1099511627776'"),
        ((None, "a"), "column 'id' of the partition key is None"),
        ((1,), "it has 1 values, but the statement takes 2: id, key"),
        ({"id": 1}, "it has no 'key'"),
        (Row.of_kind(RowKind.DELETE, id=1, key="a"), "of kind DELETE"),
    ],
)
def test_a_record_that_does_not_fit_is_an_error_and_its_batch_is_not_sent(
    table: Table, record: Any, message: str
) -> None:
    for write_ahead in (False, True):
        writer, committer = ends(table.sink(write_ahead=write_ahead))
        with pytest.raises(SinkError, match=message) as caught:
            writer.write([(7, "good"), record], None, 0)
        assert str(record)[:20] in str(caught.value)
        assert "correct or filter out such records" in str(caught.value)
        writer.close()
        if committer is not None:
            committer.close()
    assert table.rows() == {}


def test_a_row_that_the_server_rejects_is_an_error_and_is_not_retried(table: Table) -> None:
    key = "x" * 70_000  # keys have at most 65,535 bytes
    other = Table(table.server, "id text PRIMARY KEY, key text")
    with pytest.raises(SinkError, match=r"rejects \('xxx.*65535") as caught:
        written(other.sink(), (key, "a"))
    assert "correct the statement or its rows" in str(caught.value)


class Everything(NamedTuple):
    id: uuid.UUID
    flag: bool
    small: int
    big: int
    huge: int
    x: float
    y: float
    price: decimal.Decimal
    day: datetime.date
    clock: datetime.time
    at: datetime.datetime
    lasts: datetime.timedelta
    raw: bytes
    word: str
    place: str
    tags: list[str]
    some: set[int]
    about: dict[str, int]
    pair: tuple[int, str]
    spot: dict[str, float]
    vector: list[float]
    none: str | None


ALL_COLUMNS = (
    "id uuid PRIMARY KEY, flag boolean, small smallint, big bigint, huge varint, x float, y double, price decimal, day date, clock time, at timestamp, "
    "lasts duration, raw blob, word ascii, place inet, tags list<text>, some set<int>, about map<text, int>, pair tuple<int, text>, "
    f"spot frozen<{KEYSPACE}.spot>, vector vector<float, 3>, none text"
)
AT = datetime.datetime(2013, 7, 1, 12, 0, 0, 123000)


def spotted(server: CassandraServer) -> Table:
    Table(server)
    server.execute(f"CREATE TYPE IF NOT EXISTS {KEYSPACE}.spot (lat double, lon double)")
    return Table(server, ALL_COLUMNS)


def value(**others: Any) -> Everything:
    plain = Everything(
        uuid.UUID(int=7),
        True,
        -3,
        2**40,
        2**80,
        0.5,
        0.1,
        decimal.Decimal("1.50"),
        AT.date(),
        AT.time(),
        AT,
        datetime.timedelta(minutes=1),
        b"\x00\xff",
        "plain",
        "10.0.0.1",
        ["a", "ä"],
        {1, 2},
        {"n": 1},
        (1, "one"),
        {"lat": 1.5, "lon": 2.5},
        [1.0, 2.0, 3.0],
        None,
    )
    return plain._replace(**others)


def test_values_of_all_types_come_back(cassandra: CassandraServer) -> None:
    table = spotted(cassandra)
    sink = table.sink(*Everything._fields)
    sink.validate()
    written(sink, value())
    [row] = table.execute("SELECT * FROM {}")
    found = row._asdict()
    assert found.pop("day").date() == AT.date()
    assert found.pop("clock").time() == AT.time()
    assert found.pop("lasts").nanoseconds == 60 * 10**9
    assert tuple(found.pop("spot")) == (1.5, 2.5)
    assert set(found.pop("some")) == {1, 2}
    assert dict(found.pop("about")) == {"n": 1}
    wanted = value()._asdict()
    assert found == {name: wanted[name] for name in found}


class NAType:
    """A stand-in for pandas' NAType, because pandas is not installed here."""


NAType.__module__ = "pandas._libs.missing"


def test_values_of_numpy_are_stored_by_their_type(cassandra: CassandraServer) -> None:
    table = spotted(cassandra)
    given = value(
        id=str(uuid.UUID(int=7)),
        flag=np.bool_(True),
        small=np.int16(-3),
        big=np.uint32(5),
        huge=np.int64(6),
        x=np.float32(0.5),
        y=np.float64(0.1),
        price=np.float64(1.1),
        day=np.datetime64("2013-07-01"),
        at=np.datetime64(AT),
        lasts=np.timedelta64(60, "s"),
        raw=bytearray(b"\x00\xff"),
        word=np.str_("plain"),
        tags=np.array(["a", "ä"]),
        some=np.array([1, 2]),
        vector=np.array([1, 2, 3], dtype=np.float32),
        none=NAType(),
    )
    written(table.sink(*Everything._fields), given, value(id=uuid.UUID(int=8), at=np.datetime64("NaT")))
    first, second = sorted(table.execute("SELECT * FROM {}"), key=lambda row: row.id)
    assert (first.flag, first.small, first.big, first.huge, first.x, first.y) == (True, -3, 5, 6, 0.5, 0.1)
    assert (first.price, first.at, first.tags, first.none) == (decimal.Decimal("1.1"), AT, ["a", "ä"], None)
    assert second.at is None


@pytest.mark.parametrize(
    ("field", "strange"),
    [
        ("flag", "false"),
        ("flag", 1),
        ("raw", 3),
        ("raw", "text"),
        ("small", 1.0),
        ("x", "1"),
        ("price", decimal.Decimal("NaN")),
        ("day", AT),
        ("day", 15887),
        ("at", "2013-07-01"),
        ("word", "ä"),
        ("tags", "abc"),
        ("tags", ["a", None]),
        ("some", [1, "2"]),
        ("spot", {"lat": 1.0, "length": 2.0}),
        ("vector", [1.0]),
        ("id", "seven"),
    ],
)
def test_a_value_that_could_be_taken_for_another_is_refused(
    cassandra: CassandraServer, everything: Table, field: str, strange: Any
) -> None:
    writer, _ = ends(everything.sink(*Everything._fields))
    with pytest.raises(SinkError, match=f"column '{field}' is "):
        writer.write([value(**{field: strange})], None, 0)
    writer.close()


@pytest.fixture(scope="module")
def everything(cassandra: CassandraServer) -> Table:
    return spotted(cassandra)


def refused(sink: CassandraTableSink) -> str:
    with pytest.raises(PenstockError) as caught:
        sink.validate()
    return str(caught.value)


def test_a_sink_that_does_not_fit_the_table_is_refused_at_the_start(table: Table) -> None:
    def by(statement: str) -> str:
        return refused(table.sink(statement=statement))

    assert "write the column names" in refused(table.sink("id", "extra"))
    assert "add all columns of the primary key" in refused(table.sink("key"))
    assert "create the table" in by(f"INSERT INTO {KEYSPACE}.nothing (id) VALUES (?)")
    assert "create the keyspace" in by("INSERT INTO nowhere.nothing (id) VALUES (?)")
    assert "correct the statement" in by(f"INSERT INTO {table.name} (id) VALUES ?")
    counts = Table(table.server, "id int PRIMARY KEY, n counter")
    assert "count in the job's state" in by(f"UPDATE {counts.name} SET n = n + 1 WHERE id = ?")


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((), {}, "needs either a table or a statement"),
        (("means", ["id"]), {}, "keyspace.table"),
        (("w.means", []), {}, "is not a list of distinct columns"),
        ((), {"statement": "SELECT * FROM w.means"}, "an INSERT, UPDATE or DELETE"),
        ((), {"statement": "INSERT INTO w.means (id) VALUES (1)"}, "has no placeholders for values"),
        ((), {"statement": "INSERT INTO w.m (id) VALUES (?)", "options": MapperOptions().ttl(1)}, "ttl in addition to"),
        (("w.means", ["id"]), {"max_in_flight": 0}, "one request"),
    ],
)
def test_a_contradictory_sink_is_refused(arguments: Any, options: Any, message: str) -> None:
    with pytest.raises(InvalidJob, match=message):
        CassandraTableSink("localhost", *arguments, **options)


def test_missing_servers_and_users_are_errors_at_the_start(table: Table, tmp_path: Path) -> None:
    port, secret = table.server.port, tmp_path / "password"
    user = table.name.partition(".")[2]
    table.server.execute(f"CREATE ROLE {user} WITH PASSWORD = 'secret' AND LOGIN = true")

    def error_of(builder: ClusterBuilder) -> str:
        text = refused(CassandraTableSink(builder, table.name, ["id", "key"]))
        assert "secret" not in text
        return text

    secret.write_text("wrong\n")
    mine = ClusterBuilder(HOST, port, user, str(secret))
    assert "check user and password_file" in error_of(mine)
    assert "check user and password_file" in error_of(ClusterBuilder(HOST, port))
    assert "cannot be read" in error_of(ClusterBuilder(HOST, port, user, str(tmp_path / "none")))
    assert "check that the server runs" in error_of(ClusterBuilder(HOST, 1))
    assert "check that the server runs" in error_of(ClusterBuilder("no-such-host.invalid", port))
    secret.write_text("secret\n")
    assert f"grant modify on {table.name}" in error_of(mine)
    table.server.execute(f"GRANT MODIFY ON {table.name} TO {user}")
    sink = CassandraTableSink(mine, table.name, ["id", "key"])
    sink.validate()
    written(sink, (1, "a"))
    waits = CassandraTableSink(mine, table.name, ["id", "key"], write_ahead=True)
    table.server.execute(f"DROP TABLE IF EXISTS {KEYSPACE}.penstock_checkpoints")
    with pytest.raises(SinkError, match=r"cannot be created or read .*create table") as caught:
        waits.create_committer({}, job_id="job", uid="sink")
    assert "permission" in str(caught.value)
    assert PASSWORD not in str(caught.value)


def test_a_program_with_pyflinks_names_writes_its_rows(table: Table, tmp_path: Path) -> None:
    env = environment(tmp_path)
    stream = env.from_collection([(n, f"k{n}") for n in range(20)])
    query = f"INSERT INTO {table.name} (id, key) VALUES (?, ?)"
    options = MapperOptions().consistency_level(ConsistencyLevel.ONE)
    for build in (lambda sink: sink, lambda sink: sink.set_query(query)):
        with pytest.raises(InvalidJob, match="without a"):
            build(CassandraSink.add_sink(stream)).build()
    sink = CassandraSink.add_sink(stream).set_query(query).set_cluster_builder(table.cluster)
    sink = sink.set_mapper_options(options).set_max_concurrent_requests(10).enable_ignore_null_fields()
    sink.enable_write_ahead_log().build().name("rows").uid("rows").set_parallelism(1).disable_chaining()
    assert run(env).history.status.value == "FINISHED"
    assert table.rows() == {n: f"k{n}" for n in range(20)}


def test_connections_are_encrypted_and_servers_known_by_their_certificates(tmp_path: Path) -> None:
    store = certificates(tmp_path)
    settings = {"client_encryption_options": {"enabled": True, "optional": True, **store}}
    with CassandraServer(tmp_path / "server", settings=settings) as server:
        table = Table(server)

        def sink(host: str, **options: Any) -> CassandraTableSink:
            cluster = ClusterBuilder(host, server.port, **options)
            return CassandraTableSink(cluster, table.name, ["id", "key"])

        trusted = str(tmp_path / "server.pem")
        sink(HOST, ca_file=trusted).validate()
        written(sink(HOST, ca_file=trusted), (1, "a"))
        assert table.rows() == {1: "a"}
        assert "check ca_file" in refused(sink(HOST, ca_file=str(tmp_path / "other.pem")))
        assert "cannot be read" in refused(sink(HOST, ca_file=str(tmp_path / "none.pem")))


def certificates(folder: Path) -> dict[str, str]:
    """Create a server's certificate in a Java key store, and an unsigned certificate. Return their paths."""
    for name in ("server", "other"):
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        begins = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
        made = x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        made = made.not_valid_before(begins).not_valid_after(begins + datetime.timedelta(days=30))
        host = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST))])
        made = made.add_extension(host, critical=False).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        signed = made.sign(key, hashes.SHA256())
        (folder / f"{name}.pem").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        if name == "server":
            secret = serialization.BestAvailableEncryption(b"keystore")
            (folder / "server.p12").write_bytes(
                pkcs12.serialize_key_and_certificates(b"server", key, signed, None, secret)
            )
    return {"keystore": str(folder / "server.p12"), "keystore_password": "keystore", "store_type": "PKCS12"}
