"""Expressions of a compiled plan: references to columns, literals and calls, each with its type."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from penstock.common.errors import InvalidJob
from penstock.sql.plan.types import SqlType, type_of
from penstock.sql.plan.user_functions import UserFunction, session_function


@dataclass(frozen=True)
class InputRef:
    """The column at a position of the input row."""

    index: int
    type: SqlType


@dataclass(frozen=True)
class Literal:
    """A constant as the plan writes it, such as `5`, `"2020-01-01"` or a symbol. None is NULL."""

    value: Any
    type: SqlType


@dataclass(frozen=True)
class Range:
    """One range of a search argument. A bound of None is open to that side."""

    lower: Any
    upper: Any
    lower_closed: bool
    upper_closed: bool


@dataclass(frozen=True)
class SearchArgument:
    """The ranges of `IN` and `BETWEEN`. `null_as`: the answer for NULL (`UNKNOWN`, `TRUE` or `FALSE`)."""

    ranges: tuple[Range, ...]
    null_as: str
    type: SqlType


@dataclass(frozen=True)
class Call:
    """A call of a function of Flink, such as `UPPER`."""

    name: str
    operands: tuple[Rex, ...]
    type: SqlType


@dataclass(frozen=True)
class UserCall:
    """A call of a function of the program."""

    function: UserFunction
    operands: tuple[Rex, ...]
    type: SqlType

    @property
    def name(self) -> str:
        return self.function.name


@dataclass(frozen=True)
class FieldAccess:
    """A field of a row, by its position."""

    operand: Rex
    index: int
    type: SqlType


@dataclass(frozen=True)
class PatternRef:
    """A column of the rows that a pattern variable has accepted. The variable `*` has the rows of all variables."""

    variable: str
    index: int
    type: SqlType


Rex = FieldAccess | UserCall | InputRef | Literal | SearchArgument | Call | PatternRef


def rex_of(node: dict[str, Any]) -> Rex:
    """Return the expression that the plan's JSON describes.

    Raises:
        InvalidJob: the expression is of a kind, a type or a function class that Penstock does not have.
    """
    kind = node["kind"]
    if kind == "INPUT_REF":
        return InputRef(_position(node["inputIndex"]), type_of(node["type"]))
    if kind == "LITERAL":
        if "sarg" in node:
            return _search(node)
        return Literal(node.get("value"), type_of(node["type"]))
    if kind == "PATTERN_INPUT_REF":
        return PatternRef(node["alpha"], _position(node["inputIndex"]), type_of(node["type"]))
    if kind == "FIELD_ACCESS":
        return _field(node)
    if kind == "CALL" and "internalName" in node:
        name = node["internalName"].strip("$").rsplit("$", 1)[0]
        return Call(name, tuple(map(rex_of, node.get("operands", ()))), type_of(node["type"]))
    named = node.get("systemName") or node.get("catalogName")
    function = session_function(str(named)) if kind == "CALL" and named else None
    if function is not None:
        return UserCall(function, tuple(map(rex_of, node.get("operands", ()))), type_of(node["type"]))
    what = node.get("systemName") or node.get("catalogName") or node.get("class") or kind
    raise InvalidJob(
        f"SQL: Penstock cannot evaluate {what}",
        remedy="use a function that docs/sql.md lists, or compute the column with to_data_stream() and map()",
    )


def _position(value: Any) -> int:
    """Return the position of a column. It becomes a part of Python source, so a text in its place could be code."""
    if type(value) is not int:
        raise ValueError(f"the position of a column is {value!r}, not a number")
    return value


def _field(node: dict[str, Any]) -> Rex:
    """Return the access to a field. A field of the correlated row is a column of the input."""
    expr = node["expr"]
    is_input = expr["kind"] == "CORREL_VARIABLE"
    operand = None if is_input else rex_of(expr)
    row = type_of(expr["type"]) if operand is None else operand.type
    index = [name for name, _ in row.fields].index(node["name"])
    found = row.fields[index][1]
    if operand is None:
        return InputRef(index, found)
    return FieldAccess(operand, index, replace(found, nullable=found.nullable or row.nullable))


def _search(node: dict[str, Any]) -> SearchArgument:
    found = node["sarg"]

    def bound(range: dict[str, Any], side: str) -> tuple[Any, bool]:
        part = range.get(side)
        return (None, False) if part is None else (part["value"], part["boundType"] == "CLOSED")

    ranges = []
    for range in found["ranges"]:
        (lower, lower_closed), (upper, upper_closed) = bound(range, "lower"), bound(range, "upper")
        ranges.append(Range(lower, upper, lower_closed, upper_closed))
    return SearchArgument(tuple(ranges), found["nullAs"], type_of(node["type"]))
