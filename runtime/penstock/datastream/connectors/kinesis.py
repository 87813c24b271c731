"""Kinesis under PyFlink's names, and `KinesisSource`. See `penstock.connectors.kinesis`.

The names for Firehose can be imported. Their use raises an error that names the alternative.
"""

from penstock.connectors.kinesis.decoder import KinesisRejectedRecord
from penstock.connectors.kinesis.sink import KinesisStreamsSink, KinesisStreamsSinkBuilder, PartitionKeyGenerator
from penstock.connectors.kinesis.source import FlinkKinesisConsumer, KinesisSource
from penstock.connectors.kinesis.streams_source import (
    KinesisShardAssigner,
    KinesisStreamsSource,
    KinesisStreamsSourceBuilder,
)
from penstock.datastream.not_built import not_built

_INSTEAD = (
    "write to a stream (KinesisStreamsSink) that Firehose reads, or pass a SinkFunction that uses a client of Firehose"
)
_SHARDS = "remove it: each shard already has a separate watermark"

KinesisDeserializationSchema = not_built(
    "KinesisDeserializationSchema",
    __name__,
    "pass a DeserializationSchema, or a format such as JsonLinesFormat, to KinesisSource",
)
KinesisFirehoseSink = not_built("KinesisFirehoseSink", __name__, _INSTEAD)
KinesisFirehoseSinkBuilder = not_built("KinesisFirehoseSinkBuilder", __name__, _INSTEAD)
WatermarkTracker = not_built("WatermarkTracker", __name__, _SHARDS)

__all__ = [
    "FlinkKinesisConsumer",
    "KinesisDeserializationSchema",
    "KinesisFirehoseSink",
    "KinesisFirehoseSinkBuilder",
    "KinesisRejectedRecord",
    "KinesisShardAssigner",
    "KinesisSource",
    "KinesisStreamsSink",
    "KinesisStreamsSinkBuilder",
    "KinesisStreamsSource",
    "KinesisStreamsSourceBuilder",
    "PartitionKeyGenerator",
    "WatermarkTracker",
]
