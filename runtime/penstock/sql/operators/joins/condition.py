"""The condition of a join: the keys that are NULL, and the expression over a pair of rows."""

from __future__ import annotations

from collections.abc import Callable

from penstock.datastream.functions import RuntimeContext
from penstock.sql.expressions.compiler import compile_pairs
from penstock.sql.operators.rows import SqlRow
from penstock.sql.plan.joins import JoinSpec
from penstock.sql.plan.user_functions import functions_in

Matches = Callable[[SqlRow, SqlRow], bool]


def null_keys(spec: JoinSpec) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the columns of each side that have no partner if they are NULL."""
    left, right = (
        tuple(
            index
            for index, filters in zip(keys, spec.filter_nulls, strict=True)
            if filters and columns[index].type.nullable
        )
        for keys, columns in zip(spec.keys, spec.columns, strict=True)
    )
    return left, right


def condition_of(spec: JoinSpec, zone: str) -> Matches | None:
    """Return a function from a left and a right row to whether they match, or None if all rows of a key match.

    Raises:
        InvalidJob: Penstock does not have a function of the condition.
    """
    return None if spec.condition is None else compile_pairs(spec.condition, len(spec.columns[0]), zone)


def open_functions(spec: JoinSpec, context: RuntimeContext) -> None:
    """Open the functions of the program in the condition."""
    for function in functions_in(spec.condition):
        function.open(context)


def close_functions(spec: JoinSpec) -> None:
    for function in functions_in(spec.condition):
        function.close()
