"""`KinesisSource`: read the records of streams. The module also has PyFlink's `FlinkKinesisConsumer`.

KinesisSource("readings", JsonLinesFormat(Reading), region="eu-central-1", start="trim_horizon")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from penstock.common.errors import InvalidJob, SourceError
from penstock.common.serialization import DeserializationSchema
from penstock.connectors.core.source import (
    ReadBounds,
    ReaderContext,
    SourceReader,
    Split,
    SplitEnumerator,
    SplitReader,
)
from penstock.connectors.formats.record_format import StreamFormat
from penstock.connectors.kinesis.place import Place
from penstock.connectors.kinesis.reader import Shard
from penstock.connectors.kinesis.settings import KinesisSettings
from penstock.connectors.kinesis.shards import ShardEnumerator
from penstock.connectors.kinesis.stream import shards_of
from penstock.connectors.messages.source import MessageReader
from penstock.records.batch import Batch

_PROPERTIES = {
    "aws.region": "region",
    "aws.endpoint": "endpoint",
    "flink.stream.initpos": "start",
    "flink.stream.initpos.timestamp": "timestamp",
    "flink.stream.initpos.timestamp.format": "format",
    "flink.shard.discovery.intervalmillis": "discovery",
}
_CONNECTIONS = 32
"""Maximum number of pooled connections to a stream."""


class KinesisSource(KinesisSettings):
    """A source of streams. A record's timestamp is its arrival time at the stream. Each shard has its own watermark.

    Args:
        streams: a stream's name, or several.
        deserialization_schema: the decoder of the records' data: a schema, or a format of lines such as `JsonLinesFormat`, which decodes
            batches into columns.
        region: the region. The default is the environment's region.
        endpoint: the URL of another service with the same protocol.
        start: "latest" (records after the job's first discovery), "trim_horizon" (all records), or a time: a datetime, or ms since 1970.
        discovery_interval: the interval between two checks for shards that result from splits or merges.
        on_error: how to treat a record that cannot be decoded: "fail", or "side-output" to `error_tag` as `KinesisRejectedRecord`.
        on_lost: how to treat records that the stream has, or may have, dropped before they were read: "fail", or "continue" without them.
        patience: how long Kinesis may be unavailable or throttle before the job fails over.
    """

    needs_last_positions = True

    def create_enumerator(self) -> SplitEnumerator:
        return ShardEnumerator(self)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return KinesisSourceReader(self)

    def validate(self) -> None:
        """Check before the job starts that the streams exist and are accessible.

        Raises:
            SourceError: Kinesis does not answer or refuses access, or the stream does not exist.
        """
        for name, target in self._targets.items():
            shards_of(target, target.client(SourceError), name)


class FlinkKinesisConsumer(KinesisSource):
    """PyFlink's name for a `KinesisSource`. `add_source` and `from_source` accept it.

    Args:
        streams: a stream's name, or several.
        deserializer: the decoder of the records' data.
        config_props: `aws.region`, `aws.endpoint`, `flink.stream.initpos` (LATEST, TRIM_HORIZON, AT_TIMESTAMP), `flink.stream.initpos.timestamp`
            (s since 1970, or ISO 8601), `flink.shard.discovery.intervalmillis`. Credentials are not read from these properties.
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
                f"FlinkKinesisConsumer does not support the properties {', '.join(unknown)}",
                remedy=f"use {', '.join(_PROPERTIES)}. Set credentials as for every AWS client, with environment variables or a role",
            )
        options = {_PROPERTIES[key]: str(value) for key, value in config_props.items()}
        super().__init__(
            streams,
            deserializer,
            region=options.get("region", ""),
            endpoint=options.get("endpoint"),
            start=flinks_start(config_props, "flink.stream.initpos"),
            discovery_interval=int(options.get("discovery", 10_000)),
        )


def flinks_start(properties: Mapping[str, Any], prefix: str) -> str | int:
    """Return the start position from Flink's properties.

    Raises:
        InvalidJob: the time is invalid.
    """
    names = {"flink.stream.initpos": ("", ".timestamp"), "source.init": (".position", ".timestamp")}[prefix]
    position, key = (prefix + name for name in names)
    found = str(properties.get(position, "LATEST")).upper()
    return _flinks_time(key, str(properties.get(key, ""))) if found == "AT_TIMESTAMP" else found


def _flinks_time(key: str, text: str) -> int:
    try:
        return int(float(text) * 1000)
    except ValueError:
        pass
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        raise InvalidJob(
            f"{key}={text!r} is not a time",
            remedy="write seconds since 1970, or a time such as 2026-11-24T12:00:00+00:00",
        ) from None


class KinesisSourceReader(SourceReader):
    def __init__(self, source: KinesisSettings) -> None:
        self._source = source
        self._clients: dict[str, Any] = {}
        """Clients by stream. A client takes megabytes, and threads can share it."""

    def open_split(self, split: Split, position: Any) -> SplitReader:
        stream = split.properties["stream"]
        if stream not in self._clients:
            self._clients[stream] = self._source.target(stream).client(SourceError, _CONNECTIONS)
        return ShardReader(self._source, self._clients[stream], split, position)


class ShardReader(MessageReader):
    """A reader of one shard. Its position is a `Place`, which also advances with time."""

    moves_without_records = True

    def __init__(self, source: KinesisSettings, client: Any, split: Split, position: Any) -> None:
        properties = split.properties
        super().__init__(source.decoder(properties["stream"], properties["shard"]))
        place = Place.of(position, properties["since"])
        self._shard = Shard(
            source.target(properties["stream"]), client, properties, place, accepts_loss=source.accepts_loss
        )

    def read(self, bounds: ReadBounds) -> Batch | None:
        taken = self._shard.take(bounds.max_records, bounds.max_bytes)
        return self._decode(taken) if taken else None

    def is_caught_up(self) -> bool:
        return not self._shard.waiting

    @property
    def position(self) -> dict[str, Any]:
        return self._shard.place.position()

    @property
    def finished(self) -> bool:
        return self._shard.is_over

    def lag(self) -> int | None:
        """Return the number of received records that wait. Kinesis reports how far a reader is behind in time, not in records."""
        return self._shard.waiting

    def close(self) -> None:
        self._shard.close()
