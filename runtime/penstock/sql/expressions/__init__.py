"""Expressions of a plan, compiled into Python functions on rows.

A row is a tuple. NULL is None. Numbers are `int`, `float` and `Decimal`. Times are `int`:

- TIMESTAMP and TIMESTAMP_LTZ: microseconds since 1970
- DATE: days since 1970
- TIME and intervals of days and seconds: milliseconds
- intervals of years and months: months
"""
