"""`RedisStreamSink`: add entries to streams.

RedisStreamSink("redis://job@cache:6379", "alerts", JsonLinesEncoder())
RedisStreamSink("redis://job@cache:6379", lambda alert: f"alerts:{alert.region}", lambda alert: {"id": alert.id, "text": alert.text})
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from penstock.common.errors import InvalidJob, SinkError
from penstock.common.serialization import SerializationSchema
from penstock.common.time import TimeLike, as_millis
from penstock.connectors.core.delivery_guarantee import DeliveryGuarantee
from penstock.connectors.core.sink import Committer, Sink, SinkWriter, StagedCommittable, WriterContext
from penstock.connectors.lakehouse.commits import app_of
from penstock.connectors.redis.client import Connection, Server
from penstock.connectors.redis.commands import FORMS, Command, Pipeline, encoded
from penstock.connectors.redis.committer import MOST_FIELDS, RedisCommitter
from penstock.connectors.redis.sink import PATIENCE, CommandWriter, check_writable
from penstock.connectors.spark.staged import to_ipc

Fields = list[bytes]
"""Alternating names and values."""


class RedisStreamSink(Sink):
    """A sink that adds an entry to a stream for each record.

    Args:
        url: the URL for redis-py; see the package.
        stream: the key of the stream, or a function from a record to the key of its stream.
        entry: a function from a record to the fields of its entry, or a `SerializationSchema`, whose bytes become the field "value".
        guarantee: EXACTLY_ONCE, or AT_LEAST_ONCE.
        max_length: the approximate number of entries to which the sink trims streams. 0 means that it never trims them.
        batch_size: the number of entries per step.
        batch_time: with AT_LEAST_ONCE, the maximum time that an entry waits for more entries.
        patience: how long the sink retries if a server is lost, loading or full. After this time, the job fails over.
        password_file: the file with the password. It is read at every connection.
    """

    def __init__(
        self,
        url: str,
        stream: str | Callable[[Any], str],
        entry: Callable[[Any], dict[str, Any]] | SerializationSchema,
        *,
        guarantee: DeliveryGuarantee = DeliveryGuarantee.EXACTLY_ONCE,
        max_length: int = 0,
        batch_size: int = 1_000,
        batch_time: TimeLike = 100,
        patience: TimeLike = PATIENCE,
        password_file: str = "",
    ) -> None:
        if guarantee not in (DeliveryGuarantee.EXACTLY_ONCE, DeliveryGuarantee.AT_LEAST_ONCE):
            raise InvalidJob(
                f"a Redis stream sink does not support {guarantee}", remedy="use EXACTLY_ONCE or AT_LEAST_ONCE"
            )
        if batch_size < 1 or max_length < 0:
            raise InvalidJob(
                f"batch_size={batch_size}, max_length={max_length}: one of them is too small",
                remedy="set batch_size to at least 1, and max_length to at least 0",
            )
        if not stream:
            raise InvalidJob("a Redis stream sink needs a stream", remedy="pass the key of the stream")
        self.server = Server(url, password_file)
        self.stream = stream
        self.entry = entry
        self.is_exact = guarantee is DeliveryGuarantee.EXACTLY_ONCE
        self.max_length = max_length
        self.batch_size = batch_size
        self.batch_ms = as_millis(batch_time, "batch_time")
        self.patience_s = as_millis(patience, "patience") / 1000

    def of(self, record: Any) -> tuple[str, Fields]:
        """Return the stream and the fields of a record.

        Raises:
            SinkError: a record has no fields, or has a value without a Redis representation.
        """
        stream = self.stream if isinstance(self.stream, str) else self.stream(record)
        if isinstance(self.entry, SerializationSchema):
            return stream, [b"value", self.entry.serialize(record)]
        fields = self.entry(record)
        if (
            not isinstance(stream, str)
            or not stream
            or not isinstance(fields, dict)
            or not 0 < len(fields) * 2 <= MOST_FIELDS
        ):
            raise SinkError(
                f"the record {str(record)[:300]} has the stream {stream!r} and the fields {str(fields)[:300]}, which Redis does not accept",
                remedy=f"return a dict of 1 to {MOST_FIELDS // 2} fields from entry=, and the key of a stream from stream=",
            )
        found: Fields = []
        for name, value in fields.items():
            found += _bytes(name, record), _bytes(value, record)
        return stream, found

    def create_writer(self, context: WriterContext, restored: list[Any]) -> SinkWriter:
        if self.is_exact:
            return StagingWriter(self, app_of(context.job_id, context.uid), context.subtask)
        connection = Connection(self.server, SinkError, self.patience_s)
        return CommandWriter(Pipeline(connection), self._added, self.batch_size, self.batch_ms)

    def _added(self, record: Any) -> list[Command]:
        stream, fields = self.of(record)
        bound = ("MAXLEN", "~", self.max_length) if self.max_length else ()
        return [("XADD", stream, *bound, "*", *fields)]

    def create_committer(
        self, object_store_options: dict[str, Any], *, job_id: str = "", uid: str = ""
    ) -> Committer | None:
        if not self.is_exact:
            return None
        return RedisCommitter(self.server, self.patience_s, self.batch_size, self.max_length)

    def check_checkpoints(self, interval_ms: int, *, bounded: bool) -> None:
        if self.is_exact and not interval_ms and not bounded:
            raise InvalidJob(
                "an exactly-once Redis stream sink without checkpoints would never commit",
                remedy="env.enable_checkpointing(1000), or DeliveryGuarantee.AT_LEAST_ONCE",
            )

    def validate(self) -> None:
        """Check before the job starts that the server is accessible and the streams can be written.

        Raises:
            SinkError: the server does not answer, refuses access, is a replica, belongs to a cluster, or may evict the sink's notes. The
                key of a stream with another type is an error too.
        """
        check_writable(self.server, keeps_notes=self.is_exact)
        if isinstance(self.stream, str):
            connection = Connection(self.server, SinkError, 0.0)
            stream = self.stream
            try:
                found = connection.run(f"cannot check {stream!r}", lambda client: client.type(stream))
            finally:
                connection.close()
            if found not in (b"none", b"stream"):
                raise SinkError(
                    f"{self.server.shown}: {stream!r} is a {found.decode()} (WRONGTYPE)",
                    remedy="choose another key, or delete that one",
                )


def _bytes(value: Any, record: Any) -> bytes:
    found = encoded(value)
    if found is None:
        raise SinkError(
            f"{str(record)[:300]} has a field {value!r}, which has no Redis representation",
            remedy=f"use {FORMS}, and remove fields that are None",
        )
    return found


class StagingWriter(SinkWriter):
    """A writer that puts the entries themselves into the checkpoint."""

    def __init__(self, sink: RedisStreamSink, app: str, subtask: int) -> None:
        self._sink = sink
        self._app = app
        self._subtask = subtask
        self._streams: list[str] = []
        self._fields: list[Fields] = []

    def write(self, values: list[Any], timestamps: list[int] | None, watermark: int) -> None:
        for value in values:
            stream, fields = self._sink.of(value)
            self._streams.append(stream)
            self._fields.append(fields)

    def prepare_commit(self, checkpoint_id: int) -> list[Any]:
        if not self._streams:
            return []
        streams, fields, self._streams, self._fields = self._streams, self._fields, [], []
        about = {
            "app": self._app,
            "checkpoint": checkpoint_id,
            "subtask": self._subtask,
            "id": secrets.token_hex(8),
            "at": int(time.time() * 1000),
        }

        def content() -> bytes:
            kinds = {"stream": pa.string(), "fields": pa.list_(pa.binary())}
            return to_ipc(pa.table({"stream": streams, "fields": fields}, schema=pa.schema(kinds.items())))

        return [StagedCommittable(about, content)]
