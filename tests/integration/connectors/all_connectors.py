"""All connectors that the conformance tests run with."""

from __future__ import annotations

from tests.integration.cassandra.connector import CassandraConnector, CassandraWriteAheadConnector
from tests.integration.connectors.connector import Connector
from tests.integration.kafka.connector import KafkaConnector
from tests.integration.kinesis.connector import KinesisSinkConnector, KinesisSourceConnector
from tests.integration.lakehouse.connector import (
    DeltaConnector,
    DeltaUpsertConnector,
    IcebergConnector,
    IcebergUpsertConnector,
    RestCatalogConnector,
)
from tests.integration.mongodb.connector import MongoConnector
from tests.integration.opensearch.connector import OpenSearchConnector
from tests.integration.postgres.connector import PostgresCdcConnector, PostgresConnector
from tests.integration.rabbitmq.connector import RabbitMqSinkConnector, RabbitMqSourceConnector
from tests.integration.redis.connector import RedisHashConnector, RedisStreamConnector
from tests.integration.sql.connector import MariaDbConnector, SqliteConnector, SqlOnPostgresConnector
from tests.integration.sqs.connector import SqsSinkConnector, SqsSourceConnector

CONNECTORS: tuple[type[Connector], ...] = (
    SqliteConnector,
    DeltaConnector,
    IcebergConnector,
    DeltaUpsertConnector,
    IcebergUpsertConnector,
    RestCatalogConnector,
    PostgresConnector,
    PostgresCdcConnector,
    SqlOnPostgresConnector,
    RabbitMqSourceConnector,
    RabbitMqSinkConnector,
    RedisStreamConnector,
    RedisHashConnector,
    MariaDbConnector,
    SqsSourceConnector,
    SqsSinkConnector,
    KinesisSourceConnector,
    KinesisSinkConnector,
    MongoConnector,
    KafkaConnector,
    OpenSearchConnector,
    CassandraConnector,
    CassandraWriteAheadConnector,
)
