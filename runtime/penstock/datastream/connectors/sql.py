"""Tables of MySQL, MariaDB, SQLite and Postgres through SQLAlchemy, as source, as sink and for lookups. See `penstock.connectors.sql`."""

from penstock.connectors.core.delivery_guarantee import DeliveryGuarantee
from penstock.connectors.sql.lookup import SqlLookup
from penstock.connectors.sql.sink import SqlSink
from penstock.connectors.sql.source import SqlSource

__all__ = ["DeliveryGuarantee", "SqlLookup", "SqlSink", "SqlSource"]
