"""Expressions of MATCH_RECOGNIZE: over the rows that the variables of a pattern have accepted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from penstock.sql.expressions.compiler import Compiler, compile_value
from penstock.sql.expressions.writer import CodeWriter, Value
from penstock.sql.plan.nodes import refusal
from penstock.sql.plan.rex import Call, FieldAccess, InputRef, Literal, PatternRef, Rex, UserCall

Row = tuple[Any, ...]
ALL = "*"
"""The variable of a column without a variable: the rows of all variables."""
AggregateOf = Callable[[Call], Callable[[Sequence[Row]], Any] | None]
"""Function from a call to the function that computes its aggregate of rows with one column, or to None if the call is no aggregate."""


class Rows(Protocol):
    """The rows of a match, as the expressions see them."""

    @property
    def time(self) -> int:
        """Return the time of the last row (ms)."""

    def of(self, variable: str) -> Sequence[Row]:
        """Return the rows of a variable, oldest first."""


class MatchRows:
    """The rows of a complete match."""

    def __init__(self, match: Mapping[str, Sequence[Row]], variables: tuple[str, ...], time: int) -> None:
        self._match = match
        self._variables = variables
        self.time = time

    def of(self, variable: str) -> Sequence[Row]:
        if variable != ALL:
            return self._match.get(variable, ())
        return [row for name in self._variables for row in self._match.get(name, ())]


class CandidateRows:
    """The rows of a partial match, and a row that its current variable could accept.

    Args:
        variables: the variables up to the current one.
        events: function from a variable to its rows.
    """

    def __init__(self, row: Row, variables: tuple[str, ...], events: Callable[[str], list[Row]], time: int) -> None:
        self._row = row
        self._variables = variables
        self._events = events
        self.time = time

    def of(self, variable: str) -> Sequence[Row]:
        if variable == ALL:
            return [*(row for name in self._variables for row in self._events(name)), self._row]
        found = self._events(variable)
        return [*found, self._row] if variable == self._variables[-1] else found


def references(rex: Rex) -> Iterator[PatternRef]:
    """Yield the columns of variables in an expression."""
    if isinstance(rex, PatternRef):
        yield rex
    elif isinstance(rex, FieldAccess):
        yield from references(rex.operand)
    elif isinstance(rex, Call | UserCall):
        for operand in rex.operands:
            yield from references(operand)


def reads_only_the_row(rex: Rex, variable: str, aggregate: AggregateOf) -> bool:
    """Return whether the condition of a variable needs no earlier rows, and not the time of the match."""
    if isinstance(rex, PatternRef):
        return rex.variable in (variable, ALL)
    if isinstance(rex, FieldAccess):
        return reads_only_the_row(rex.operand, variable, aggregate)
    if not isinstance(rex, Call | UserCall):
        return True
    if isinstance(rex, Call) and (
        rex.name in ("FIRST", "MATCH_ROWTIME") or (rex.name == "LAST" and _offset(rex)) or aggregate(rex) is not None
    ):
        return False
    return all(reads_only_the_row(operand, variable, aggregate) for operand in rex.operands)


def compile_match_value(rex: Rex, zone: str, aggregate: AggregateOf) -> Callable[[Rows], Any]:
    """Return a function from the rows of a match to the value of an expression.

    Raises:
        InvalidJob: Penstock does not have a function of the expression.
    """
    writer = CodeWriter()
    writer.use("pick", _pick)
    value = _MatchCompiler(writer, zone, aggregate).write(rex)
    writer.line(f"return {value}")
    return writer.function("value", ["rows"])


def _pick(rows: Sequence[Row], offset: int, *, first: bool) -> Row | None:
    """Return a row by its distance from the first or the last row, or None if there are fewer rows."""
    if len(rows) <= offset:
        return None
    return rows[offset] if first else rows[-1 - offset]


def _offset(rex: Call) -> int:
    offset = rex.operands[1]
    assert isinstance(offset, Literal)
    return int(offset.value)


class _MatchCompiler(Compiler):
    """The writer of an expression. FIRST and LAST select the row of the columns in them. Otherwise it is the last row."""

    def __init__(self, writer: CodeWriter, zone: str, aggregate: AggregateOf) -> None:
        super().__init__(writer, lambda index: f"row[{index}]", zone)
        self._aggregate = aggregate
        self._offset = 0
        self._first = False

    def write(self, rex: Rex) -> Value:
        if isinstance(rex, PatternRef):
            row, name = self.writer.variable(), self.writer.variable()
            self.writer.line(f"{row} = pick(rows.of({rex.variable!r}), {self._offset}, first={self._first})")
            self.writer.line(f"{name} = None if {row} is None else {row}[{rex.index}]")
            return Value(name, rex.type, nullable=True)
        if isinstance(rex, Call):
            return self._call(rex)
        return super().write(rex)

    def _call(self, rex: Call) -> Value:
        if rex.name in ("FINAL", "RUNNING"):
            return self.write(rex.operands[0])
        if rex.name in ("PREV", "NEXT"):
            if _offset(rex):
                raise refusal(
                    f"{rex.name} in MATCH_RECOGNIZE is not supported, as in Flink", "use LAST(variable.column, n)"
                )
            return self.write(rex.operands[0])
        if rex.name in ("FIRST", "LAST"):
            self._offset, self._first = _offset(rex), rex.name == "FIRST"
            found = self.write(rex.operands[0])
            self._offset, self._first = 0, False
            return found
        if rex.name == "MATCH_ROWTIME":
            return Value("(rows.time * 1000)", rex.type, nullable=False)
        compute = self._aggregate(rex)
        if compute is not None:
            return self._aggregated(rex, compute)
        return super().write(rex)

    def _aggregated(self, rex: Call, compute: Callable[[Sequence[Row]], Any]) -> Value:
        variables = {found.variable for found in references(rex)}
        if len(variables) != 1:
            raise refusal(
                f"{rex.name} of {len(variables)} pattern variables is not supported, as in Flink",
                "use columns of one variable",
            )
        writer, name = self.writer, self.writer.variable()
        number = len(writer.names)
        argument = writer.use(f"argument{number}", compile_value(_as_row(rex.operands[0]), self.zone))
        function = writer.use(f"aggregate{number}", compute)
        writer.line(f"{name} = {function}([({argument}(row),) for row in rows.of({variables.pop()!r})])")
        return Value(name, rex.type, nullable=True)


def _as_row(rex: Rex) -> Rex:
    """Return the argument of an aggregate as an expression of one row."""
    if isinstance(rex, PatternRef):
        return InputRef(rex.index, rex.type)
    if isinstance(rex, FieldAccess):
        return FieldAccess(_as_row(rex.operand), rex.index, rex.type)
    if isinstance(rex, Call):
        if rex.name in ("PREV", "NEXT", "FIRST", "LAST", "FINAL", "RUNNING"):
            return _as_row(rex.operands[0])
        return Call(rex.name, tuple(map(_as_row, rex.operands)), rex.type)
    if isinstance(rex, UserCall):
        return UserCall(rex.function, tuple(map(_as_row, rex.operands)), rex.type)
    return rex
