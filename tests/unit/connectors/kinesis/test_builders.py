"""PyFlink's builders of the source."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.common import Configuration
from penstock.common.errors import InvalidJob
from penstock.common.serialization import SimpleStringSchema
from penstock.datastream.connectors.kinesis import FlinkKinesisConsumer, KinesisShardAssigner, KinesisStreamsSource

ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/readings"


def built(config: Any, arn: str = ARN) -> KinesisStreamsSource:
    builder = KinesisStreamsSource.builder().set_stream_arn(arn).set_deserialization_schema(SimpleStringSchema())
    builder = builder.set_kinesis_shard_assigner(KinesisShardAssigner.uniform_shard_assigner())
    return builder.set_source_config(config).build()


def test_an_arn_contains_stream_and_region() -> None:
    source = built(Configuration())
    assert source.streams == ["readings"]
    assert source.target("readings").region == "eu-west-1"
    assert source.start_ms == -1
    assert source.discovery_ms == 10_000
    assert built({}, "arn:aws-cn:kinesis:cn-north-1:123456789012:stream/a.b-c_d").streams == ["a.b-c_d"]


@pytest.mark.parametrize("kind", [dict, Configuration])
def test_flinks_settings_are_accepted(kind: Any) -> None:
    given = {"source.init.position": "AT_TIMESTAMP", "source.init.timestamp": "2026-01-01T00:00:00+00:00"}
    source = built(kind({**given, "source.shard.discovery.interval": "2 s", "aws.endpoint": "http://127.0.0.1:9"}))
    assert source.start_ms == 1_767_225_600_000
    assert source.discovery_ms == 2_000
    assert source.target("readings").endpoint == "http://127.0.0.1:9"
    assert built(kind({"source.init.position": "TRIM_HORIZON"})).start_ms == 0
    old = {"flink.stream.initpos": "AT_TIMESTAMP", "flink.stream.initpos.timestamp": "1767225600"}
    assert FlinkKinesisConsumer("a", SimpleStringSchema(), old).start_ms == 1_767_225_600_000


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"aws.credentials.provider": "BASIC"}, "does not support the properties aws.credentials.provider"),
        ({"source.reader.type": "EFO"}, "source.reader.type=EFO"),
        ({"source.init.position": "AT_TIMESTAMP"}, "source.init.timestamp=''"),
        ({"source.init.position": "FIRST"}, "start='FIRST'"),
    ],
)
def test_unknown_settings_are_refused(config: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidJob, match=message):
        built(config)


def test_an_error_names_missing_settings() -> None:
    with pytest.raises(InvalidJob, match="stream_arn='readings'"):
        KinesisStreamsSource.builder().set_stream_arn("readings")
    with pytest.raises(InvalidJob, match="without stream_arn"):
        KinesisStreamsSource.builder().build()
    with pytest.raises(InvalidJob, match="without deserialization_schema"):
        KinesisStreamsSource.builder().set_stream_arn(ARN).build()
