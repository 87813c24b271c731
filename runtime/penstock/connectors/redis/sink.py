"""`RedisSink`: send commands for each record.

RedisSink("redis://job@cache:6379", lambda mean: ("HSET", f"mean:{mean.station}", "celsius", mean.celsius), ttl=timedelta(days=1))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.common.errors import InvalidJob, SinkError
from penstock.common.time import TimeLike, as_millis
from penstock.connectors.core.batching import BatchingWriter
from penstock.connectors.core.sink import Sink, SinkWriter, WriterContext
from penstock.connectors.redis.client import Connection, Server, message_of, word
from penstock.connectors.redis.commands import Command, Pipeline, checked

PATIENCE = 30_000


class RedisSink(Sink):
    """A sink that sends one or more commands for each record.

    Args:
        url: the URL for redis-py; see the package.
        mapper: a function from a record to its command `("SET", key, value)`, a list of commands, or None. Commands must be idempotent,
            so the sink refuses increments.
        ttl: the time after which written keys expire. 0 means never.
        batch_size: the number of commands after which they are sent.
        batch_time: the maximum time that commands wait before the sink sends them. The sink also sends them at every checkpoint.
        patience: how long the sink retries if a server is lost, loading or full. After this time, the job fails over.
        password_file: the file with the password. It is read at every connection.
    """

    def __init__(
        self,
        url: str,
        mapper: Callable[[Any], Command | Sequence[Command] | None],
        *,
        ttl: TimeLike = 0,
        batch_size: int = 1_000,
        batch_time: TimeLike = 100,
        patience: TimeLike = PATIENCE,
        password_file: str = "",
    ) -> None:
        if batch_size < 1:
            raise InvalidJob(f"batch_size={batch_size} is too small", remedy="set batch_size to at least 1")
        self.server = Server(url, password_file)
        self.mapper = mapper
        self.ttl_ms = as_millis(ttl, "ttl")
        self.batch_size = batch_size
        self.batch_ms = as_millis(batch_time, "batch_time")
        self.patience_s = as_millis(patience, "patience") / 1000

    def create_writer(self, context: WriterContext, restored: list[Any]) -> SinkWriter:
        return CommandWriter(
            Pipeline(Connection(self.server, SinkError, self.patience_s)),
            lambda record: checked(self.mapper(record), record, self.ttl_ms),
            self.batch_size,
            self.batch_ms,
        )

    def validate(self) -> None:
        """Check before the job starts that the server is accessible and can be written.

        Raises:
            SinkError: the server does not answer or refuses access, is a replica, or belongs to a cluster.
        """
        check_writable(self.server)


class CommandWriter(BatchingWriter):
    """A writer that sends commands when the batch is full, when they have waited long enough, and at every barrier."""

    def __init__(
        self, pipeline: Pipeline, commands: Callable[[Any], list[Command]], batch_size: int, batch_ms: int
    ) -> None:
        super().__init__(batch_ms)
        self._pipeline = pipeline
        self._commands = commands
        self._size = batch_size
        self._buffered: list[Command] = []

    def write(self, values: list[Any], timestamps: list[int] | None, watermark: int) -> None:
        for value in values:
            self._buffered += self._commands(value)
            if len(self._buffered) >= self._size:
                self.flush()

    @property
    def holds(self) -> bool:
        return bool(self._buffered)

    def flush(self) -> None:
        """Send the waiting commands, and wait for their results.

        Raises:
            SinkError: the server is unavailable for too long, or rejects a command.
        """
        commands, self._buffered = self._buffered, []
        if commands:
            self._pipeline.send(commands)

    def close(self) -> None:
        self._pipeline.close()


def check_writable(server: Server, *, keeps_notes: bool = False) -> None:
    """Check that the server is a primary outside of a cluster.

    Args:
        keeps_notes: whether the sink stores keys that have no time to live. The server must not evict these keys.

    Raises:
        SinkError: the server does not answer or refuses access, is a replica, belongs to a cluster, or could evict these keys.
    """
    client = server.connect(SinkError)
    try:
        try:
            about = {**client.info("replication"), **client.info("cluster"), **client.info("memory")}
        except Exception as error:
            if word(error) == "NOPERM":
                return  # the server may hide its configuration
            raise server.explained(SinkError, f"cannot be checked: {message_of(error)}", error) from error
        policy = str(about.get("maxmemory_policy", ""))
        if keeps_notes and about.get("maxmemory") and policy.startswith("allkeys"):
            raise SinkError(
                f"{server.shown}: maxmemory-policy is {policy}. The server could evict streams and the notes against duplicate writes",
                remedy="set maxmemory-policy noeviction (or volatile-…, for keys with a time to live), or DeliveryGuarantee.AT_LEAST_ONCE",
            )
        if about.get("role") == "slave" and not about.get("slave_read_only") == 0:
            raise SinkError(
                f"{server.shown} is a replica (READONLY)",
                remedy="use the address of the primary, or one that always points to it",
            )
        check_alone(server, about, SinkError)
    finally:
        client.close()


def check_alone(server: Server, about: dict[str, Any], kind: type[Any]) -> None:
    if about.get("cluster_enabled"):
        raise kind(
            f"{server.shown} belongs to a Redis Cluster, whose keys are on several servers (MOVED)",
            remedy="use a server (or a proxy) that holds all keys",
        )
