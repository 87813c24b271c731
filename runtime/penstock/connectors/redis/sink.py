"""`RedisSink`: commands for each record.

RedisSink("redis://job@cache:6379", lambda mean: ("HSET", f"mean:{mean.station}", "celsius", mean.celsius), ttl=timedelta(days=1))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.common.errors import InvalidJob, SinkError
from penstock.common.time import TimeLike, as_millis
from penstock.connectors.batching import BatchingWriter
from penstock.connectors.redis.client import Connection, Server, told, word
from penstock.connectors.redis.commands import Command, Pipeline, checked
from penstock.connectors.sink import Sink, SinkWriter, WriterContext

PATIENCE = 30_000


class RedisSink(Sink):
    """
    Args:
        url: redis-py's; see the package.
        mapper: a record -> its command, `("SET", key, value)`, several in a list, or None. Commands may be carried out twice; those that add up are refused.
        ttl: after which keys that were written are gone; 0: never.
        batch_size: commands are sent when there are so many,
        batch_time: or when they have waited so long, and at every checkpoint.
        patience: how long a server may be lost, loading or full until the job fails over.
        password_file: holds the password; read at every connection.
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
            raise InvalidJob(f"batch_size={batch_size}", remedy="1 or more")
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
        """
        Raises:
            SinkError: the server does not answer or does not let us, is a replica, or one of a cluster.
        """
        check_writable(self.server)


class CommandWriter(BatchingWriter):
    """Sends commands when enough have come, when they have waited, and at every barrier."""

    def __init__(
        self, pipeline: Pipeline, commands: Callable[[Any], list[Command]], batch_size: int, batch_ms: int
    ) -> None:
        super().__init__(batch_ms)
        self._pipeline = pipeline
        self._commands = commands
        self._size = batch_size
        self._held: list[Command] = []

    def write(self, values: list[Any], timestamps: list[int] | None, watermark: int) -> None:
        for value in values:
            self._held += self._commands(value)
            if len(self._held) >= self._size:
                self.flush()

    @property
    def holds(self) -> bool:
        return bool(self._held)

    def flush(self) -> None:
        """
        Raises:
            SinkError: the server is lost for long, or refuses a command.
        """
        held, self._held = self._held, []
        if held:
            self._pipeline.send(held)

    def close(self) -> None:
        self._pipeline.close()


def check_writable(server: Server, *, keeps_notes: bool = False) -> None:
    """
    Args:
        keeps_notes: keys of ours without a time to live must stay.

    Raises:
        SinkError: the server does not answer or does not let us, is a replica, or one of a cluster; or it evicts such keys.
    """
    client = server.connect(SinkError)
    try:
        try:
            about = {**client.info("replication"), **client.info("cluster"), **client.info("memory")}
        except Exception as error:
            if word(error) == "NOPERM":
                return  # it need not tell us
            raise server.explained(SinkError, f"cannot be asked: {told(error)}", error) from error
        policy = str(about.get("maxmemory_policy", ""))
        if keeps_notes and about.get("maxmemory") and policy.startswith("allkeys"):
            raise SinkError(
                f"{server.shown}: maxmemory-policy is {policy}: the server would evict the notes by which a checkpoint is written once, and streams",
                remedy="config set maxmemory-policy noeviction (or volatile-…, for keys with a time to live), or DeliveryGuarantee.AT_LEAST_ONCE",
            )
        if about.get("role") == "slave" and not about.get("slave_read_only") == 0:
            raise SinkError(
                f"{server.shown} is a replica (READONLY)",
                remedy="name the primary, or the address that follows it",
            )
        check_alone(server, about, SinkError)
    finally:
        client.close()


def check_alone(server: Server, about: dict[str, Any], kind: type[Any]) -> None:
    if about.get("cluster_enabled"):
        raise kind(
            f"{server.shown} is one of a Redis Cluster, whose keys are on several servers (MOVED)",
            remedy="name a server (or a proxy) that holds all keys",
        )
