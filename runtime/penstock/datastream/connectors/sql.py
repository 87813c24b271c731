"""Tables of MySQL, MariaDB, SQLite and Postgres by SQLAlchemy, as sink and source, and to enrich streams. What they do is told in `penstock.connectors.sql`."""

from penstock.connectors.delivery_guarantee import DeliveryGuarantee
from penstock.connectors.sql.lookup import SqlLookup
from penstock.connectors.sql.sink import SqlSink
from penstock.connectors.sql.source import SqlSource

__all__ = ["DeliveryGuarantee", "SqlLookup", "SqlSink", "SqlSource"]
