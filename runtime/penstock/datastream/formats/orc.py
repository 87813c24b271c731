"""PyFlink's names for ORC: they import, and say what to use instead when they are used."""

from penstock.datastream.not_built import not_built

_INSTEAD = (
    "use ParquetBulkWriters of penstock.datastream.formats.parquet, or write the stream with to_spark and "
    "Spark's orc format"
)

OrcBulkWriters = not_built("OrcBulkWriters", __name__, _INSTEAD)

__all__ = [
    "OrcBulkWriters",
]
