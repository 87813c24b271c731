"""Delta Lake tables as sink and source. See `penstock.connectors.delta`."""

from penstock.connectors.delta.sink import DeltaSink
from penstock.connectors.delta.source import DeltaSource

__all__ = ["DeltaSink", "DeltaSource"]
