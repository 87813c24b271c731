"""Redis' streams as source and sink, and its keys as sink and to enrich streams. What they do is told in `penstock.connectors.redis`."""

from penstock.connectors.delivery_guarantee import DeliveryGuarantee
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
