"""PyFlink's names for databases over JDBC: they import, and say what to use instead when they are used."""

from penstock.datastream.not_built import not_built

_INSTEAD = (
    "use PostgresSink and PostgresSource of penstock.datastream.connectors.postgres, or read with "
    "from_spark and write with to_spark and Spark's jdbc format"
)

JdbcConnectionOptions = not_built("JdbcConnectionOptions", __name__, _INSTEAD)
JdbcExecutionOptions = not_built("JdbcExecutionOptions", __name__, _INSTEAD)
JdbcSink = not_built("JdbcSink", __name__, _INSTEAD)

__all__ = [
    "JdbcConnectionOptions",
    "JdbcExecutionOptions",
    "JdbcSink",
]
