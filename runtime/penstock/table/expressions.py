"""Functions that create expressions of the Table API, under PyFlink's names.

>>> (col("a") + 1 > lit(2)).sql
'((`a` + 1) > 2)'
"""

from __future__ import annotations

import re
from typing import Any

from penstock.table.expression import Expression, as_expression, build, escaped, function, user_call
from penstock.table.types import quoted, sql_type
from penstock.table.udf import UserDefinedFunctionWrapper, wrapped

__all__ = [
    "and_",
    "array",
    "call",
    "call_sql",
    "coalesce",
    "col",
    "concat",
    "concat_ws",
    "current_date",
    "current_timestamp",
    "date_format",
    "e",
    "if_then_else",
    "lit",
    "local_timestamp",
    "map_",
    "not_",
    "null_of",
    "or_",
    "pi",
    "row",
    "to_date",
    "to_timestamp",
    "to_timestamp_ltz",
]


def col(name: str) -> Expression:
    """Return a column."""
    return Expression("*" if name == "*" else quoted(name), column=name)


def lit(v: Any, data_type: Any = None) -> Expression:
    """Return a constant."""
    found = as_expression(v)
    return found if data_type is None else build(f"CAST({{}} AS {escaped(sql_type(data_type))})", found)


def null_of(data_type: Any) -> Expression:
    return Expression(f"CAST(NULL AS {sql_type(data_type)})")


def call(f: Any, *args: Any) -> Expression:
    """Call a function: its name in SQL, or a Python function."""
    if isinstance(f, str):
        return function(f if re.fullmatch(r"\w+(\.\w+)*", f) else quoted(f), *args)
    return user_call(f if isinstance(f, UserDefinedFunctionWrapper) else wrapped(f), args)


def call_sql(sql_expression: str) -> Expression:
    """Return an expression from its text in SQL."""
    return Expression(f"({sql_expression})")


def and_(predicate0: Any, predicate1: Any, *predicates: Any) -> Expression:
    found = (predicate0, predicate1, *predicates)
    return build(f"({' AND '.join(['{}'] * len(found))})", *found)


def or_(predicate0: Any, predicate1: Any, *predicates: Any) -> Expression:
    found = (predicate0, predicate1, *predicates)
    return build(f"({' OR '.join(['{}'] * len(found))})", *found)


def not_(expression: Expression) -> Expression:
    return ~expression


def if_then_else(condition: Any, if_true: Any, if_false: Any) -> Expression:
    return as_expression(condition).then(if_true, if_false)


def coalesce(*args: Any) -> Expression:
    return function("COALESCE", *args)


def concat(first: Any, *others: Any) -> Expression:
    found = (first, *others)
    return build(f"({' || '.join(['{}'] * len(found))})", *found)


def concat_ws(separator: Any, first: Any, *others: Any) -> Expression:
    return function("CONCAT_WS", separator, first, *others)


def row(head: Any, *tail: Any) -> Expression:
    return function("ROW", head, *tail)


def array(head: Any, *tail: Any) -> Expression:
    return as_expression([head, *tail])


def map_(key: Any, value: Any, *tail: Any) -> Expression:
    parts = (key, value, *tail)
    return build(f"MAP[{', '.join(['{}'] * len(parts))}]", *parts)


def pi() -> Expression:
    return function("PI")


def e() -> Expression:
    return function("E")


def current_timestamp() -> Expression:
    return Expression("CURRENT_TIMESTAMP")


def local_timestamp() -> Expression:
    return Expression("LOCALTIMESTAMP")


def current_date() -> Expression:
    return Expression("CURRENT_DATE")


def to_date(date_str: Any, format: Any = None) -> Expression:
    return function("TO_DATE", date_str, *([] if format is None else [format]))


def to_timestamp(timestamp_str: Any, format: Any = None) -> Expression:
    return function("TO_TIMESTAMP", timestamp_str, *([] if format is None else [format]))


def to_timestamp_ltz(epoch: Any, precision: Any = 3) -> Expression:
    return function("TO_TIMESTAMP_LTZ", epoch, precision)


def date_format(timestamp: Any, format: Any) -> Expression:
    return function("DATE_FORMAT", timestamp, format)
