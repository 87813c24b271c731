"""Postgres tables as sink and source, their changes, and to enrich streams. What they do is told in `penstock.connectors.postgres`."""

from penstock.connectors.delivery_guarantee import DeliveryGuarantee
from penstock.connectors.postgres.cdc.changes import Change
from penstock.connectors.postgres.cdc.source import PostgresCdcSource
from penstock.connectors.postgres.lookup import PostgresLookup
from penstock.connectors.postgres.sink import PostgresSink
from penstock.connectors.postgres.source import PostgresSource

__all__ = ["Change", "DeliveryGuarantee", "PostgresCdcSource", "PostgresLookup", "PostgresSink", "PostgresSource"]
