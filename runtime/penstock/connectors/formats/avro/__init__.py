"""Avro (extra `penstock-streaming[avro]`): schemas, messages with and without a schema registry, container files.

Records are dicts, as fastavro returns them. Logical types become Python types (datetime, Decimal, UUID). PyFlink's row schemas return Rows.
"""
