"""`RedisStreamSource`: the entries of streams.

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
from penstock.connectors.formats.record_format import MALFORMED_RECORDS, StreamFormat
from penstock.connectors.redis.client import Connection, Server, word
from penstock.connectors.redis.entries import EntryDecoder
from penstock.connectors.redis.sink import PATIENCE, check_alone
from penstock.connectors.redis.tail import BEGIN, Place, Tail, TailedStream, marked
from penstock.connectors.source import (
    ReadBounds,
    ReaderContext,
    Source,
    SourceReader,
    Split,
    SplitEnumerator,
    SplitReader,
)
from penstock.records.batch import Batch


class RedisStreamSource(Source):
    """
    Args:
        url: redis-py's; see the package.
        streams: the key of a stream, or several. Each is a split.
        schema: of the bytes in `field`: a schema, or a format of lines, such as `JsonLinesFormat`, which decodes many at once into columns. None: records are `RedisEntry`s.
        field: of entries, with the record.
        start: "earliest", "latest", or the id of the entry behind which it begins.
        bounded: end with what is there when the job starts.
        may_be_missing: streams need not be there at the start.
        on_lost: what becomes of entries that were trimmed before they were read, or of a stream that was removed or forgotten by its server: "fail", or "continue" with what is there.
        on_error: what becomes of an entry that cannot be read: "fail", or "side-output" to `error_tag` as `RedisRejectedEntry`.
        patience: how long a server may be lost until the job fails over.
        password_file: holds the password; read at every connection.
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
            raise InvalidJob(f"streams={self.streams} of a Redis source", remedy="name one key or several, each once")
        if start not in ("earliest", "latest") and not re.fullmatch(r"\d+(-\d+)?", start):
            raise InvalidJob(
                f"start={start!r}", remedy="write 'earliest', 'latest', or an entry's id: '1700000000000-0'"
            )
        for name, given, known in (
            ("on_lost", on_lost, ("fail", "continue")),
            ("on_error", on_error, ("fail", "side-output")),
        ):
            if given not in known:
                raise InvalidJob(f"{name}={given!r}", remedy=f"write {known[0]!r} or {known[1]!r}")
        self.schema = schema
        self.field = field
        self.start = start
        self.bounded = bounded
        self.may_be_missing = may_be_missing
        self.goes_on = on_lost == "continue"
        self.patience_s = as_millis(patience, "patience") / 1000
        self._error_tag = getattr(error_tag, "tag_id", error_tag) if on_error == "side-output" else None
        self.decoder(self.streams[0])

    def decoder(self, stream: str) -> EntryDecoder:
        return EntryDecoder(stream, self.schema, self.field, rejects=self._error_tag is not None)

    def connection(self) -> Connection:
        return Connection(self.server, SourceError, self.patience_s)

    def create_enumerator(self) -> SplitEnumerator:
        return StreamEnumerator(self)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return StreamSourceReader(self, context)

    def produced_type(self) -> Any:
        if isinstance(self.schema, StreamFormat):
            return self.schema.produced_type()
        return None if self.schema is None else self.schema.get_produced_type()

    def side_output_tags(self) -> tuple[str, ...]:
        return () if self._error_tag is None else (self._error_tag,)

    def validate(self) -> None:
        """
        Raises:
            SourceError: the server does not answer or does not let us, is too old or one of a cluster, or there is no such stream or right.
        """
        connection = Connection(self.server, SourceError, 0.0)
        try:
            connection.run("cannot be asked", self._check_server)
            for stream in self.streams:
                self.look(connection, stream)
        finally:
            connection.close()

    def _check_server(self, client: Any) -> None:
        try:
            self.server.check_version(client, SourceError)
            check_alone(self.server, client.info("cluster"), SourceError)
        except SourceError:
            raise
        except Exception as error:
            if word(error) != "NOPERM":  # it need not tell us
                raise

    def look(self, connection: Connection, stream: str) -> dict[str, Any] | None:
        """What the server knows of the stream; None: it is not there, and need not be.

        Raises:
            SourceError: it is not there, or the key holds something else.
        """
        what = f"stream {stream!r} cannot be read"
        kind = connection.run(what, lambda client: client.type(stream)).decode()
        if kind == "none":
            if self.may_be_missing:
                return None
            raise SourceError(
                f"{self.server.shown}: there is no stream {stream!r}",
                remedy="name one that is there, or wait for it: may_be_missing=True",
            )
        if kind != "stream":
            raise SourceError(
                f"{self.server.shown}: {stream!r} is a {kind}, no stream (WRONGTYPE)", remedy="name a stream's key"
            )
        connection.run(what, lambda client: client.xrange(stream, count=1))
        found: dict[str, Any] = connection.run(what, lambda client: client.xinfo_stream(stream))
        return found


class StreamEnumerator(SplitEnumerator):
    """Each stream is a split, found at the first start that names it."""

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
            splits = [self._split(stream, self._source.look(connection, stream)) for stream in wanted]
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
    """One thread and connection for all streams of a subtask."""

    def __init__(self, source: RedisStreamSource, context: ReaderContext) -> None:
        self._source = source
        self._tail = Tail(source.connection(), f"redis {context.uid} {context.subtask}", goes_on=source.goes_on)

    def open_split(self, split: Split, position: Any) -> SplitReader:
        given = split.properties if position is None else position
        place = Place(given["after"], None if given["number"] < 0 else given["number"])
        marks = [Place(id, number) for id, number in given.get("marks", [])]
        stream = self._tail.follow(split.id, place, split.properties["up_to"], marks)
        return StreamReader(self._source, stream, place)

    def close(self) -> None:
        self._tail.close()


class StreamReader(SplitReader):
    """The position: the id of the last entry that was read, and the how manieth it was of all that were ever added (-1: not known); `marks`, some that were
    read before, by which a stream that has forgotten is told from another one."""

    def __init__(self, source: RedisStreamSource, stream: TailedStream, place: Place) -> None:
        self._decoder = source.decoder(stream.name)
        self._stream = stream
        self._place = place
        self._rejected: list[Any] = []

    def read(self, bounds: ReadBounds) -> Batch | None:
        entries = self._stream.take(bounds.max_records, bounds.max_bytes)
        if not entries:
            return None
        self._place = entries[-1].place
        self._stream.marks = marked(self._stream.marks or [entries[0].place], self._place)
        batch, rejected = self._decoder.decode(entries)
        self._rejected += rejected
        return batch

    def has_given_all(self) -> bool:
        return not self._stream.waiting

    def take_rejected(self) -> list[Any]:
        rejected, self._rejected = self._rejected, []
        return rejected

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
