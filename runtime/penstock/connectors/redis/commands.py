"""Idempotent commands, and a pipeline that delivers all of them in order."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from enum import Enum
from itertools import takewhile
from typing import Any

import numpy as np

from penstock.common.errors import SinkError
from penstock.connectors.redis.client import Connection, is_passing, package

Command = tuple[Any, ...]
"""A command's name and its arguments, each of a type that `encoded` accepts."""
FORMS = "str, bytes, int, float or Decimal"

_TWICE = {
    *("SET", "MSET", "GETDEL", "DEL", "UNLINK", "HSET", "HMSET", "HDEL", "SADD", "SREM", "ZADD", "ZREM", "ZREMRANGEBYSCORE"),
    *("ZREMRANGEBYLEX", "PFADD", "GEOADD", "SETBIT", "SETRANGE", "EXPIREAT", "PEXPIREAT", "EXPIRE", "PEXPIRE", "PERSIST"),
    *("JSON.SET", "JSON.DEL", "JSON.MERGE", "BF.ADD", "BF.MADD", "TS.ADD", "SETEX", "PSETEX", "PUBLISH"),
}  # fmt: skip
_ZADD_OPTIONS = {b"NX", b"XX", b"GT", b"LT", b"CH", b"INCR"}
_WITHOUT_TTL = {
    "DEL",
    "UNLINK",
    "HDEL",
    "SREM",
    "ZREM",
    "GETDEL",
    "EXPIRE",
    "PEXPIRE",
    "EXPIREAT",
    "PEXPIREAT",
    "PERSIST",
}
_WITH_TTL = {"SETEX", "PSETEX", "PUBLISH"}


def checked(result: Any, record: Any, ttl_ms: int) -> list[Command]:
    """Return the commands that a record was mapped to, plus the commands that set the expiry of the written keys.

    Raises:
        SinkError: a value is not a command, or the command is not idempotent.
    """
    commands: list[Command] = []
    for command in [result] if isinstance(result, tuple) else [] if result is None else result:
        if not isinstance(command, tuple) or len(command) < 2 or not isinstance(command[0], str):
            raise _wrong(
                command, record, "is not a command", "return ('SET', key, value), or a list of such tuples, or None"
            )
        arguments = [encoded(value) for value in command[1:]]
        if None in arguments:
            strange = command[1 + arguments.index(None)]
            raise _wrong(command, record, f"has {strange!r}, which has no Redis representation", f"use {FORMS}")
        name = command[0].upper()
        options = takewhile(_ZADD_OPTIONS.__contains__, (argument.upper() for argument in arguments[1:] if argument))
        adds_up = name == "ZADD" and b"INCR" in options
        if name not in _TWICE or adds_up:
            raise _wrong(
                command,
                record,
                "is not idempotent: a restart would count values twice",
                f"keep the sum in the job's state and write it: {', '.join(sorted(_TWICE))}; write to streams with RedisStreamSink",
            )
        if ttl_ms and name == "MSET":
            raise _wrong(command, record, "has several keys, but ttl= applies to one", "return one SET per key")
        commands.append((name, *arguments))
        if ttl_ms and name not in _WITHOUT_TTL and name not in _WITH_TTL:
            commands.append(("PEXPIRE", arguments[0], ttl_ms))
    return commands


def encoded(value: Any) -> bytes | None:
    """Return the bytes that Redis stores for a value, or None if it has no Redis representation. An enum counts as its value, and a number
    of numpy counts as a number.

    >>> encoded(np.float32(0.1)), encoded(np.float16(0.1)), encoded(np.float64(0.1))
    (b'0.1', b'0.1', b'0.1')
    >>> encoded(np.float64(1.5)), encoded(7), encoded(True)
    (b'1.5', b'7', None)
    """
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, np.datetime64 | np.timedelta64 | np.void):
        return None
    if isinstance(value, np.floating):
        return str(value).encode()  # as many digits as the type's precision needs
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:  # a lone surrogate
            return None
    if isinstance(value, bytes):
        return bytes(value)
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return repr(int(value) if isinstance(value, int) else float(value)).encode()
    return str(value).encode() if isinstance(value, Decimal) else None


def _shown(part: Any) -> str:
    return part.decode(errors="backslashreplace") if isinstance(part, bytes) else str(part)


def _wrong(command: Any, record: Any, problem: str, remedy: str) -> SinkError:
    return SinkError(f"{str(command)[:200]}, created from the record {str(record)[:200]}, {problem}", remedy=remedy)


class Pipeline:
    """A sender of many commands at a time. After a lost connection or a temporary error, it continues in order with the first unconfirmed
    command."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._unsent: Sequence[Command] = ()

    def send(self, commands: Sequence[Command]) -> None:
        """Send the commands in order, and wait for their results.

        Raises:
            SinkError: the server rejects a command, or is unavailable for too long.
        """
        self._unsent = commands
        self._connection.run(f"{len(commands)} commands were not accepted", self._try)

    def _try(self, client: Any) -> None:
        pipeline = client.pipeline(transaction=False)
        for command in self._unsent:
            pipeline.execute_command(*command)
        answers = pipeline.execute(raise_on_error=False)
        for index, answer in enumerate(answers):
            if not isinstance(answer, Exception):
                continue
            if is_passing(answer) or not isinstance(answer, package().RedisError):
                self._unsent = self._unsent[index:]
                raise answer
            refused = " ".join(_shown(part) for part in self._unsent[index])[:300]
            raise self._connection.server.explained(SinkError, f"{refused} is refused", answer)
        self._unsent = ()

    def close(self) -> None:
        self._connection.close()
