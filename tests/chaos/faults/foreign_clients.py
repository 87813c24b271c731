"""Foreign clients that connect to the ports of a job's processes.

The ports are those on which the processes listen, according to /proc, and that loopback reaches. A foreign client knows only
the traffic on the wire. It sends noise, stops in the middle of a frame, sends nothing, repeats the messages of
others, or speaks HTTP.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

_LISTENS = "0A"
_PATIENCE_S = 2.0
_ETHERNET_IPV4 = 0x0800
_MAX_CAPTURED = 64 << 10
"""Bytes of one side of a conversation that are remembered."""
KINDS = ("garbage", "half frame", "silence", "replay", "HTTP")


@dataclass(frozen=True)
class Listener:
    """A listening socket of one of the processes."""

    pid: int
    port: int
    host: str
    """The address on this machine: `127.0.0.1` or `::1`."""


def listeners(pids: Iterable[int]) -> list[Listener]:
    """Return the listening sockets of these processes, from /proc."""
    bound = dict(_bound())
    found: dict[tuple[str, int], Listener] = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            for link in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    name = str(link.readlink())
                    if name.startswith("socket:[") and (address := bound.get(name[8:-1])) is not None:
                        found[address] = Listener(pid, address[1], address[0])
    return sorted(found.values(), key=lambda listener: listener.port)


def _bound() -> Iterator[tuple[str, tuple[str, int]]]:
    """Yield inode and address of every listening TCP socket that loopback reaches."""
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENS:
                address, _, port = fields[1].partition(":")
                yield fields[9], (_reached_at(address), int(port, 16))


def _reached_at(address: str) -> str:
    """Return the loopback address that reaches a bound address.

    >>> _reached_at("0100007F"), _reached_at("00000000"), _reached_at("00000000000000000000000001000000")
    ('127.0.0.1', '127.0.0.1', '::1')
    """
    return "::1" if address == "0" * 24 + "01000000" else "127.0.0.1"


@dataclass
class Visit:
    """The result of foreign clients at all ports at the same time."""

    kind: str
    accepted: int = 0
    """Number of accepted connections."""
    sent: int = 0
    """Number of sent bytes."""
    answered: int = 0
    """Number of received bytes."""


@dataclass
class ForeignClients:
    """Clients that visit ports. They keep the recorded messages and the silent connections until `hang_up`."""

    random: random.Random
    captured: dict[int, list[bytes]] = field(default_factory=dict)
    """The recorded beginnings of clients' messages, by port."""
    _silent: list[socket.socket] = field(default_factory=list)

    def visit(self, kind: str, found: list[Listener]) -> Visit:
        """Visit each of these ports at the same time as a foreign client of this kind."""
        visit = Visit(kind)
        lock = threading.Lock()

        def call(listener: Listener, message: bytes) -> None:
            try:
                connection = socket.create_connection((listener.host, listener.port), timeout=_PATIENCE_S)
            except OSError:
                return
            answered = self._say(connection, kind, message)
            with lock:
                visit.accepted += 1
                visit.sent += len(message)
                visit.answered += answered

        threads = [
            threading.Thread(target=call, args=(listener, self._message(kind, listener)), daemon=True)
            for listener in found
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(3 * _PATIENCE_S)
        return visit

    def hang_up(self) -> None:
        """Close the silent connections."""
        for connection in self._silent:
            connection.close()
        self._silent.clear()

    def _say(self, connection: socket.socket, kind: str, message: bytes) -> int:
        if kind == "silence":
            self._silent.append(connection)
            return 0
        with connection, contextlib.suppress(OSError):
            connection.sendall(message)
            if kind == "half frame":
                time.sleep(0.5)
                return 0
            connection.settimeout(0.5)
            return len(connection.recv(1 << 16))
        return 0

    def _message(self, kind: str, listener: Listener) -> bytes:
        chance = self.random
        match kind:
            case "garbage":
                return chance.randbytes(chance.choice((1, 29, 500, 70_000)))
            case "half frame":
                size = chance.choice((100, 1 << 20, (1 << 31) - 1))
                lengths = (struct.pack(">Q", size), struct.pack(">I", size), struct.pack("<I", size))
                return chance.choice(lengths) + chance.randbytes(40)
            case "silence":
                return b""
            case "replay":
                others = [
                    messages
                    for port, captured in sorted(self.captured.items())
                    if port != listener.port
                    for messages in captured
                ]
                messages = self.captured.get(listener.port) or others
                return chance.choice(messages) if messages else b""
            case "HTTP":
                verb = chance.choice(("GET", "POST", "DELETE"))
                path = chance.choice(("/", "/jobs", "/cluster", "/%2e%2e/", "/jobs/" + "x" * 5000))
                return f"{verb} {path} HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 5\r\n\r\nhello".encode()
            case other:
                raise ValueError(other)

    # --- listening --------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def listening(self, ports: set[int]) -> Iterator[None]:
        """Record the traffic to these ports over loopback within the block. Needs the right to open raw sockets."""
        with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ETHERNET_IPV4)) as wire:
            wire.bind(("lo", 0))
            wire.settimeout(0.1)
            ended = threading.Event()
            thread = threading.Thread(target=self._listen, args=(wire, ports, ended), daemon=True)
            thread.start()
            try:
                yield
            finally:
                ended.set()
                thread.join(5)

    def _listen(self, wire: socket.socket, ports: set[int], ended: threading.Event) -> None:
        conversations: dict[tuple[int, int], bytearray] = {}
        while not ended.is_set():
            try:
                packet, address = wire.recvfrom(1 << 16)
            except TimeoutError:
                continue
            if address[2] == socket.PACKET_OUTGOING:  # every packet on loopback appears twice
                continue
            segment = tcp_segment(packet)
            if segment is not None and segment[1] in ports and segment[2]:
                conversation = conversations.setdefault(segment[:2], bytearray())
                if len(conversation) < _MAX_CAPTURED:
                    conversation += segment[2]
        for (_, port), conversation in conversations.items():
            kept = self.captured.setdefault(port, [])
            kept.append(bytes(conversation[:_MAX_CAPTURED]))
            del kept[:-20]


def tcp_segment(packet: bytes) -> tuple[int, int, bytes] | None:
    """Return source port, destination port and content of an IPv4 packet, or None if it is not TCP."""
    if len(packet) < 40 or packet[9] != socket.IPPROTO_TCP:
        return None
    begin = (packet[0] & 0x0F) * 4
    source, destination = struct.unpack_from(">HH", packet, begin)
    content = begin + (packet[begin + 12] >> 4) * 4
    (length,) = struct.unpack_from(">H", packet, 2)
    return source, destination, packet[content : length or None]
