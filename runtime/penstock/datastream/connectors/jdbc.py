"""PyFlink's names for databases over JDBC. See `penstock.connectors.sql.jdbc`."""

from penstock.connectors.sql.jdbc.options import JdbcConnectionOptions, JdbcExecutionOptions
from penstock.connectors.sql.jdbc.sink import JdbcSink

__all__ = [
    "JdbcConnectionOptions",
    "JdbcExecutionOptions",
    "JdbcSink",
]
