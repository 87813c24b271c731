"""OpenSearch as a sink. See `penstock.connectors.opensearch`."""

from penstock.connectors.opensearch.actions import Action
from penstock.connectors.opensearch.sink import OpenSearchSink

__all__ = ["Action", "OpenSearchSink"]
