"""Changes of tables in topics and files, as Debezium, Canal and Maxwell write them: `Row`s with a `RowKind`."""

from penstock.connectors.formats.changelog.formats import CanalJsonFormat, DebeziumJsonFormat, MaxwellJsonFormat

__all__ = ["CanalJsonFormat", "DebeziumJsonFormat", "MaxwellJsonFormat"]
