"""PyFlink's names for Pulsar. They can be imported. Their use raises an error that names the alternative."""

from penstock.datastream.not_built import not_built

_INSTEAD = (
    "use KafkaSource and KafkaSink on Pulsar's Kafka protocol (KoP), or a SourceFunction and a "
    "SinkFunction that use a client of Pulsar"
)

MessageDelayer = not_built("MessageDelayer", __name__, _INSTEAD)
PulsarSink = not_built("PulsarSink", __name__, _INSTEAD)
PulsarSinkBuilder = not_built("PulsarSinkBuilder", __name__, _INSTEAD)
PulsarSource = not_built("PulsarSource", __name__, _INSTEAD)
PulsarSourceBuilder = not_built("PulsarSourceBuilder", __name__, _INSTEAD)
RangeGenerator = not_built("RangeGenerator", __name__, _INSTEAD)
StartCursor = not_built("StartCursor", __name__, _INSTEAD)
StopCursor = not_built("StopCursor", __name__, _INSTEAD)
TopicRoutingMode = not_built("TopicRoutingMode", __name__, _INSTEAD)

__all__ = [
    "MessageDelayer",
    "PulsarSink",
    "PulsarSinkBuilder",
    "PulsarSource",
    "PulsarSourceBuilder",
    "RangeGenerator",
    "StartCursor",
    "StopCursor",
    "TopicRoutingMode",
]
