"""Calls between two ends of a connection, and messages that a peer should not send."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest

from penstock.common.errors import ClusterError, InvalidJob, NotEnoughSlots, NotNow, PenstockError
from penstock.jobmanager.process.programs import rpc
from penstock.jobmanager.process.programs.rpc import Connection, Disconnected
from penstock.rest.errors import NotFound

WAIT_S = 10.0


class Point(msgspec.Struct):
    x: int
    y: float = 0.0


class Ends:
    """Two connected ends, and raw sockets for bytes that a connection would not send."""

    def __init__(self) -> None:
        self._opened: list[Connection | socket.socket] = []

    def connected(self, functions: Mapping[str, Callable[..., Any]], **options: Any) -> Connection:
        """Return an end whose peer has these functions."""
        here, there = socket.socketpair()
        peer = Connection(there, functions, **options).start()
        own = Connection(here, {}).start()
        self._opened += [own, peer]
        return own

    def raw(self, functions: Mapping[str, Callable[..., Any]], **options: Any) -> tuple[socket.socket, Connection]:
        """Return a raw socket and the connection at its other end."""
        here, there = socket.socketpair()
        here.settimeout(WAIT_S)
        peer = Connection(there, functions, **options).start()
        self._opened += [here, peer]
        return here, peer

    def close(self) -> None:
        for one in self._opened:
            one.close()


@pytest.fixture
def ends() -> Iterator[Ends]:
    ends = Ends()
    yield ends
    ends.close()


def until(is_true: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def frame(kind: int, number: int, name: str, content: Any) -> bytes:
    body = msgspec.msgpack.encode((kind, number, name, content))
    return struct.pack(">I", len(body)) + body


def read_frame(peer: socket.socket) -> Any:
    (length,) = struct.unpack(">I", peer.recv(4, socket.MSG_WAITALL))
    return msgspec.msgpack.decode(peer.recv(length, socket.MSG_WAITALL))


def move(point: Point, by: float) -> Point:
    return Point(point.x, point.y + by)


def test_arguments_and_results_have_the_declared_types(ends: Ends) -> None:
    own = ends.connected({"move": move})
    assert own.call("move", Point(1), 2.5, result=Point) == Point(1, 2.5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("no point", 1.0), "Expected `object`, got `str`"),
        (({"x": "1"}, 1.0), "Expected `int`, got `str` - at `$.x`"),
        ((Point(1),), "missing 1 required positional argument"),
        ((Point(1), 1.0, 2.0), "3 arguments instead of 2"),
    ],
)
def test_wrong_arguments_are_refused(ends: Ends, arguments: tuple[Any, ...], message: str) -> None:
    own = ends.connected({"move": move})
    with pytest.raises(ClusterError) as refusal:
        own.call("move", *arguments)
    assert message in str(refusal.value)
    assert own.call("move", Point(1), 1.0, result=Point) == Point(1, 1.0)


def test_a_function_that_the_peer_does_not_have_yet_is_refused_without_a_trace(
    ends: Ends, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(NotNow, match="has no function 'missing' yet"):
        ends.connected({}).call("missing")
    assert caplog.text == ""


def test_a_result_of_another_type_is_an_error_that_callers_expect(ends: Ends) -> None:
    own = ends.connected({"move": lambda: "text"})
    with pytest.raises(ClusterError, match="the answer to 'move' is not valid"):
        own.call("move", result=Point)


@pytest.mark.parametrize(
    "error",
    [
        InvalidJob("bad", remedy="repair it", operator="map", location="job.py:3"),
        NotEnoughSlots("none"),
        NotFound("job x does not exist"),
    ],
)
def test_an_error_of_penstock_keeps_its_class_and_texts(ends: Ends, error: PenstockError) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(PenstockError) as raised:
        ends.connected({"fail": fail}).call("fail")
    assert type(raised.value) is type(error)
    assert str(raised.value) == str(error)


def test_another_error_is_named(ends: Ends) -> None:
    def fail() -> None:
        raise KeyError("x")

    with pytest.raises(ClusterError, match="KeyError: 'x'"):
        ends.connected({"fail": fail}).call("fail")


@pytest.mark.parametrize("kind", ["__import__", "PenstockError.__init__", "Path", "_rebuild", "annotations"])
def test_a_failure_with_an_unknown_class_is_a_cluster_error(kind: str) -> None:
    assert type(rpc._Failure(kind, "text").error()) is ClusterError


def test_calls_run_in_parallel_and_in_both_directions(ends: Ends) -> None:
    barrier = threading.Barrier(5)
    own = ends.connected({"meet": lambda: barrier.wait(WAIT_S)})
    with ThreadPoolExecutor(4) as pool:
        found = [pool.submit(own.call, "meet") for _ in range(4)]
        barrier.wait(WAIT_S)
        assert {future.result() for future in found} <= set(range(5))


def test_each_of_many_parallel_calls_gets_its_own_result(ends: Ends) -> None:
    def twice(number: int) -> int:
        return 2 * number

    own = ends.connected({"twice": twice})
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(lambda n: own.call("twice", n), range(500))) == [2 * n for n in range(500)]


def test_more_calls_than_the_limit_fail_at_once(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "MAX_CALLS", 2)
    release = threading.Event()
    raw, _ = ends.raw({"wait": lambda: release.wait(WAIT_S)})
    for number in range(3):
        raw.sendall(frame(0, number, "wait", []))
    kind, number, _, failure = read_frame(raw)
    assert (kind, number) == (3, 2)
    assert "more than 2 calls" in failure["message"]
    release.set()
    assert sorted(read_frame(raw)[1] for _ in range(2)) == [0, 1]
    raw.sendall(frame(0, 7, "wait", []))
    assert read_frame(raw)[:2] == [2, 7]


def test_a_call_that_times_out_lets_others_fail_at_once_until_the_peer_answers(ends: Ends) -> None:
    release = threading.Event()
    own = ends.connected({"hang": lambda: release.wait(WAIT_S), "answer": lambda: 1})
    with pytest.raises(TimeoutError):
        own.call("hang", timeout_s=0.01)
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        own.call("answer", timeout_s=WAIT_S)
    assert time.monotonic() - started < WAIT_S / 2
    assert own.call("answer", timeout_s=WAIT_S, even_if_silent=True) == 1
    assert own.call("answer", timeout_s=WAIT_S) == 1
    release.set()


def test_a_late_result_shows_that_the_peer_answers(ends: Ends) -> None:
    release = threading.Event()
    own = ends.connected({"hang": lambda: release.wait(WAIT_S), "answer": lambda: 1})
    with pytest.raises(TimeoutError):
        own.call("hang", timeout_s=0.01)
    release.set()

    def answers() -> bool:
        try:
            return bool(own.call("answer", timeout_s=WAIT_S) == 1)
        except TimeoutError:
            return False

    until(answers)


def test_the_end_of_the_peer_fails_calls_that_wait(ends: Ends) -> None:
    raw, connection = ends.raw({})
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(connection.call, "anything")
        read_frame(raw)
        raw.close()
        with pytest.raises(Disconnected):
            waiting.result(WAIT_S)
    until(lambda: connection.is_closed)
    with pytest.raises(Disconnected):
        connection.call("anything")
    connection.notify("anything")


def test_the_end_of_a_connection_is_reported_once(ends: Ends) -> None:
    ended: list[str] = []
    raw, connection = ends.raw({}, on_closed=lambda: ended.append("ended"))
    raw.close()
    until(lambda: ended)
    connection.close()
    connection.close()
    assert ended == ["ended"]


@pytest.mark.parametrize(
    "message",
    [
        struct.pack(">I", rpc.MAX_MESSAGE + 1),
        struct.pack(">I", 3) + b"abc",
        struct.pack(">I", 0),
        struct.pack(">I", 100_000) + b"\x91" * 100_000,
        frame(0, 1, "f", [])[:-1] + b"\xc1",
        struct.pack(">I", 8) + msgspec.msgpack.encode(["call", 1])[:8].ljust(8, b"\0"),
        frame(3, 0, "", {"no": "failure"}),
        frame(77, 0, "", None),
    ],
)
def test_a_malformed_message_ends_the_connection(ends: Ends, message: bytes) -> None:
    raw, connection = ends.raw({})
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(connection.call, "anything")
        read_frame(raw)
        raw.sendall(message)
        with pytest.raises((Disconnected, ClusterError)):
            waiting.result(WAIT_S)
    until(lambda: connection.is_closed)


@pytest.mark.parametrize(
    "message",
    [
        frame(2, 99, "", "a result without a waiting call"),
        frame(3, 99, "", {"kind": "", "message": "a failure without a waiting call"}),
        frame(1, 0, "no_such_notice", []),
        frame(1, 0, "twice", "no list"),
        frame(1, 0, "twice", [None]),
        frame(0, 5, "twice", {"a": 1}),
    ],
)
def test_a_message_without_a_meaning_is_ignored(ends: Ends, message: bytes) -> None:
    def twice(number: int) -> int:
        return 2 * number

    raw, _ = ends.raw({"twice": twice})
    raw.sendall(message + frame(0, 6, "twice", [4]))
    while (answer := read_frame(raw))[1] != 6:
        assert answer[0] == 3
    assert answer == [2, 6, "twice", 8]


def test_a_second_result_of_a_call_is_ignored(ends: Ends) -> None:
    raw, connection = ends.raw({})
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(connection.call, "first")
        number = read_frame(raw)[1]
        raw.sendall(frame(2, number, "", 1) + frame(2, number, "", 2))
        assert waiting.result(WAIT_S) == 1
        waiting = pool.submit(connection.call, "second")
        raw.sendall(frame(2, read_frame(raw)[1], "", 3))
        assert waiting.result(WAIT_S) == 3


@pytest.mark.parametrize("result", ["\ud800", object(), "x" * 2000])
def test_a_result_that_cannot_be_sent_is_a_failure(ends: Ends, monkeypatch: pytest.MonkeyPatch, result: object) -> None:
    monkeypatch.setattr(rpc, "MAX_MESSAGE", 1000)
    own = ends.connected({"odd": lambda: result, "answer": lambda: 1})
    with pytest.raises(ClusterError):
        own.call("odd", timeout_s=WAIT_S)
    assert own.call("answer", timeout_s=WAIT_S) == 1


def test_a_peer_that_reads_nothing_loses_its_connection(ends: Ends) -> None:
    _, connection = ends.raw({}, send_timeout_s=1)
    while not connection.is_closed:
        connection.notify("notice", "x" * 100_000)
    with pytest.raises(Disconnected):
        connection.call("anything")


def test_a_frame_in_many_pieces_is_one_message(ends: Ends) -> None:
    raw, _ = ends.raw({"length": lambda text: len(text)})
    for byte in frame(0, 1, "length", ["abc"]):
        raw.sendall(bytes([byte]))
    assert read_frame(raw) == [2, 1, "length", 3]
