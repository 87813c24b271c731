"""Expressions of a plan, compiled into Python functions on rows.

A row is a tuple. NULL is None. Numbers are `int`, `float` and `Decimal`, times are `int`: TIMESTAMP and TIMESTAMP_LTZ
are microseconds since 1970, DATE is days, TIME and day intervals are milliseconds, year intervals are months.
"""
