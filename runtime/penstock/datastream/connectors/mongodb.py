"""MongoDB as source, sink and to enrich streams. What they do is told in `penstock.connectors.mongodb`."""

from penstock.connectors.mongodb.lookup import MongoLookup
from penstock.connectors.mongodb.sink import MongoSink
from penstock.connectors.mongodb.source import MongoSource

__all__ = ["MongoLookup", "MongoSink", "MongoSource"]
