"""Avro (extra `penstock[avro]`): schemas, messages with and without a schema registry, container files.

Records are dicts, as fastavro makes them: logical types are Python's (datetime, Decimal, UUID). PyFlink's row schemas give Rows.
"""
