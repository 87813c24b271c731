"""Calls of the program's functions in expressions and in correlations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from penstock.common.types import Row
from penstock.sql.plan.rex import UserCall
from penstock.sql.plan.types import SqlType
from penstock.sql.tables.objects import value_of
from penstock.sql.tables.values import to_python


def _same(value: Any) -> Any:
    return value


def arguments_of(types: Sequence[SqlType], zone: str) -> Callable[[Sequence[Any]], list[Any]]:
    """Return a function from the values of arguments to the objects that a Python function gets."""
    converters = [to_python(type, zone) or _same for type in types]

    def convert(values: Sequence[Any]) -> list[Any]:
        return [None if value is None else c(value) for c, value in zip(converters, values, strict=True)]

    return convert


def scalar_call(call: UserCall, zone: str) -> Callable[..., Any]:
    """Return a function from the values of the arguments to the value of the result."""
    function, arguments = call.function, arguments_of([operand.type for operand in call.operands], zone)
    result, evaluate = value_of(call.type, zone), function.implementation.eval

    def compute(*values: Any) -> Any:
        return result(evaluate(*arguments(values)))

    return compute


def table_call(call: UserCall, zone: str) -> Callable[[Sequence[Any]], Iterator[tuple[Any, ...]]]:
    """Return a function from the values of the arguments to the rows of a table function."""
    function, arguments = call.function, arguments_of([operand.type for operand in call.operands], zone)
    result, evaluate = value_of(call.type, zone), function.implementation.eval
    is_single = len(call.type.fields) == 1

    def rows(values: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
        for found in evaluate(*arguments(values)) or ():
            is_row = isinstance(found, tuple | Row) and len(found) == 1
            yield result((found,) if is_single and not is_row else found)

    return rows
