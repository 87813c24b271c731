"""`RedisStreamSource`: read the entries of streams.

RedisStreamSource("redis://job@cache:6379", "orders", JsonLinesFormat(Order))
RedisStreamSource("redis://job@cache:6379", ["clicks:eu", "clicks:us"], start="latest")     # `RedisEntry`s
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from penstock.common.errors import InvalidJob, SourceError
from penstock.common.serialization import DeserializationSchema
from penstock.common.time import TimeLike, as_millis
from penstock.connectors.core.source import (
    ReadBounds,
    ReaderContext,
    SourceReader,
    Split,
    SplitEnumerator,
    SplitReader,
)
from penstock.connectors.formats.record_format import MALFORMED_RECORDS, StreamFormat
from penstock.connectors.messages.source import MessageReader, MessageSource, check_choice, error_tag_of
from penstock.connectors.redis.client import Connection, Server, word
from penstock.connectors.redis.entries import EntryDecoder
from penstock.connectors.redis.sink import PATIENCE, check_alone
from penstock.connectors.redis.tail import BEGIN, Place, Tail, TailedStream, marked
from penstock.records.batch import Batch


class RedisStreamSource(MessageSource):
    """A source that reads the entries of streams.

    Args:
        url: the URL for redis-py; see the package.
        streams: the key of a stream, or several keys. Each stream is a split.
        schema: the decoder of the bytes in `field`: a schema, or a format of lines such as `JsonLinesFormat`, which decodes batches into
            columns. None means that records are `RedisEntry`s.
        field: the field of an entry that holds the record.
        start: "earliest", "latest", or the id of an entry after which to start.
        bounded: whether the source ends after the entries that exist when the job starts.
        may_be_missing: whether streams may be missing when the job starts.
        on_lost: how to treat lost entries: "fail", or "continue" with the remaining entries. Entries are lost if they are trimmed before they
            are read, or if the stream is deleted or lost by its server.
        on_error: how to treat an entry that cannot be decoded: "fail", or "side-output" to `error_tag` as `RedisRejectedEntry`.
        patience: how long a server may be unavailable before the job fails over.
        password_file: the file with the password. It is read at every connection.
    """

    def __init__(
        self,
        url: str,
        streams: str | Sequence[str],
        schema: DeserializationSchema | StreamFormat | None = None,
        *,
        field: str = "value",
        start: str = "earliest",
        bounded: bool = False,
        may_be_missing: bool = False,
        on_lost: str = "fail",
        on_error: str = "fail",
        error_tag: Any = MALFORMED_RECORDS,
        patience: TimeLike = PATIENCE,
        password_file: str = "",
    ) -> None:
        self.server = Server(url, password_file)
        self.streams = [streams] if isinstance(streams, str) else list(streams)
        if not all(self.streams) or not self.streams or len(set(self.streams)) < len(self.streams):
            raise InvalidJob(
                f"streams={self.streams} must have one or more distinct keys", remedy="pass the keys of the streams"
            )
        if start not in ("earliest", "latest") and not re.fullmatch(r"\d+(-\d+)?", start):
            raise InvalidJob(
                f"start={start!r} is not valid",
                remedy="write 'earliest', 'latest', or an entry's id: '1700000000000-0'",
            )
        super().__init__(schema, error_tag_of(on_error, error_tag))
        check_choice("on_lost", on_lost, "fail", "continue")
        self.field = field
        self.start = start
        self.bounded = bounded
        self.may_be_missing = may_be_missing
        self.accepts_loss = on_lost == "continue"
        self.patience_s = as_millis(patience, "patience") / 1000
        self.decoder(self.streams[0])

    def decoder(self, stream: str) -> EntryDecoder:
        return EntryDecoder(stream, self.schema, self.field, rejects=self.rejects)

    def connection(self) -> Connection:
        return Connection(self.server, SourceError, self.patience_s)

    def create_enumerator(self) -> SplitEnumerator:
        return StreamEnumerator(self)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return StreamSourceReader(self, context)

    def validate(self) -> None:
        """Check before the job starts that the server is accessible and the streams exist.

        Raises:
            SourceError: the server does not answer, refuses access, is too old or belongs to a cluster; or a stream or a right is
            missing.
        """
        connection = Connection(self.server, SourceError, 0.0)
        try:
            connection.run("cannot be checked", self._check_server)
            for stream in self.streams:
                self.describe(connection, stream)
        finally:
            connection.close()

    def _check_server(self, client: Any) -> None:
        try:
            self.server.check_version(client, SourceError)
            check_alone(self.server, client.info("cluster"), SourceError)
        except SourceError:
            raise
        except Exception as error:
            if word(error) != "NOPERM":  # the server may hide its configuration
                raise

    def describe(self, connection: Connection, stream: str) -> dict[str, Any] | None:
        """Return the server's information about the stream, or None if the stream may be missing and does not exist.

        Raises:
            SourceError: the stream does not exist, or the key holds another type.
        """
        problem = f"stream {stream!r} cannot be read"
        kind = connection.run(problem, lambda client: client.type(stream)).decode()
        if kind == "none":
            if self.may_be_missing:
                return None
            raise SourceError(
                f"{self.server.shown}: stream {stream!r} does not exist",
                remedy="name an existing stream, or allow a missing one: may_be_missing=True",
            )
        if kind != "stream":
            raise SourceError(
                f"{self.server.shown}: {stream!r} is a {kind}, not a stream (WRONGTYPE)",
                remedy="pass the key of a stream",
            )
        connection.run(problem, lambda client: client.xrange(stream, count=1))
        found: dict[str, Any] = connection.run(problem, lambda client: client.xinfo_stream(stream))
        return found


class StreamEnumerator(SplitEnumerator):
    """The enumerator: each stream is a split, created at the first start that names the stream."""

    forgets_finished = True

    def __init__(self, source: RedisStreamSource) -> None:
        self._source = source
        self._found: list[str] = []

    def discover(self) -> list[Split]:
        wanted = [stream for stream in self._source.streams if stream not in self._found]
        if not wanted:
            return []
        connection = self._source.connection()
        try:
            splits = [self._split(stream, self._source.describe(connection, stream)) for stream in wanted]
        finally:
            connection.close()
        self._found += wanted
        return splits

    def _split(self, stream: str, about: dict[str, Any] | None) -> Split:
        start, bounded = self._source.start, self._source.bounded
        if about is None:
            after, number, last = BEGIN, 0, BEGIN
        else:
            added, last = int(about["entries-added"]), about["last-generated-id"].decode()
            after, number = BEGIN, added - int(about["length"])
            if start == "latest":
                after, number = last, added
        if start not in ("earliest", "latest"):
            after, number = start if "-" in start else f"{start}-0", -1
        return Split(stream, {"after": after, "number": number, "up_to": last if bounded else None})

    def snapshot(self) -> Any:
        return list(self._found)

    def restore(self, state: Any) -> None:
        self._found = list(state or [])


class StreamSourceReader(SourceReader):
    """The reader of a subtask: one thread and one connection for all its streams."""

    def __init__(self, source: RedisStreamSource, context: ReaderContext) -> None:
        self._source = source
        self._tail = Tail(
            source.connection(), f"redis {context.uid} {context.subtask}", accepts_loss=source.accepts_loss
        )

    def open_split(self, split: Split, position: Any) -> SplitReader:
        start = split.properties if position is None else position
        place = Place(start["after"], None if start["number"] < 0 else start["number"])
        marks = [Place(id, number) for id, number in start.get("marks", [])]
        stream = self._tail.follow(split.id, place, split.properties["up_to"], marks)
        return StreamReader(self._source, stream, place)

    def close(self) -> None:
        self._tail.close()


class StreamReader(MessageReader):
    """The reader of one stream.

    Its position has the id of the last read entry and that entry's number among all entries ever added (-1 means unknown). `marks` has some
    earlier entries. They show whether the stream has lost entries or is a different stream."""

    def __init__(self, source: RedisStreamSource, stream: TailedStream, place: Place) -> None:
        super().__init__(source.decoder(stream.name))
        self._stream = stream
        self._place = place

    def read(self, bounds: ReadBounds) -> Batch | None:
        entries = self._stream.inbox.take(bounds.max_records, bounds.max_bytes)
        if not entries:
            return None
        self._place = entries[-1].place
        self._stream.marks = marked(self._stream.marks or [entries[0].place], self._place)
        return self._decode(entries)

    def is_caught_up(self) -> bool:
        return not self._stream.inbox

    @property
    def position(self) -> Any:
        number = self._place.number
        marks = [list(mark) for mark in self._stream.marks]
        return {"after": self._place.id, "number": -1 if number is None else number, "marks": marks}

    @property
    def finished(self) -> bool:
        return self._stream.is_over

    def lag(self) -> int | None:
        return self._stream.lag

    def close(self) -> None:
        self._stream.leave()
