"""Formats under PyFlink's names: `csv`, `json`, `parquet`, `avro`. What they do is told in `penstock.connectors.formats`."""
