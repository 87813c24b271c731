"""Redis streams as source and sink, and Redis keys as sink and for lookups. See `penstock.connectors.redis`."""

from penstock.connectors.core.delivery_guarantee import DeliveryGuarantee
from penstock.connectors.redis.commands import Command
from penstock.connectors.redis.entries import RedisEntry, RedisRejectedEntry
from penstock.connectors.redis.lookup import RedisLookup
from penstock.connectors.redis.sink import RedisSink
from penstock.connectors.redis.source import RedisStreamSource
from penstock.connectors.redis.stream_sink import RedisStreamSink

__all__ = [
    "Command",
    "DeliveryGuarantee",
    "RedisEntry",
    "RedisLookup",
    "RedisRejectedEntry",
    "RedisSink",
    "RedisStreamSink",
    "RedisStreamSource",
]
