"""`Compiler`: expressions of a plan, written as Python source."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from penstock.common.errors import InvalidJob
from penstock.sql.expressions import casts, numbers, times
from penstock.sql.expressions.registry import FUNCTIONS
from penstock.sql.expressions.user_calls import scalar_call
from penstock.sql.expressions.writer import CodeWriter, Value, define
from penstock.sql.plan.rex import Call, FieldAccess, InputRef, Literal, PatternRef, Range, Rex, SearchArgument, UserCall
from penstock.sql.plan.types import BYTES, SqlType

_BOOLEAN = SqlType("BOOLEAN")
SPECIAL = (
    "AND",
    "OR",
    "CASE",
    "COALESCE",
    "IF",
    "CAST",
    "TRY_CAST",
    "REINTERPRET",
    "SEARCH",
    "CURRENT_TIMESTAMP",
    "PROCTIME",
    "PROCTIME_MATERIALIZE",
)
"""Functions that `Compiler` writes itself."""
_NESTED_OPERANDS = 17
"""A CASE with at most 8 branches is nested blocks, which is the fastest form."""


def literal(value: Any, type: SqlType, zone: str = "UTC") -> Any:
    """Return the Python value of a literal as the plan writes it.

    >>> literal("1970-01-01 00:00:01.5", SqlType("TIMESTAMP", precision=3)), literal("1.8", SqlType("DECIMAL", precision=2, scale=1))
    (1500000, Decimal('1.8'))
    """
    if value is None or type.name in ("BOOLEAN", "SYMBOL") or type.is_string:
        return value
    if type.name == "DECIMAL":
        return numbers.decimal(Decimal(value), type.precision, type.scale)
    if type.name in ("DOUBLE", "FLOAT"):
        return float(value)
    if type.is_integer or type.name.startswith("INTERVAL"):
        return int(value)
    if type.name in BYTES:
        return base64.b64decode(value)
    parse = {"DATE": times.parse_date, "TIME": times.parse_time}.get(type.name, times.parse_timestamp)
    found = parse(value)
    if found is None:
        raise InvalidJob(
            f"SQL: the literal {value!r} of type {type} cannot be read", remedy="write it as a STRING and CAST it"
        )
    return found


def now_micros() -> int:
    return time.time_ns() // 1_000_000 * 1000


class Compiler:
    """Writer of expressions over one row.

    Args:
        columns: source of each column of the row.
        zone: time zone of TIMESTAMP_LTZ.
    """

    def __init__(self, writer: CodeWriter, columns: Callable[[int], str], zone: str) -> None:
        self.writer = writer
        self.zone = zone
        self._columns = columns

    def refusal(self, what: str) -> InvalidJob:
        return InvalidJob(
            f"SQL: Penstock does not support {what}",
            remedy="use a function that docs/sql.md lists, or compute the column with to_data_stream() and map()",
        )

    def write(self, rex: Rex) -> Value:
        """Write the statements that compute the expression, and return its value.

        Raises:
            InvalidJob: Penstock does not have a function, or not for these types.
        """
        if isinstance(rex, InputRef):
            return Value(self._columns(rex.index), rex.type)
        if isinstance(rex, Literal):
            return self.writer.constant(literal(rex.value, rex.type, self.zone), rex.type)
        if isinstance(rex, FieldAccess):
            operand = self.write(rex.operand)
            return self.writer.strict(rex.type, [operand], f"{operand}[{rex.index}]", may_be_null=rex.type.nullable)
        if isinstance(rex, SearchArgument):
            raise self.refusal("a search argument outside of SEARCH")
        if isinstance(rex, UserCall):
            return self._user_call(rex)
        if isinstance(rex, PatternRef):
            raise self.refusal("a pattern variable outside of MATCH_RECOGNIZE")
        special = getattr(self, f"_{rex.name.lower()}", None) if rex.name in SPECIAL else None
        if special is not None:
            found: Value = special(rex)
            return found
        if rex.name == "-" and len(rex.operands) == 1:
            return self._negation(rex)
        if rex.name not in FUNCTIONS:
            raise self.refusal(f"the function {rex.name}")
        return FUNCTIONS[rex.name](self, rex.type, [self.write(operand) for operand in rex.operands])

    def _user_call(self, rex: UserCall) -> Value:
        if rex.function.kind != "scalar":
            raise self.refusal(f"the {rex.function.kind} function {rex.name} here")
        operands = [self.write(operand) for operand in rex.operands]
        function = self.writer.use(f"user{len(self.writer.names)}", scalar_call(rex, self.zone))
        name = self.writer.variable()
        self.writer.line(f"{name} = {function}({', '.join(map(str, operands))})")
        return Value(name, rex.type, nullable=True)

    def _negation(self, rex: Call) -> Value:
        return FUNCTIONS["*"](
            self, rex.type, [self.write(rex.operands[0]), self.writer.constant(-1, SqlType("INTEGER"))]
        )

    def _and(self, rex: Call) -> Value:
        return self._connected(rex, "False")

    def _or(self, rex: Call) -> Value:
        return self._connected(rex, "True")

    def _connected(self, rex: Call, decisive: str) -> Value:
        """Write AND or OR. The operands after a decisive one are not computed."""
        writer = self.writer
        name = writer.variable()
        first, *rest = rex.operands
        value = self.write(first)
        writer.line(f"{name} = {value}")
        for operand in rest:  # not nested, because Python limits the depth of blocks
            with writer.block(f"if {name} is not {decisive}:"):
                other = self.write(operand)
                with writer.block(f"if {other} is {decisive}:"):
                    writer.line(f"{name} = {decisive}")
                with writer.block(f"elif {other} is None:"):
                    writer.line(f"{name} = None")
        nullable = value.nullable or any(operand.type.nullable for operand in rest)
        return Value(name, rex.type, nullable=nullable)

    def _case(self, rex: Call) -> Value:
        name = self.writer.variable()
        write = self._cases if len(rex.operands) <= _NESTED_OPERANDS else self._many_cases
        write(name, rex.operands, rex.type)
        return Value(name, rex.type)

    def _cases(self, name: str, operands: Sequence[Rex], type: SqlType) -> None:
        writer = self.writer
        if len(operands) == 1:
            writer.line(f"{name} = {self._converted(operands[0], type)}")
            return
        condition = self.write(operands[0])
        with writer.block(f"if {condition} is True:"):
            writer.line(f"{name} = {self._converted(operands[1], type)}")
        with writer.block("else:"):
            self._cases(name, operands[2:], type)

    def _many_cases(self, name: str, operands: Sequence[Rex], type: SqlType) -> None:
        """Write the branches one after the other, because Python limits the depth of blocks. A variable tells whether one was taken."""
        writer = self.writer
        is_done = writer.variable()
        writer.line(f"{is_done} = False")
        for condition, result in zip(operands[:-1:2], operands[1::2], strict=True):
            with writer.block(f"if not {is_done}:"):
                value = self.write(condition)
                with writer.block(f"if {value} is True:"):
                    writer.line(f"{name} = {self._converted(result, type)}")
                    writer.line(f"{is_done} = True")
        with writer.block(f"if not {is_done}:"):
            writer.line(f"{name} = {self._converted(operands[-1], type)}")

    def _if(self, rex: Call) -> Value:
        return self._case(rex)

    def _converted(self, rex: Rex, type: SqlType) -> Value:
        """Write the expression of a branch, converted to the common type of all branches."""
        return self.convert(self.write(rex), type)

    def convert(self, value: Value, type: SqlType) -> Value:
        """Return the value in the type of the expression that contains it."""
        if (
            value.source == "None"
            or (value.type.is_string and type.is_string)
            or (value.type.name == type.name and not type.is_nested)
        ):
            return value
        return self._cast_value(value, type)

    def _coalesce(self, rex: Call) -> Value:
        name = self.writer.variable()
        first, *rest = rex.operands
        self.writer.line(f"{name} = {self._converted(first, rex.type)}")
        for operand in rest:
            with self.writer.block(f"if {name} is None:"):
                self.writer.line(f"{name} = {self._converted(operand, rex.type)}")
        return Value(name, rex.type)

    def _cast(self, rex: Call) -> Value:
        return self._cast_value(self.write(rex.operands[0]), rex.type)

    def _reinterpret(self, rex: Call) -> Value:
        (operand,) = rex.operands
        if operand.type.name.startswith("INTERVAL") and rex.type.is_integer:
            value = self.write(operand)
            return Value(value.source, rex.type, nullable=value.nullable)
        return self._cast(rex)

    def _cast_value(self, value: Value, type: SqlType) -> Value:
        function = casts.cast(value.type, type, self.zone)
        if function is None:
            return Value(value.source, type, nullable=value.nullable)
        name = self.writer.use(f"cast{len(self.writer.names)}", function)
        return self.writer.strict(type, [value], f"{name}({value})", may_be_null=type.name == "DECIMAL")

    def _try_cast(self, rex: Call) -> Value:
        writer = self.writer
        name = writer.variable()
        failed = writer.use("CastFailed", casts.CastFailed)
        value = self.write(rex.operands[0])
        with writer.block("try:"):
            writer.line(f"{name} = {self._cast_value(value, rex.type)}")
        with writer.block(f"except {failed}:"):
            writer.line(f"{name} = None")
        return Value(name, rex.type, nullable=True)

    def _search(self, rex: Call) -> Value:
        operand, argument = rex.operands
        assert isinstance(argument, SearchArgument)
        value = self.write(operand)
        writer = self.writer
        points = [found for found in argument.ranges if _is_point(found)]
        tests = [self._range(value, found, argument.type) for found in argument.ranges if not _is_point(found)]
        if points:
            members = frozenset(literal(found.lower, argument.type, self.zone) for found in points)
            tests.append(f"{value} in {writer.use(f'in{len(writer.names)}', members)}")
        test = " or ".join(tests) or "False"
        if argument.null_as == "UNKNOWN":
            return writer.strict(_BOOLEAN, [value], f"({test})")
        name = writer.variable()
        on_null = "True" if argument.null_as == "TRUE" else "False"
        writer.line(f"{name} = {on_null} if {value} is None else ({test})" if value.nullable else f"{name} = ({test})")
        return Value(name, rex.type, nullable=False)

    def _range(self, value: Value, found: Range, type: SqlType) -> str:
        lower = upper = ""
        if found.lower is not None:
            bound = self.writer.constant(literal(found.lower, type, self.zone), type)
            lower = f"{bound} {'<=' if found.lower_closed else '<'} "
        if found.upper is not None:
            bound = self.writer.constant(literal(found.upper, type, self.zone), type)
            upper = f" {'<=' if found.upper_closed else '<'} {bound}"
        return f"{lower}{value}{upper}" if lower or upper else "True"

    def _current_timestamp(self, rex: Call) -> Value:
        name = self.writer.variable()
        self.writer.line(f"{name} = {self.writer.use('now_micros', now_micros)}()")
        return Value(name, rex.type, nullable=False)

    def _proctime(self, rex: Call) -> Value:
        """Write a placeholder. Operators in processing time ask their clock."""
        return self._current_timestamp(rex)

    def _proctime_materialize(self, rex: Call) -> Value:
        return self._current_timestamp(rex)


def _is_point(found: Range) -> bool:
    return found.lower is not None and found.lower == found.upper and found.lower_closed and found.upper_closed


def compile_rows(
    projection: Sequence[Rex], condition: Rex | None, zone: str, *, changelog: bool = False
) -> Callable[[Any], list[Any]]:
    """Return a function from a row to a list. The list has the projected row, or is empty if the condition is not true.

    Args:
        changelog: whether rows are pairs of a row kind and a row.

    Raises:
        InvalidJob: Penstock does not have a function of the expressions.

    >>> from penstock.sql.plan.rex import Call, InputRef, Literal
    >>> integer = SqlType("INTEGER")
    >>> plus = Call("+", (InputRef(0, integer), Literal(1, integer)), integer)
    >>> compile_rows([plus], None, "UTC")((41,))
    [(42,)]
    """
    writer = CodeWriter()
    compiler = Compiler(writer, lambda index: f"row[{index}]", zone)
    if changelog:
        writer.line("kind, row = row")
    if condition is not None:
        value = compiler.write(condition)
        with writer.block(f"if {value} is not True:"):
            writer.line("return []")
    fields = "".join(f"{compiler.write(rex)}, " for rex in projection)
    writer.line(f"return [(kind, ({fields}))]" if changelog else f"return [({fields})]")
    return writer.function("calc", ["row"])


def compile_value(rex: Rex, zone: str) -> Callable[[Any], Any]:
    """Return a function from a row to the value of one expression."""
    writer = CodeWriter()
    value = Compiler(writer, lambda index: f"row[{index}]", zone).write(rex)
    writer.line(f"return {value}")
    return define("value", ["row"], writer.lines, writer.names)


def compile_pairs(rex: Rex, left_width: int, zone: str) -> Callable[[Any, Any], bool]:
    """Return a function from a left and a right row to whether the expression over both is true.

    >>> from penstock.sql.plan.rex import Call, InputRef
    >>> integer = SqlType("INTEGER")
    >>> less = Call("<", (InputRef(0, integer), InputRef(2, integer)), _BOOLEAN)
    >>> compile_pairs(less, 2, "UTC")((1, "a"), (5,)), compile_pairs(less, 2, "UTC")((1, "a"), (None,))
    (True, False)
    """
    writer = CodeWriter()

    def column(index: int) -> str:
        return f"left[{index}]" if index < left_width else f"right[{index - left_width}]"

    value = Compiler(writer, column, zone).write(rex)
    writer.line(f"return {value} is True")
    return define("matches", ["left", "right"], writer.lines, writer.names)
