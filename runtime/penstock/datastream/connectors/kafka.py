"""Kafka under PyFlink's names. What it does is told in `penstock.connectors.kafka`."""

from penstock.connectors.delivery_guarantee import DeliveryGuarantee
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

__all__ = [
    "ConsumerRecord",
    "DeliveryGuarantee",
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
]
