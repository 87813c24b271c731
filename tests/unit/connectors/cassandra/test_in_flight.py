"""Requests of the Cassandra sink: a bounded number in flight, and retries with the original timestamps.

A fake session answers here. The integration tests use a real server.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest
from cassandra import InvalidRequest, OperationTimedOut
from cassandra.query import PreparedStatement

from penstock.common.errors import EpochFailed, InvalidJob, SinkError
from penstock.connectors.cassandra.cluster import ClusterBuilder, Connection, Stamps
from penstock.connectors.cassandra.requests import Requests, Write
from penstock.datastream.connectors.cassandra import CassandraTableSink, MapperOptions

STATEMENT = "INSERT INTO w.t (id, key) VALUES (?, ?)"


class Future:
    def __init__(self) -> None:
        self.callbacks: tuple[Any, ...] = ()
        self.is_awaited = threading.Event()

    def add_callbacks(self, taken: Any, missed: Any, errback_args: Any) -> None:
        self.callbacks = (taken, missed, errback_args)
        self.is_awaited.set()


class Session:
    """A session that answers from another thread, the newest request first. `answer` returns the error for a value, or None."""

    def __init__(self, stamps: Stamps, answer: Callable[[Any], Exception | None]) -> None:
        self.stamps = stamps
        self.answer = answer
        self.requests: list[tuple[int, Any]] = []
        self.open: list[tuple[Future, Any]] = []
        self.most = 0
        self.lock = threading.Lock()

    def prepare(self, statement: str) -> PreparedStatement:
        return PreparedStatement([], b"id", [], statement, "w", 4, [], b"")

    def execute_async(self, bound: Any, trace: bool) -> Future:
        future = Future()
        with self.lock:
            self.requests.append((self.stamps(), bound.values[0]))
            self.open.append((future, bound.values[0]))
            self.most = max(self.most, len(self.open))
        threading.Timer(0.002, self.work).start()
        return future

    def work(self) -> None:
        with self.lock:
            future, value = self.open.pop()
        future.is_awaited.wait(10)
        taken, missed, arguments = future.callbacks
        error = self.answer(value)
        missed(error, *arguments) if error else taken([])


class Cluster:
    def shutdown(self) -> None: ...


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that creates requests and the session that receives them."""

    def make(answer: Callable[[Any], Exception | None], check: Any = None, patience: float = 5.0) -> Any:
        stamps = Stamps()
        session = Session(stamps, answer)
        connection = Connection(Cluster(), session, stamps)
        monkeypatch.setattr(ClusterBuilder, "connect", lambda *arguments, **options: connection)
        return Requests(ClusterBuilder("nowhere"), MapperOptions(), 8, patience, check), session

    return make


def writes(*values: int) -> list[Write]:
    return [Write(1000 + value, [value, b"x"], f"row {value}") for value in values]


def sent(requests: Requests, *values: int) -> None:
    requests.send(STATEMENT, writes(*values))
    requests.flush(STATEMENT)


def test_requests_in_flight_are_bounded_and_all_complete(played: Any) -> None:
    requests, session = played(lambda value: None)
    requests.send(STATEMENT, writes(*range(50)))
    requests.flush(STATEMENT)
    assert session.open == []
    assert session.most <= 8
    assert sorted(session.requests) == [(1000 + n, n) for n in range(50)]


def test_a_lost_row_is_sent_again_with_its_original_timestamp(played: Any) -> None:
    lost = {3, 7, 20}

    def answer(value: Any) -> Exception | None:
        if value in lost:
            lost.remove(value)
            return OperationTimedOut()
        return None

    requests, session = played(answer)
    for first in range(0, 30, 10):
        requests.send(STATEMENT, writes(*range(first, first + 10)))
    requests.flush(STATEMENT)
    assert sorted(session.requests) == sorted([(1000 + n, n) for n in [*range(30), 3, 7, 20]])


def test_a_refused_row_is_named_and_not_retried(played: Any) -> None:
    requests, session = played(lambda value: InvalidRequest("too long") if value == 5 else None)
    with pytest.raises(SinkError, match="rejects row 5: too long"):
        sent(requests, *range(10))
    assert session.requests.count((1005, 5)) == 1


def test_retries_end_if_the_server_accepts_nothing(played: Any) -> None:
    requests, _ = played(lambda value: OperationTimedOut(), patience=0.2)
    with pytest.raises(SinkError, match=r"10 rows were not accepted within 0\.2 s"):
        sent(requests, *range(10))


def test_an_abandoned_attempt_sends_no_retries(played: Any) -> None:
    wanted = [True, False]

    def given_up() -> None:
        if not wanted.pop(0):
            raise EpochFailed("given up")

    requests, session = played(lambda value: OperationTimedOut(), given_up)
    with pytest.raises(EpochFailed):
        sent(requests, 1, 2)
    assert sorted(session.requests) == [(1001, 1), (1002, 2)]


def test_sinks_are_picklable() -> None:
    sink = CassandraTableSink("a", "w.t", ["id", "Key"], write_ahead=True, options=MapperOptions().ttl(5))
    found = pickle.loads(pickle.dumps(sink))
    assert found.statement == sink.statement == 'INSERT INTO w.t (id, "Key") VALUES (?, ?) USING TTL 5'
    assert found.cluster == sink.cluster


def test_options_that_belong_into_the_statement_are_refused() -> None:
    harmless = MapperOptions().ttl(0).if_not_exists(False).timestamp(100).tracing(True).save_null_fields(True)
    CassandraTableSink("a", statement=STATEMENT, options=harmless)
    for options in (MapperOptions().ttl(1), MapperOptions().if_not_exists(True)):
        with pytest.raises(InvalidJob, match="cannot be set together with the statement"):
            CassandraTableSink("a", statement=STATEMENT, options=options)


def test_a_server_lost_during_a_later_prepare_is_retried(played: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    requests, session = played(lambda value: None)
    sent(requests, 1)
    prepare, errors = session.prepare, [OperationTimedOut()]

    def preparing(statement: str) -> PreparedStatement:
        if errors:
            raise errors.pop()
        return prepare(statement)

    monkeypatch.setattr(session, "prepare", preparing)
    requests.send("UPDATE w.t SET key = ? WHERE id = ?", writes(2))
    requests.flush(STATEMENT)
    assert not errors
    assert sorted(session.requests) == [(1001, 1), (1002, 2)]


def test_queued_rows_have_a_constant_cost_each(played: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Listed(list[Write]):
        """A list that counts the rows that it has moved."""

        moved = 0

        def __getitem__(self, key: Any) -> Any:
            found = super().__getitem__(key)
            return Listed(found) if isinstance(key, slice) else found

        def __radd__(self, before: list[Write]) -> Listed:
            return Listed([*before, *self])

        def pop(self, index: Any = -1) -> Write:
            Listed.moved += len(self) - 1 if index == 0 else 0
            return super().pop(index)

    requests, session = played(lambda value: None)
    requests.send(STATEMENT, Listed(writes(*range(50))))
    requests.flush(STATEMENT)
    assert len(session.requests) == 50
    assert Listed.moved == 0
