"""Formats under PyFlink's names: `csv`, `json`, `parquet`, `avro`. See `penstock.connectors.formats`."""
