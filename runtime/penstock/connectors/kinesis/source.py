"""`KinesisSource`: the records of streams; and PyFlink's `FlinkKinesisConsumer`.

KinesisSource("readings", JsonLinesFormat(Reading), region="eu-central-1", start="trim_horizon")
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np

from penstock.common.errors import InvalidJob, RecordFormatError, SourceError
from penstock.common.serialization import DeserializationSchema
from penstock.common.time import TimeLike, as_millis
from penstock.connectors.aws import AwsTarget
from penstock.connectors.formats.record_format import MALFORMED_RECORDS, StreamFormat
from penstock.connectors.kafka.source.deserializer import MessageDecoder, shown
from penstock.connectors.kinesis.place import Place
from penstock.connectors.kinesis.reader import Record, Shard
from penstock.connectors.kinesis.shards import LATEST, TRIM_HORIZON, ShardEnumerator, shards_of
from penstock.connectors.kinesis.stream import stream_of
from penstock.connectors.source import (
    ReadBounds,
    ReaderContext,
    Source,
    SourceReader,
    Split,
    SplitEnumerator,
    SplitReader,
)
from penstock.records.batch import Batch, ColumnBatch, RowBatch

_PROPERTIES = {
    "aws.region": "region",
    "aws.endpoint": "endpoint",
    "flink.stream.initpos": "start",
    "flink.stream.initpos.timestamp": "timestamp",
    "flink.stream.initpos.timestamp.format": "format",
    "flink.shard.discovery.intervalmillis": "discovery",
}
_CONNECTIONS = 32
"""To a stream, that are kept."""


class KinesisRejectedRecord(NamedTuple):
    """A record that could not be read, as it comes out of the side output."""

    stream: str
    shard: str
    sequence_number: str
    partition_key: str
    data: bytes
    reason: str


class KinesisSource(Source):
    """Records have the time at which they came to the stream; each shard has a watermark of its own.

    Args:
        streams: a stream's name, or several.
        deserialization_schema: of the records' data: a schema, or a format of lines, such as `JsonLinesFormat`, which decodes many at once into columns.
        region: that of the environment unless given.
        endpoint: URL of another service that speaks the protocol.
        start: "latest" (what comes after the job's first look), "trim_horizon" (all there is), or a time: a datetime, or ms since 1970.
        discovery_interval: how often is looked for shards that others were split or merged into.
        on_error: what becomes of a record that cannot be read: "fail", or "side-output" to `error_tag` as `KinesisRejectedRecord`.
        on_lost: what becomes of records that the stream has dropped, or may have, before they were read: "fail", or "continue" with what is there.
        patience: how long Kinesis may be lost or throttle until the job fails over.
    """

    bounded = False
    tells_last_positions = True

    def __init__(
        self,
        streams: str | Sequence[str],
        deserialization_schema: DeserializationSchema | StreamFormat,
        *,
        region: str = "",
        endpoint: str | None = None,
        start: str | int | datetime = "latest",
        discovery_interval: TimeLike = 10_000,
        on_error: str = "fail",
        error_tag: Any = MALFORMED_RECORDS,
        on_lost: str = "fail",
        patience: TimeLike = 30_000,
    ) -> None:
        for name, given, known in (
            ("on_lost", on_lost, ("fail", "continue")),
            ("on_error", on_error, ("fail", "side-output")),
        ):
            if given not in known:
                raise InvalidJob(f"{name}={given!r}", remedy=f"write {known[0]!r} or {known[1]!r}")
        self.goes_on = on_lost == "continue"
        self.streams = list(dict.fromkeys([streams] if isinstance(streams, str) else streams))
        self._targets = {
            name: stream_of(name, region, endpoint, as_millis(patience, "patience") / 1000) for name in self.streams
        }
        if not self.streams:
            raise InvalidJob("a Kinesis source without a stream", remedy="name one")
        self.schema = deserialization_schema
        self.start_ms = _start_ms(start)
        self.discovery_ms = as_millis(discovery_interval, "discovery_interval")
        self._error_tag = getattr(error_tag, "tag_id", error_tag) if on_error == "side-output" else None
        self.decoder("", "")

    def target(self, stream: str) -> AwsTarget:
        return self._targets[stream]

    def decoder(self, stream: str, shard: str) -> DataDecoder:
        return DataDecoder(stream, shard, self.schema, rejects=self._error_tag is not None)

    def create_enumerator(self) -> SplitEnumerator:
        return ShardEnumerator(self)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return KinesisSourceReader(self)

    def produced_type(self) -> Any:
        if isinstance(self.schema, StreamFormat):
            return self.schema.produced_type()
        return self.schema.get_produced_type()

    def side_output_tags(self) -> tuple[str, ...]:
        return () if self._error_tag is None else (self._error_tag,)

    def validate(self) -> None:
        """
        Raises:
            SourceError: Kinesis does not answer or does not let us, or there is no such stream.
        """
        for name, target in self._targets.items():
            shards_of(target, target.client(SourceError), name)


def _start_ms(start: Any) -> int:
    if isinstance(start, str) and start.lower() in ("latest", "trim_horizon"):
        return LATEST if start.lower() == "latest" else TRIM_HORIZON
    if isinstance(start, datetime):
        return int(start.timestamp() * 1000)
    if isinstance(start, int) and not isinstance(start, bool) and 0 < start <= time.time() * 1000:
        return start
    raise InvalidJob(
        f"start={start!r}", remedy="give 'latest', 'trim_horizon', or a time that is over: a datetime, or ms since 1970"
    )


class FlinkKinesisConsumer(KinesisSource):
    """PyFlink's: a `KinesisSource`, which `add_source` and `from_source` take.

    Args:
        streams: a stream's name, or several.
        deserializer: of the records' data.
        config_props: `aws.region`, `aws.endpoint`, `flink.stream.initpos` (LATEST, TRIM_HORIZON, AT_TIMESTAMP), `flink.stream.initpos.timestamp`
            (s since 1970, or ISO 8601), `flink.shard.discovery.intervalmillis`. Credentials are not taken from here.
    """

    def __init__(
        self,
        streams: str | Sequence[str],
        deserializer: DeserializationSchema | StreamFormat,
        config_props: Mapping[str, Any],
    ) -> None:
        unknown = sorted(key for key in config_props if key not in _PROPERTIES)
        if unknown:
            raise InvalidJob(
                f"FlinkKinesisConsumer does not know {', '.join(unknown)}",
                remedy=f"it knows {', '.join(_PROPERTIES)}; credentials are found as by every AWS client (variables, a role)",
            )
        given = {_PROPERTIES[key]: str(value) for key, value in config_props.items()}
        super().__init__(
            streams,
            deserializer,
            region=given.get("region", ""),
            endpoint=given.get("endpoint"),
            start=flinks_start(config_props, "flink.stream.initpos"),
            discovery_interval=int(given.get("discovery", 10_000)),
        )


def flinks_start(given: Mapping[str, Any], prefix: str) -> str | int:
    """What Flink's properties say of where to begin.

    Raises:
        InvalidJob: the time is none.
    """
    names = {"flink.stream.initpos": ("", ".timestamp"), "source.init": (".position", ".timestamp")}[prefix]
    position, key = (prefix + name for name in names)
    found = str(given.get(position, "LATEST")).upper()
    return _flinks_time(key, str(given.get(key, ""))) if found == "AT_TIMESTAMP" else found


def _flinks_time(key: str, text: str) -> int:
    try:
        return int(float(text) * 1000)
    except ValueError:
        pass
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        raise InvalidJob(f"{key}={text!r}", remedy="write s since 1970, or 2026-11-24T12:00:00+00:00") from None


class KinesisSourceReader(SourceReader):
    def __init__(self, source: KinesisSource) -> None:
        self._source = source
        self._clients: dict[str, Any] = {}
        """Of streams: one takes megabytes, and can be used by many threads."""

    def open_split(self, split: Split, position: Any) -> SplitReader:
        stream = split.properties["stream"]
        if stream not in self._clients:
            self._clients[stream] = self._source.target(stream).client(SourceError, _CONNECTIONS)
        return ShardReader(self._source, self._clients[stream], split, position)


class ShardReader(SplitReader):
    """The position is a `Place`, which moves with the time, too."""

    moves_without_records = True

    def __init__(self, source: KinesisSource, client: Any, split: Split, position: Any) -> None:
        told = split.properties
        self._decoder = source.decoder(told["stream"], told["shard"])
        place = Place.of(position, told["since"])
        self._shard = Shard(source.target(told["stream"]), client, told, place, goes_on=source.goes_on)
        self._rejected: list[Any] = []

    def read(self, bounds: ReadBounds) -> Batch | None:
        taken = self._shard.take(bounds.max_records, bounds.max_bytes)
        if not taken:
            return None
        batch, rejected = self._decoder.decode(taken)
        self._rejected += rejected
        return batch

    def has_given_all(self) -> bool:
        return not self._shard.waiting

    def take_rejected(self) -> list[Any]:
        rejected, self._rejected = self._rejected, []
        return rejected

    @property
    def position(self) -> dict[str, Any]:
        return self._shard.place.position()

    @property
    def finished(self) -> bool:
        return self._shard.is_over

    def lag(self) -> int | None:
        """Of what was received; Kinesis tells times, no numbers."""
        return self._shard.waiting

    def close(self) -> None:
        self._shard.close()


class DataDecoder(MessageDecoder):
    """Of the records of a shard."""

    def __init__(self, stream: str, shard: str, schema: DeserializationSchema | StreamFormat, *, rejects: bool) -> None:
        if not isinstance(schema, DeserializationSchema | StreamFormat):
            raise InvalidJob(
                f"{schema!r} is no deserializer of records",
                remedy="give a DeserializationSchema, or a format of lines such as JsonLinesFormat",
            )
        super().__init__(schema, rejects=rejects, timestamps=True)
        self._stream, self._shard = stream, shard

    def _timed(self, batch: Batch, messages: Sequence[Record]) -> Batch:
        times = [message.time for message in messages]
        if isinstance(batch, ColumnBatch):
            return batch.with_timestamps(np.array(times, np.int64))
        return RowBatch(batch.values, times)

    def _rejected(self, message: Record, reason: str) -> KinesisRejectedRecord:
        return KinesisRejectedRecord(self._stream, self._shard, message.sequence, message.key, message.data, reason)

    def _malformed(self, message: Record, reason: str) -> RecordFormatError:
        return RecordFormatError(
            f"malformed record {message.sequence} of {self._shard} of stream {self._stream!r}: {reason}{shown(message.data)}",
            remedy="correct the producer, or let such records go to a side output: KinesisSource(…, on_error='side-output')",
        )
