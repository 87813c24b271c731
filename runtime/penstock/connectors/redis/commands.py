"""Commands that may be carried out a second time, and a pipeline of them that comes through whole and in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.common.errors import SinkError
from penstock.connectors.redis.client import Connection, is_passing, package

Command = tuple[Any, ...]
"""A name and its arguments: str, bytes, int or float."""

_TWICE = {
    *("SET", "MSET", "GETDEL", "DEL", "UNLINK", "HSET", "HMSET", "HDEL", "SADD", "SREM", "ZADD", "ZREM", "ZREMRANGEBYSCORE"),
    *("ZREMRANGEBYLEX", "PFADD", "GEOADD", "SETBIT", "SETRANGE", "EXPIREAT", "PEXPIREAT", "EXPIRE", "PEXPIRE", "PERSIST"),
    *("JSON.SET", "JSON.DEL", "JSON.MERGE", "BF.ADD", "BF.MADD", "TS.ADD", "SETEX", "PSETEX", "PUBLISH"),
}  # fmt: skip
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
_WITH_TTL = {"SETEX", "PSETEX", "MSET", "PUBLISH"}
_VALUES = (str, bytes, int, float)


def checked(given: Any, record: Any, ttl_ms: int) -> list[Command]:
    """The commands that a record was mapped to, with those that let them expire.

    Raises:
        SinkError: one is no command, or may not be carried out twice.
    """
    commands: list[Command] = []
    for command in [given] if isinstance(given, tuple) else [] if given is None else given:
        if not isinstance(command, tuple) or len(command) < 2 or not isinstance(command[0], str):
            raise _wrong(command, record, "is no command", "give ('SET', key, value), or a list of such, or None")
        strange = [value for value in command[1:] if isinstance(value, bool) or not isinstance(value, _VALUES)]
        if strange:
            raise _wrong(
                command, record, f"has {strange[0]!r}, which Redis has no form for", "give str, bytes, int or float"
            )
        name = command[0].upper()
        adds_up = name == "ZADD" and any(isinstance(value, str) and value.upper() == "INCR" for value in command[2:])
        if name not in _TWICE or adds_up:
            raise _wrong(
                command,
                record,
                "would count twice what a restart writes again",
                f"keep the sum in the job's state and write it: {', '.join(sorted(_TWICE))}; into streams by RedisStreamSink",
            )
        commands.append((name, *command[1:]))
        if ttl_ms and name not in _WITHOUT_TTL and name not in _WITH_TTL:
            commands.append(("PEXPIRE", command[1], ttl_ms))
    return commands


def _wrong(command: Any, record: Any, what: str, remedy: str) -> SinkError:
    return SinkError(f"{str(command)[:200]}, made of {str(record)[:200]}, {what}", remedy=remedy)


class Pipeline:
    """Sends commands many at a time. What was lost, or refused in passing, is sent again from there on, in order."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._left: Sequence[Command] = ()

    def send(self, commands: Sequence[Command]) -> None:
        """
        Raises:
            SinkError: a command was refused, or the server is lost for long.
        """
        self._left = commands
        self._connection.run(f"{len(commands)} commands were not taken", self._try)

    def _try(self, client: Any) -> None:
        pipeline = client.pipeline(transaction=False)
        for command in self._left:
            pipeline.execute_command(*command)
        answers = pipeline.execute(raise_on_error=False)
        for index, answer in enumerate(answers):
            if not isinstance(answer, Exception):
                continue
            if is_passing(answer) or not isinstance(answer, package().RedisError):
                self._left = self._left[index:]
                raise answer
            refused = str(self._left[index])[:300]
            raise self._connection.server.explained(SinkError, f"{refused} is refused", answer)
        self._left = ()

    def close(self) -> None:
        self._connection.close()
