"""MongoDB as source, as sink and for lookups. See `penstock.connectors.mongodb`."""

from penstock.connectors.mongodb.lookup import MongoLookup
from penstock.connectors.mongodb.sink import MongoSink
from penstock.connectors.mongodb.source import MongoSource

__all__ = ["MongoLookup", "MongoSink", "MongoSource"]
