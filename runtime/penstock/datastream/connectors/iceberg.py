"""Iceberg tables as sink and source. See `penstock.connectors.iceberg`."""

from penstock.connectors.iceberg.sink import IcebergSink
from penstock.connectors.iceberg.source import IcebergSource

__all__ = ["IcebergSink", "IcebergSource"]
