"""Change records of tables in topics and files, in the formats of Debezium, Canal and Maxwell: `Row`s with a `RowKind`."""

from penstock.connectors.formats.changelog.formats import CanalJsonFormat, DebeziumJsonFormat, MaxwellJsonFormat

__all__ = ["CanalJsonFormat", "DebeziumJsonFormat", "MaxwellJsonFormat"]
