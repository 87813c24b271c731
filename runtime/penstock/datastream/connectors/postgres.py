"""Postgres tables as source, as sink and for lookups, and the changes of tables. See `penstock.connectors.postgres`."""

from penstock.connectors.core.delivery_guarantee import DeliveryGuarantee
from penstock.connectors.postgres.cdc.changes import Change
from penstock.connectors.postgres.cdc.source import PostgresCdcSource
from penstock.connectors.postgres.lookup import PostgresLookup
from penstock.connectors.postgres.sink import PostgresSink
from penstock.connectors.postgres.source import PostgresSource

__all__ = ["Change", "DeliveryGuarantee", "PostgresCdcSource", "PostgresLookup", "PostgresSink", "PostgresSource"]
