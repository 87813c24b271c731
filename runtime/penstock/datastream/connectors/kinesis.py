"""PyFlink's names for Kinesis: they import, and say what to use instead when they are used."""

from penstock.datastream.not_built import not_built

_INSTEAD = (
    "read with from_spark and Spark's Kinesis connector, or give a SourceFunction and a SinkFunction with "
    "a client of your own"
)

FlinkKinesisConsumer = not_built("FlinkKinesisConsumer", __name__, _INSTEAD)
KinesisDeserializationSchema = not_built("KinesisDeserializationSchema", __name__, _INSTEAD)
KinesisFirehoseSink = not_built("KinesisFirehoseSink", __name__, _INSTEAD)
KinesisFirehoseSinkBuilder = not_built("KinesisFirehoseSinkBuilder", __name__, _INSTEAD)
KinesisShardAssigner = not_built("KinesisShardAssigner", __name__, _INSTEAD)
KinesisStreamsSink = not_built("KinesisStreamsSink", __name__, _INSTEAD)
KinesisStreamsSinkBuilder = not_built("KinesisStreamsSinkBuilder", __name__, _INSTEAD)
PartitionKeyGenerator = not_built("PartitionKeyGenerator", __name__, _INSTEAD)
WatermarkTracker = not_built("WatermarkTracker", __name__, _INSTEAD)

__all__ = [
    "FlinkKinesisConsumer",
    "KinesisDeserializationSchema",
    "KinesisFirehoseSink",
    "KinesisFirehoseSinkBuilder",
    "KinesisShardAssigner",
    "KinesisStreamsSink",
    "KinesisStreamsSinkBuilder",
    "PartitionKeyGenerator",
    "WatermarkTracker",
]
