"""Real servers on this machine, for tests, demos and benchmarks. ``python -m tools.servers NAME start`` starts one from a shell."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tools.servers.base.server import Server

SERVERS = {
    "cassandra": "CassandraServer",
    "iceberg_catalog": "IcebergCatalog",
    "kafka": "KafkaServer",
    "kinesis": "KinesisServer",
    "mariadb": "MariaDbServer",
    "mongodb": "MongoServer",
    "opensearch": "OpenSearchServer",
    "postgres": "PostgresServer",
    "rabbitmq": "RabbitMQServer",
    "redis": "RedisServer",
    "registry": "RegistryServer",
    "s3": "S3Server",
    "sqs": "SqsServer",
}
"""The class of each server, by its module. Only the module that is used is imported, because some need further packages."""


def kind(name: str) -> type[Server]:
    """Return the class of a server by the name of its module."""
    found: type[Server] = getattr(importlib.import_module(f"tools.servers.{name}"), SERVERS[name])
    return found
