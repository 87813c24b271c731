"""Protobuf messages (extra `penstock[protobuf]`), with and without the head that Confluent's schema registry gives them.

Records are dicts with Python's values for what Protobuf calls well known: `Timestamp` is a datetime of UTC, `Duration` a timedelta, wrappers
their value; enumerations are their names. `rows=True` gives Rows. Written is whatever has the message's fields.
"""
