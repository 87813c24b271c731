"""`KinesisStreamsSource`: PyFlink's builder of a `KinesisSource`.

KinesisStreamsSource.builder().set_stream_arn("arn:aws:kinesis:eu-central-1:123456789012:stream/readings").set_deserialization_schema(
    SimpleStringSchema()).set_source_config(Configuration({"source.init.position": "TRIM_HORIZON"})).build()
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Self

from penstock.common.configuration import Configuration
from penstock.common.errors import InvalidJob
from penstock.common.serialization import DeserializationSchema
from penstock.common.time import parse_duration
from penstock.connectors.formats.record_format import StreamFormat
from penstock.connectors.kinesis.source import KinesisSource, flinks_start

_ARN = re.compile(r"arn:aws[a-z-]*:kinesis:([a-z0-9-]+):\d*:stream/([A-Za-z0-9_.-]{1,128})")
_KNOWN = {
    "aws.region",
    "aws.endpoint",
    "source.init.position",
    "source.init.timestamp",
    "source.init.timestamp.format",
    "source.shard.discovery.interval",
    "source.reader.type",
}


class KinesisShardAssigner:
    """PyFlink's class. It has no effect: each shard goes to the subtask with the smallest load."""

    @staticmethod
    def default_shard_assigner() -> KinesisShardAssigner:
        return KinesisShardAssigner()

    @staticmethod
    def uniform_shard_assigner() -> KinesisShardAssigner:
        return KinesisShardAssigner()


class KinesisStreamsSource(KinesisSource):
    """A `KinesisSource` that `builder()` creates."""

    @staticmethod
    def builder() -> KinesisStreamsSourceBuilder:
        return KinesisStreamsSourceBuilder()


class KinesisStreamsSourceBuilder:
    """A builder. `set_stream_arn` and `set_deserialization_schema` are required."""

    def __init__(self) -> None:
        self._region = self._stream = ""
        self._schema: Any = None
        self._config: dict[str, Any] = {}

    def set_stream_arn(self, stream_arn: str) -> Self:
        """Set the stream by its ARN.

        Raises:
            InvalidJob: the ARN does not name a stream.
        """
        found = _ARN.fullmatch(str(stream_arn))
        if not found:
            raise InvalidJob(
                f"stream_arn={stream_arn!r} is not the ARN of a stream",
                remedy="copy it from Kinesis: arn:aws:kinesis:eu-central-1:123456789012:stream/readings",
            )
        self._region, self._stream = found[1], found[2]
        return self

    def set_deserialization_schema(self, deserialization_schema: DeserializationSchema | StreamFormat) -> Self:
        """Set a schema, or a format of lines such as `JsonLinesFormat`, which decodes batches into columns."""
        self._schema = deserialization_schema
        return self

    def set_kinesis_shard_assigner(self, shard_assigner: KinesisShardAssigner) -> Self:
        """Ignore the value: the assignment of shards does not depend on it."""
        return self

    def set_source_config(self, source_config: Configuration | Mapping[str, Any]) -> Self:
        """Set the source's configuration.

        The keys are `source.init.position` (LATEST, TRIM_HORIZON, AT_TIMESTAMP), `source.init.timestamp`,
        `source.shard.discovery.interval`, `aws.region` and `aws.endpoint`.

        Raises:
            InvalidJob: an unknown key, or readers with enhanced fan-out.
        """
        config = source_config.to_dict() if isinstance(source_config, Configuration) else dict(source_config)
        unknown = sorted(set(config) - _KNOWN)
        if unknown:
            raise InvalidJob(
                f"KinesisStreamsSource does not support the properties {', '.join(unknown)}",
                remedy=f"use {', '.join(sorted(_KNOWN))}. Set credentials as for every AWS client, with environment variables or a role",
            )
        if str(config.get("source.reader.type", "POLLING")).upper() != "POLLING":
            raise InvalidJob(
                f"source.reader.type={config['source.reader.type']} is not supported: the source polls shards with GetRecords",
                remedy="remove source.reader.type",
            )
        self._config = config
        return self

    def build(self) -> KinesisStreamsSource:
        """Return the source with these settings.

        Raises:
            InvalidJob: a required setting is missing.
        """
        for name, value in (("stream_arn", self._stream), ("deserialization_schema", self._schema)):
            if not value:
                raise InvalidJob(f"a KinesisStreamsSource without {name}", remedy=f"call set_{name}(…)")
        config = self._config
        interval = config.get("source.shard.discovery.interval", "10 s")
        return KinesisStreamsSource(
            self._stream,
            self._schema,
            region=str(config.get("aws.region", self._region)),
            endpoint=config.get("aws.endpoint"),
            start=flinks_start(config, "source.init"),
            discovery_interval=parse_duration(interval) if isinstance(interval, str) else interval,
        )
