"""Protobuf messages (extra `penstock-streaming[protobuf]`), with and without the head that Confluent's schema registry gives them.

Records are dicts, or Rows with `rows=True`. Well-known types of Protobuf become Python values: a `Timestamp` a datetime in UTC, a `Duration`
a timedelta, and a wrapper its value. An enumeration becomes the name of its value. Writers accept any object with the message's fields.
"""
