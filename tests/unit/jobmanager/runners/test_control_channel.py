"""The control channel with unauthenticated clients, and with tasks that misbehave."""

from __future__ import annotations

import contextlib
import logging
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.jobmanager.cluster import sealed_server
from penstock.jobmanager.runners.control_server import ControlServer
from penstock.taskmanager.control import channel as control
from penstock.taskmanager.control.channel import ControlConnection, Hello
from penstock.taskmanager.control.sealed_channel import HELLO_BYTES, Opener, Sealer, derive_keys

ATTEMPT = 7


@dataclass
class Channel:
    """A server that records the calls to its owner."""

    frames: queue.SimpleQueue[tuple[Hello, bytes]] = field(default_factory=queue.SimpleQueue)
    gone: queue.SimpleQueue[Hello] = field(default_factory=queue.SimpleQueue)
    server: ControlServer = field(init=False)

    def __post_init__(self) -> None:
        self.server = ControlServer("127.0.0.1", self.on_frame, self.gone.put)
        self.server.expect(ATTEMPT, slots=4, levels=2)

    def on_frame(self, hello: Hello, frame: bytes) -> None:
        if frame == b"raise":
            raise RuntimeError("the frame of the task is invalid")
        self.frames.put((hello, frame))

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.server.address.rpartition(":")
        return host, int(port)

    def task(self, slot: int = 0, level: int = 0, attempt: int = ATTEMPT) -> ControlConnection:
        return ControlConnection(self.server.address, self.server.token, Hello(attempt, slot, level))

    def unauthenticated_client(self) -> socket.socket:
        connection = socket.create_connection(self.address, timeout=5)
        assert len(connection.recv(HELLO_BYTES, socket.MSG_WAITALL)) == HELLO_BYTES
        return connection

    def check(self, slot: int = 3) -> None:
        """Connect a task, exchange a message and its answer, and disconnect the task."""
        task = self.task(slot=slot, level=1)
        task.send(b"ack")
        assert self.frames.get(timeout=5) == (Hello(ATTEMPT, slot, 1), b"ack")
        assert self.server.send(ATTEMPT, slot, 1, b"command")
        assert task.poll(5) == b"command"
        task.close()
        assert self.gone.get(timeout=5) == Hello(ATTEMPT, slot, 1)
        assert self.server.failure is None


@pytest.fixture(scope="module")
def channel() -> Iterator[Channel]:
    made = Channel()
    yield made
    made.server.close()


def is_closed(connection: socket.socket) -> bool:
    connection.settimeout(5)
    with contextlib.suppress(ConnectionError):
        while connection.recv(65536):
            pass
    return True


def wait_until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class TestStrangers:
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
    @given(st.lists(st.binary(max_size=2000), max_size=6))
    def test_arbitrary_bytes_in_any_chunks_do_no_harm(self, channel: Channel, pieces: list[bytes]) -> None:
        with channel.unauthenticated_client() as unauthenticated_client, contextlib.suppress(ConnectionError):
            for piece in pieces:
                unauthenticated_client.sendall(piece)
        channel.check()

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
    @given(st.integers(0, 200), st.integers(0, 255), st.booleans())
    def test_a_truncated_or_changed_hello_does_no_harm(
        self, channel: Channel, at: int, change: int, is_cut: bool
    ) -> None:
        with channel.unauthenticated_client() as unauthenticated_client:
            hello = bytearray(self.hello(channel, b"0" * HELLO_BYTES, {"attempt": ATTEMPT, "slot": 0, "level": 0}))
            at %= len(hello)
            if is_cut:
                del hello[at:]
            else:
                hello[at] ^= change or 1
            unauthenticated_client.sendall(hello)
            unauthenticated_client.shutdown(socket.SHUT_WR)
            assert is_closed(unauthenticated_client)
        channel.check()
        assert channel.gone.empty()

    @pytest.mark.parametrize("token", ["ü", "", "\x00", "0" * 64])
    def test_a_wrong_token_of_any_kind_is_refused(self, channel: Channel, token: str) -> None:
        with pytest.raises(ConnectionError):
            ControlConnection(channel.server.address, token, Hello(ATTEMPT, 0, 0))
        channel.check()

    def test_a_recorded_message_of_a_task_cannot_be_replayed(self, channel: Channel) -> None:
        recorded: list[bytes] = []
        relay = socket.create_server(("127.0.0.1", 0))

        def pass_on() -> None:
            near, _ = relay.accept()
            far = socket.create_connection(channel.address)
            near.sendall(far.recv(HELLO_BYTES, socket.MSG_WAITALL))
            near.settimeout(0.5)
            with contextlib.suppress(OSError):
                while data := near.recv(65536):
                    recorded.append(data)
                    far.sendall(data)
                    near.sendall(far.recv(65536))

        thread = threading.Thread(target=pass_on)
        thread.start()
        task = ControlConnection(
            f"127.0.0.1:{relay.getsockname()[1]}", channel.server.token, Hello(ATTEMPT, slot=1, level=0)
        )
        assert channel.server.connected(ATTEMPT) == 1
        task.close()
        thread.join()
        relay.close()
        assert channel.gone.get(timeout=5) == Hello(ATTEMPT, 1, 0)
        with channel.unauthenticated_client() as unauthenticated_client:
            unauthenticated_client.sendall(b"".join(recorded))
            assert is_closed(unauthenticated_client)
        assert channel.server.connected(ATTEMPT) == 0
        channel.check()

    def test_the_token_and_the_frames_are_not_visible_on_the_wire(self, channel: Channel) -> None:
        near, far = socket.socketpair()
        sealer = Sealer(derive_keys(channel.server.token, b"s" * 32, b"c" * 32)[0])
        near.sendall(sealer.seal(channel.server.token.encode()))
        assert channel.server.token.encode() not in far.recv(65536)
        near.close()
        far.close()

    def test_a_task_rejects_an_unauthenticated_server(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(control, "CONNECT_S", 2.0)
        with socket.create_server(("127.0.0.1", 0)) as false_server:

            def answer() -> None:
                connection, _ = false_server.accept()
                connection.sendall(b"0" * HELLO_BYTES + (64).to_bytes(4, "big") + b"x" * 64)

            thread = threading.Thread(target=answer)
            thread.start()
            with pytest.raises(ConnectionError):
                ControlConnection(f"127.0.0.1:{false_server.getsockname()[1]}", "token", Hello(1, 0, 0))
            thread.join()

    def test_a_silent_client_is_disconnected(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sealed_server, "GREETING_S", 0.3)
        channel = Channel()
        with channel.unauthenticated_client() as unauthenticated_client:
            began = time.monotonic()
            assert is_closed(unauthenticated_client)
            assert time.monotonic() - began < 3
        channel.check()
        channel.server.close()

    def test_an_unauthenticated_client_cannot_fill_the_memory(self, channel: Channel) -> None:
        with channel.unauthenticated_client() as unauthenticated_client:
            unauthenticated_client.settimeout(5)
            sent = 0
            with contextlib.suppress(ConnectionError):
                for _ in range(64):
                    unauthenticated_client.sendall(b"\x00\x01" * 8192)
                    sent += 16384
                    time.sleep(0.005)
            assert sent < 64 * 16384, "a megabyte was taken from somebody who has proved nothing"
        channel.check()

    def test_many_silent_clients_do_not_block_tasks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sealed_server, "MAX_UNAUTHENTICATED", 8)
        channel = Channel()
        clients = [channel.unauthenticated_client() for _ in range(40)]
        channel.check()
        open_ones = 0
        for unauthenticated_client in clients:
            unauthenticated_client.setblocking(False)
            try:
                unauthenticated_client.recv(1)
            except BlockingIOError:
                open_ones += 1
            unauthenticated_client.close()
        assert open_ones <= 8
        channel.server.close()

    def test_unauthenticated_clients_do_not_flood_the_log(self, caplog: pytest.LogCaptureFixture) -> None:
        channel = Channel()
        with caplog.at_level(logging.WARNING):
            for _ in range(20):
                with channel.unauthenticated_client() as unauthenticated_client:
                    unauthenticated_client.sendall(b"x" * 100)
                    assert is_closed(unauthenticated_client)
        assert len([record for record in caplog.records if "refuses" in record.message]) == 1
        channel.server.close()

    @staticmethod
    def hello(channel: Channel, server_random: bytes, fields: dict[str, Any]) -> bytes:
        client_random = b"c" * HELLO_BYTES
        to_server, _ = derive_keys(channel.server.token, server_random, client_random)
        return client_random + Sealer(to_server).seal(msgspec.msgpack.encode(fields))


class TestTasks:
    @pytest.mark.parametrize(
        "who", [(ATTEMPT - 1, 0, 0), (ATTEMPT + 1, 0, 0), (ATTEMPT, 4, 0), (ATTEMPT, 0, 2), (-1, 0, 0)]
    )
    def test_a_task_of_another_attempt_is_refused_by_name(
        self, channel: Channel, who: tuple[int, int, int], caplog: pytest.LogCaptureFixture
    ) -> None:
        attempt, slot, level = who
        with pytest.raises(ConnectionError), caplog.at_level(logging.WARNING):
            channel.task(slot, level, attempt)
        assert f"Hello(attempt={attempt}, slot={slot}, level={level})" in caplog.text
        channel.check()

    def test_a_second_connection_of_a_task_is_refused_and_the_first_one_remains(
        self, channel: Channel, caplog: pytest.LogCaptureFixture
    ) -> None:
        first = channel.task()
        with pytest.raises(ConnectionError), caplog.at_level(logging.WARNING):
            channel.task()
        assert "is already connected" in caplog.text
        first.send(b"still here")
        assert channel.frames.get(timeout=5) == (Hello(ATTEMPT, 0, 0), b"still here")
        first.close()
        assert channel.gone.get(timeout=5) == Hello(ATTEMPT, 0, 0)

    @pytest.mark.parametrize("fields", [{}, {"attempt": "x", "slot": 0, "level": 0}, {"attempt": ATTEMPT, "slot": 1.5}])
    def test_a_task_with_an_invalid_hello_is_refused(self, channel: Channel, fields: dict[str, Any]) -> None:
        with socket.create_connection(channel.address, timeout=5) as connection:
            server_random = connection.recv(HELLO_BYTES, socket.MSG_WAITALL)
            connection.sendall(TestStrangers.hello(channel, server_random, fields))
            assert is_closed(connection)
        channel.check()

    def test_a_task_with_an_invalid_frame_counts_as_lost(
        self, channel: Channel, caplog: pytest.LogCaptureFixture
    ) -> None:
        task = channel.task()
        task.send(b"raise")
        assert channel.gone.get(timeout=5) == Hello(ATTEMPT, 0, 0)
        assert "the frame of the task is invalid" in caplog.text
        task.close()
        channel.check()

    def test_a_task_that_reads_nothing_does_not_delay_others(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sealed_server, "STALLED_S", 1.0)
        channel = Channel()
        stalled, other = channel.task(slot=0), channel.task(slot=1)
        began = time.monotonic()
        for _ in range(8):
            assert channel.server.send(ATTEMPT, 0, 0, b"x" * (4 << 20))
            assert channel.server.send(ATTEMPT, 1, 0, b"command")
            assert other.poll(5) == b"command"
        assert time.monotonic() - began < 5
        assert channel.gone.get(timeout=10) == Hello(ATTEMPT, 0, 0)
        assert not channel.server.send(ATTEMPT, 0, 0, b"more")
        stalled.close()
        other.close()
        channel.server.close()

    def test_a_task_that_reads_slowly_receives_everything(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sealed_server, "STALLED_S", 2.0)
        channel = Channel()
        task = channel.task()
        bodies = [bytes((n,)) * (3 << 20) for n in range(4)]
        for body in bodies:
            assert channel.server.send(ATTEMPT, 0, 0, body)
        got: list[bytes] = []
        while len(got) < len(bodies):
            frame = task.poll(1)
            if frame is not None:
                got.append(frame)
            time.sleep(0.002)
        assert got == bodies
        task.close()
        channel.server.close()

    def test_a_task_sends_a_large_acknowledgement(self, channel: Channel) -> None:
        task = channel.task()
        task.send(b"a" * (20 << 20))
        hello, frame = channel.frames.get(timeout=10)
        assert len(frame) == 20 << 20
        task.close()
        assert channel.gone.get(timeout=5) == hello


class TestTheThread:
    def test_the_thread_reports_why_it_ended(self, monkeypatch: pytest.MonkeyPatch) -> None:
        channel = Channel()

        def broken() -> None:
            raise MemoryError("no more")

        monkeypatch.setattr(channel.server, "_turn", broken)
        wait_until(lambda: channel.server.failure)
        assert not channel.server.send(ATTEMPT, 0, 0, b"command")
        channel.server.close()

    def test_too_many_open_files_do_not_end_the_thread(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        channel = Channel()
        listener = channel.server._listener

        class Refusing:
            def __init__(self) -> None:
                self.left = 3

            def accept(self) -> Any:
                self.left -= 1
                if self.left >= 0:
                    raise OSError(24, "Too many open files")
                return listener.accept()

            def fileno(self) -> int:
                return listener.fileno()

            def close(self) -> None:
                listener.close()

        refusing = Refusing()
        channel.server._selector.unregister(listener)
        channel.server._listener = refusing  # type: ignore[assignment]
        channel.server._selector.register(refusing, 1)
        channel.check()
        assert "Too many open files" in caplog.text
        channel.server.close()


def test_keys_are_derived_from_the_randomness_of_both_sides() -> None:
    server, client = b"s" * HELLO_BYTES, b"c" * HELLO_BYTES
    to_server, to_client = derive_keys("token", server, client)
    opener = Opener(to_client)
    opener.feed(Sealer(to_client).seal(b"welcome"))
    assert opener.take() == b"welcome"
    assert to_server != to_client
