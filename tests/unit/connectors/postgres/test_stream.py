"""The stream of changes from a server that stops sending or returns errors at any point."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from penstock.common import WatermarkStrategy
from penstock.common.errors import InvalidJob, SourceError
from penstock.connectors.core.source import ReadBounds, ReaderContext, Source, Split
from penstock.connectors.postgres.cdc import stream
from penstock.connectors.postgres.cdc.source import PostgresCdcSource
from penstock.connectors.postgres.cdc.stream import ChangesReader
from penstock.connectors.postgres.cdc.watched_tables import WatchedTables
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.hybrid_source import HybridSource
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.graph.job_graph_builder import JobGraphBuilder

Script = list[bytes | Exception | None]


def framed(payload: bytes) -> bytes:
    return b"w" + struct.pack("!QQq", 0, 10_000, 0) + payload


def begin(lsn: int) -> bytes:
    return framed(b"B" + struct.pack("!QqI", lsn, 0, 99))


def commit(lsn: int) -> bytes:
    return framed(b"C" + struct.pack("!BQQq", 0, lsn, lsn + 10, 0))


def keepalive(lsn: int) -> bytes:
    return b"k" + struct.pack("!QqB", lsn, 0, 0)


def relation(columns: list[tuple[str, int]]) -> bytes:
    described = b"".join(b"\1" + name.encode() + b"\0" + struct.pack("!Ii", oid, -1) for name, oid in columns)
    return framed(b"R" + struct.pack("!I", 7) + b"public\0t\0d" + struct.pack("!H", len(columns)) + described)


def values(*texts: str | None) -> bytes:
    """Return the values of a row. None stands for a value that the log omits."""
    encoded = [b"u" if text is None else b"t" + struct.pack("!I", len(text.encode())) + text.encode() for text in texts]
    return struct.pack("!H", len(encoded)) + b"".join(encoded)


def inserted(number: int) -> bytes:
    return framed(b"I" + struct.pack("!I", 7) + b"N" + values(str(number)))


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(stream, "time", found)
    return found


IDS = [("id", 20)]
COUNT = 12
FIRST: Script = [begin(5000), relation(IDS), *map(inserted, range(COUNT)), commit(5000)]
SECOND: Script = [begin(6000), relation(IDS), *map(inserted, range(COUNT, 2 * COUNT)), commit(6000)]
TRANSACTIONS = [*FIRST, *SECOND]


class Server:
    """A fake server that sends the messages of a script for each connection, and then nothing.

    The script receives the number of the connection and its start position.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, scripts: Callable[[int, int], Script]) -> None:
        self.connections = 0
        server = self

        class Link:
            system, timeline = "1", 1

            def __init__(self, _: Any, lsn: int, *__: Any) -> None:
                self._left = iter(scripts(server.connections, lsn))
                server.connections += 1

            def receive(self) -> bytes | None:
                found = next(self._left, None)
                if isinstance(found, Exception):
                    raise found
                return found

            def tell(self, *_: Any, **__: Any) -> None:
                pass

            def close(self) -> None:
                pass

        monkeypatch.setattr(stream, "ReplicationLink", Link)
        monkeypatch.setattr(WatchedTables, "look", lambda _: None)


def behind(lsn: int) -> Script:
    return TRANSACTIONS if lsn < 5010 else SECOND if lsn < 6010 else []


def reader(position: Any = None) -> ChangesReader:
    source = PostgresCdcSource.builder().set_conninfo("postgresql://x/y").set_table("t", {"id": int})
    table = {"captured": ["t", ["id"], True, IDS], "ranges": []}
    split = Split("changes", {"lsn": "0/10", "until": "0/0", "tables": {"public.t": table}})
    return ChangesReader(source.set_slot_name("s").build(), split, position, "who")


def read(found: ChangesReader, most: int = 1000) -> list[int]:
    batch = found.read(ReadBounds(max_records=most))
    return [] if batch is None else [row["id"] for row in batch.values]


@pytest.mark.parametrize("first", [8, COUNT + 8])
@pytest.mark.parametrize("sent", range(len(FIRST)))
def test_a_checkpoint_during_a_repeated_transaction_keeps_its_position(
    monkeypatch: pytest.MonkeyPatch, sent: int, first: int
) -> None:
    Server(monkeypatch, lambda connection, lsn: behind(lsn)[: sent if connection == 1 else None])
    records: list[int] = []
    position = None
    for number in range(20):
        if number > 2 and len(records) >= 2 * COUNT:
            break  # on a slow machine a read may return early
        attempt = reader(position)
        records += read(attempt, 1000 if number else first)
        position = attempt.position
    assert records == list(range(2 * COUNT))


@pytest.mark.parametrize("sent", range(len(TRANSACTIONS)))
def test_a_second_loss_during_a_repeated_transaction_repeats_no_change(
    monkeypatch: pytest.MonkeyPatch, sent: int
) -> None:
    lost = psycopg.OperationalError("server closed the connection")
    monkeypatch.setattr(stream, "_PAUSE_S", 0.0)
    sends = [10, sent, 0]
    Server(monkeypatch, lambda n, lsn: [*behind(lsn)[: sends[n]], lost] if n < len(sends) else behind(lsn))
    attempt = reader()
    records = [number for _ in range(8) for number in read(attempt)]
    assert records == list(range(2 * COUNT))
    end = {"lsn": "0/177A", "commit": None, "number": 0, "system": "1", "timeline": 1, "oids": {}}
    assert attempt.position == end


def read_for(found: ChangesReader, clock: Clock, seconds: float) -> list[int]:
    records, end = [], clock.now + seconds
    while clock.now < end:
        records += read(found)
        clock.now += 0.05
    return records


@pytest.mark.parametrize("before", [[None], [keepalive(16)], [keepalive(16), begin(5000)]])
def test_a_server_that_accepts_connections_but_sends_nothing_fails_the_job(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, before: Script
) -> None:
    error = psycopg.errors.ObjectNotInPrerequisiteState("cannot decode")
    server = Server(monkeypatch, lambda *_: [*before, error])
    with pytest.raises(SourceError, match="cannot decode"):
        read_for(reader(), clock, 60)
    assert clock.now == pytest.approx(30, abs=6)
    assert server.connections < 15


def test_a_permanent_error_fails_the_job_at_once(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    server = Server(monkeypatch, lambda *_: [None, psycopg.errors.UndefinedObject('publication "p" does not exist')])
    with pytest.raises(SourceError, match='publication "p"'):
        read_for(reader(), clock, 1)
    assert server.connections == 1


def test_occasional_connection_losses_do_not_fail_the_job(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    lost = psycopg.OperationalError("server closed the connection")
    idle_for_a_minute: Script = [None] * 1200
    Server(monkeypatch, lambda *_: [*idle_for_a_minute, lost])
    assert read_for(reader(), clock, 300) == []
    Server(monkeypatch, lambda n, lsn: [begin(20 + n), relation(IDS), inserted(n), commit(20 + n), lost])
    records = read_for(reader(), clock, 100)
    assert len(records) > 400
    assert records == list(range(len(records)))


def test_each_source_of_a_job_uses_a_separate_name_at_the_slot() -> None:
    source = PostgresCdcSource.builder().set_conninfo("postgresql://x/y").set_table("t").set_slot_name("s" * 63).build()
    names = {uid: source.create_reader(ReaderContext(0, 1, uid))._who for uid in ("orders", "customers")}  # type: ignore[attr-defined]
    assert names["orders"] != names["customers"]
    assert names["orders"] == source.create_reader(ReaderContext(1, 2, "orders"))._who  # type: ignore[attr-defined]


def test_two_sources_of_a_job_with_one_slot_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PostgresCdcSource, "validate", lambda _: None)
    builder = PostgresCdcSource.builder().set_conninfo("postgresql://x/y").set_table("t", {"id": int})
    sources = [builder.set_slot_name(name).build() for name in ("one", "two")]
    hybrid = HybridSource.builder(NumberSequenceSource(1, 2)).add_source(sources[0]).build()
    strategy = WatermarkStrategy.no_watermarks()

    def job(*read: Source) -> Any:
        env = StreamExecutionEnvironment.get_execution_environment()
        for number, source in enumerate(read):
            env.from_source(source, strategy, f"source {number}").print()
        return JobGraphBuilder(env.get_program().sinks).build()

    job(*sources)
    for other in (sources[0], hybrid):
        with pytest.raises(InvalidJob, match="slot 'one' of Postgres x:5432/y is read by two sources: 'source 0'"):
            job(sources[0], other)


def test_an_omitted_large_key_is_taken_from_the_old_image(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = [("code", 25), ("part", 25), ("n", 23)]
    old = struct.pack("!H", 3) + values("long", "1")[2:] + b"n"
    update = framed(b"U" + struct.pack("!I", 7) + b"K" + old + b"N" + values(None, "2", "5"))
    Server(monkeypatch, lambda *_: [begin(5000), relation(columns), update, commit(5000)])
    builder = PostgresCdcSource.builder().set_conninfo("postgresql://x/y").set_slot_name("s")
    source = builder.set_table("t", {"code": str, "part": str, "n": int}).build()
    table = {"captured": ["t", ["code", "part"], False, columns], "ranges": [[None, None, [[None, "9:9:"]]]]}
    split = Split("changes", {"lsn": "0/10", "until": "1/0", "tables": {"public.t": table}})
    batch = ChangesReader(source, split, None, "who").read(ReadBounds())
    assert batch is not None
    assert [(str(row.get_row_kind()), tuple(row)) for row in batch.values] == [
        ("-D", ("long", "1", None)),
        ("+U", ("long", "2", 5)),
    ]
