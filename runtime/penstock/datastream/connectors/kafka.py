"""Kafka under PyFlink's names. See `penstock.connectors.kafka`."""

from penstock.connectors.core.delivery_guarantee import DeliveryGuarantee
from penstock.connectors.kafka.offsets import KafkaOffsetResetStrategy, KafkaOffsetsInitializer, KafkaTopicPartition
from penstock.connectors.kafka.sink.kafka_sink import KafkaSink, KafkaSinkBuilder
from penstock.connectors.kafka.sink.serializer import (
    KafkaRecordSerializationSchema,
    KafkaRecordSerializationSchemaBuilder,
    KafkaTopicSelector,
)
from penstock.connectors.kafka.source.deserializer import (
    ConsumerRecord,
    KafkaRecordDeserializationSchema,
    RejectedMessage,
)
from penstock.connectors.kafka.source.kafka_source import KafkaSource, KafkaSourceBuilder
from penstock.datastream.not_built import not_built

_SOURCE, _SINK = "use KafkaSource.builder() and env.from_source", "use KafkaSink.builder() and stream.sink_to"

FlinkKafkaConsumer = not_built("FlinkKafkaConsumer", __name__, _SOURCE)
FlinkKafkaConsumerBase = not_built("FlinkKafkaConsumerBase", __name__, _SOURCE)
FlinkKafkaProducer = not_built("FlinkKafkaProducer", __name__, _SINK)
FlinkKafkaProducerBase = not_built("FlinkKafkaProducerBase", __name__, _SINK)
Semantic = not_built("Semantic", __name__, "use DeliveryGuarantee with KafkaSink.builder().set_delivery_guarantee")

__all__ = [
    "ConsumerRecord",
    "DeliveryGuarantee",
    "FlinkKafkaConsumer",
    "FlinkKafkaConsumerBase",
    "FlinkKafkaProducer",
    "FlinkKafkaProducerBase",
    "KafkaOffsetResetStrategy",
    "KafkaOffsetsInitializer",
    "KafkaRecordDeserializationSchema",
    "KafkaRecordSerializationSchema",
    "KafkaRecordSerializationSchemaBuilder",
    "KafkaSink",
    "KafkaSinkBuilder",
    "KafkaSource",
    "KafkaSourceBuilder",
    "KafkaTopicPartition",
    "KafkaTopicSelector",
    "RejectedMessage",
    "Semantic",
]
