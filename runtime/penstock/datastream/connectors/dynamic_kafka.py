"""PyFlink's names for Kafka with changing clusters. They can be imported. Their use raises an error that names the alternative."""

from penstock.datastream.connectors.kafka import KafkaRecordDeserializationSchema
from penstock.datastream.not_built import not_built

_INSTEAD = "use KafkaSource, and a savepoint and another configuration when the cluster changes"

DynamicKafkaSource = not_built("DynamicKafkaSource", __name__, _INSTEAD)
DynamicKafkaSourceBuilder = not_built("DynamicKafkaSourceBuilder", __name__, _INSTEAD)
KafkaMetadataService = not_built("KafkaMetadataService", __name__, _INSTEAD)
KafkaStreamSetSubscriber = not_built("KafkaStreamSetSubscriber", __name__, _INSTEAD)
KafkaStreamSubscriber = not_built("KafkaStreamSubscriber", __name__, _INSTEAD)
SingleClusterTopicMetadataService = not_built("SingleClusterTopicMetadataService", __name__, _INSTEAD)
StreamPatternSubscriber = not_built("StreamPatternSubscriber", __name__, _INSTEAD)

__all__ = [
    "DynamicKafkaSource",
    "DynamicKafkaSourceBuilder",
    "KafkaMetadataService",
    "KafkaRecordDeserializationSchema",
    "KafkaStreamSetSubscriber",
    "KafkaStreamSubscriber",
    "SingleClusterTopicMetadataService",
    "StreamPatternSubscriber",
]
