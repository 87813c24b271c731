"""Correlate: each row joined with the rows that a table function returns for it, such as UNNEST."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from penstock.datastream.functions import FlatMapFunction, RuntimeContext
from penstock.sql.expressions.compiler import compile_rows, compile_value
from penstock.sql.expressions.user_calls import table_call
from penstock.sql.operators.rows import INSERT, SqlRow
from penstock.sql.plan.nodes import Correlate, refusal
from penstock.sql.plan.rex import Call, UserCall
from penstock.sql.plan.types import SqlType
from penstock.sql.plan.user_functions import functions_in

_ORDINALITY = "UNNEST_ROWS_WITH_ORDINALITY"
_UNNEST = ("UNNEST_ROWS", _ORDINALITY)

Table = Callable[[SqlRow], Iterator[SqlRow]]


def table_of(node: Correlate, zone: str) -> Table:
    """Return a function from a row to the rows of its table function."""
    call = node.call
    if not isinstance(call, UserCall):
        return unnest(node, zone)
    if call.function.kind != "table":
        raise refusal(f"{call.name} is not a table function", "declare it with @udtf")
    arguments, rows = compile_rows(call.operands, None, zone), table_call(call, zone)
    return lambda row: rows(arguments(row)[0])


def unnest(node: Correlate, zone: str) -> Table:
    """Return a function from a row to the rows of the collection in it. NULL is an empty collection.

    Raises:
        InvalidJob: the table function is not UNNEST.
    """
    call = node.call
    if not isinstance(call, Call) or call.name not in _UNNEST:
        name = call.name if isinstance(call, Call) else type(call).__name__
        raise refusal(f"Penstock does not support the table function {name}", "use UNNEST")
    (operand,) = call.operands
    collection, elements = compile_value(operand, zone), _elements(operand.type)

    def rows(row: SqlRow) -> Iterator[SqlRow]:
        found = collection(row)
        return iter(()) if found is None else elements(found)

    def numbered(row: SqlRow) -> Iterator[SqlRow]:
        for number, found in enumerate(rows(row), 1):
            yield *found, number

    return numbered if call.name == _ORDINALITY else rows


def _elements(type: SqlType) -> Callable[[Any], Iterator[SqlRow]]:
    """Return a function from a collection of this type to its rows."""
    if type.name == "MAP":
        return lambda found: iter(found.items())
    if type.name == "MULTISET":
        as_row = _as_row(type.element)
        return lambda found: (as_row(element) for element, count in found.items() for _ in range(count))
    as_row = _as_row(type.element)
    return lambda found: map(as_row, found)


def _as_row(element: SqlType) -> Callable[[Any], SqlRow]:
    if element.name != "ROW":
        return lambda value: (value,)
    empty = (None,) * len(element.fields)
    return lambda value: empty if value is None else value


class CorrelateFunction(FlatMapFunction):
    """Each row with the rows of its table function. A left join keeps a row without such rows, with NULL in their columns.

    The expressions are compiled here, in order to refuse unknown functions, and again in each subtask.
    """

    def __init__(self, node: Correlate, zone: str, *, changelog: bool) -> None:
        self._node = node
        self._zone = zone
        self._changelog = changelog
        self._missing = (None,) * (len(node.output) - node.left_columns)
        self._compiled()

    def _compiled(self) -> tuple[Table, Callable[[Any], list[Any]] | None]:
        condition = self._node.condition
        accepts = None if condition is None else compile_rows([], condition, self._zone)
        return table_of(self._node, self._zone), accepts

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in ("_table", "_accepts")}

    def open(self, runtime_context: RuntimeContext) -> None:
        self._table, self._accepts = self._compiled()
        for function in functions_in((self._node.call, self._node.condition)):
            function.open(runtime_context)

    def close(self) -> None:
        for function in functions_in((self._node.call, self._node.condition)):
            function.close()

    def flat_map(self, value: Any) -> Iterator[Any]:
        kind, row = value if self._changelog else (INSERT, value)
        is_empty = True
        for found in self._table(row):
            if self._accepts is None or self._accepts(found):
                is_empty = False
                yield (kind, row + found) if self._changelog else row + found
        if is_empty and self._node.is_left:
            yield (kind, row + self._missing) if self._changelog else row + self._missing
