"""The functions that expressions may use, by Flink's names, each with the writer of its source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.sql.expressions import numbers, texts, times
from penstock.sql.expressions.writer import CodeWriter, Target, Value
from penstock.sql.plan.types import INTEGERS, SqlType

Build = Callable[[Target, SqlType, list[Value]], Value]
"""Writes the call of a function, and returns its value. The source of the arguments is already written."""


def call(function: Callable[..., Any], *, may_be_null: bool = False, as_float: bool = False) -> Build:
    def build(compiler: Target, type: SqlType, arguments: list[Value]) -> Value:
        writer = compiler.writer
        name = writer.use(f"f_{function.__module__.rpartition('.')[2]}_{function.__name__}", function)
        parts = (f"float({value})" if as_float and value.type.name != "DOUBLE" else str(value) for value in arguments)
        return writer.strict(type, arguments, f"{name}({', '.join(parts)})", may_be_null=may_be_null)

    return build


def text(template: str) -> Build:
    def build(compiler: Target, type: SqlType, arguments: list[Value]) -> Value:
        return compiler.writer.strict(type, arguments, template.format(*arguments))

    return build


def _as(writer: CodeWriter, value: Value, type: SqlType) -> str:
    """Return the source of an operand, converted for arithmetic with this result type."""
    if type.name in ("DOUBLE", "FLOAT"):
        return str(value) if value.type.name in ("DOUBLE", "FLOAT") else f"float({value})"
    if type.name == "DECIMAL" and value.type.is_integer:
        from decimal import Decimal

        return f"{writer.use('Decimal', Decimal)}({value})"
    return str(value)


def _arithmetic(operator: str, exact: Callable[..., Any]) -> Build:
    def build(compiler: Target, type: SqlType, arguments: list[Value]) -> Value:
        writer = compiler.writer
        if type.is_time_of_day or type.name in ("DATE", "TIME", "INTERVAL_MS", "INTERVAL_MONTHS"):
            return _time_arithmetic(compiler, operator, type, arguments)
        left, right = (_as(writer, value, type) for value in arguments)
        if type.is_integer:
            wrap, bits = writer.use("wrap", numbers.wrap), INTEGERS[type.name]
            name = writer.variable()
            half = 1 << (bits - 1)
            found = writer.strict(type, arguments, f"{left} {operator} {right}")
            writer.line(f"{name} = {found}")
            test = f"{found} is not None and " if found.nullable else ""
            with writer.block(f"if {test}not -{half} <= {found} < {half}:"):
                writer.line(f"{name} = {wrap}({found}, {bits})")
            return Value(name, type, nullable=found.nullable)
        if type.name == "DECIMAL":
            compute, fit = writer.use(f"d_{exact.__name__}", exact), writer.use("decimal", numbers.decimal)
            source = f"{fit}({compute}({left}, {right}), {type.precision}, {type.scale})"
            return writer.strict(type, arguments, source, may_be_null=True)
        source = f"{left} {operator} {right}"
        if type.name == "FLOAT":
            source = f"{writer.use('single', numbers.single)}({source})"
        return writer.strict(type, arguments, source)

    return build


def _time_arithmetic(compiler: Target, operator: str, type: SqlType, arguments: list[Value]) -> Value:
    writer = compiler.writer
    left, right = arguments
    if left.type.name.startswith("INTERVAL") and not right.type.name.startswith("INTERVAL"):
        left, right = right, left
    if left.type.name == right.type.name and type.name == "INTERVAL_MONTHS" and left.type.name in ("TIMESTAMP", "DATE"):
        scale = "" if left.type.name == "TIMESTAMP" else " * 86400000000"
        name = writer.use("months_between", times.months_between)
        return writer.strict(type, arguments, f"{name}({left}{scale}, {right}{scale})")
    if left.type.name == right.type.name and type.name == "INTERVAL_MS":
        if left.type.is_time_of_day:
            return writer.strict(type, arguments, f"{left} // 1000 - {right} // 1000")
        if left.type.name == "DATE":
            return writer.strict(type, arguments, f"({left} - {right}) * 86400000")
    sign = "-" if operator == "-" else ""
    if left.type.name == right.type.name and left.type.name.startswith("INTERVAL"):
        return writer.strict(type, arguments, f"{left} {operator} {right}")
    if type.is_time_of_day and right.type.name == "INTERVAL_MS":
        return writer.strict(type, arguments, f"{left} {operator} {right} * 1000")
    if type.is_time_of_day and right.type.name == "INTERVAL_MONTHS":
        months = writer.use("add_months", times.add_months)
        if left.type.name == "TIMESTAMP_LTZ":
            to_local, to_instant = writer.use("to_local", times.to_local), writer.use("to_instant", times.to_instant)
            zone = repr(compiler.zone)
            source = f"{to_instant}({months}({to_local}({left}, {zone}), {sign}{right}), {zone})"
            return writer.strict(type, arguments, source)
        return writer.strict(type, arguments, f"{months}({left}, {sign}{right})")
    if type.name == "DATE" and right.type.name == "INTERVAL_MS":
        return writer.strict(type, arguments, f"{left} {operator} {right} // 86400000")
    if type.name == "DATE" and right.type.name == "INTERVAL_MONTHS":
        months = writer.use("add_months", times.add_months)
        day = 86_400_000_000
        return writer.strict(type, arguments, f"{months}({left} * {day}, {sign}{right}) // {day}")
    raise compiler.refusal(f"{left.type} {operator} {right.type}")


def _divide(compiler: Target, type: SqlType, arguments: list[Value]) -> Value:
    writer = compiler.writer
    left, right = (_as(writer, value, type) for value in arguments)
    if type.is_integer:
        wrap = writer.use("wrap", numbers.wrap)
        source = (
            f"{wrap}({writer.use('divide_integers', numbers.divide_integers)}({left}, {right}), {INTEGERS[type.name]})"
        )
        return writer.strict(type, arguments, source)
    if type.name == "DECIMAL":
        fit = writer.use("decimal", numbers.decimal)
        source = f"{fit}({writer.use('d_divide', numbers.divide)}({left}, {right}), {type.precision}, {type.scale})"
        return writer.strict(type, arguments, source, may_be_null=True)
    return writer.strict(type, arguments, f"{writer.use('divide_doubles', numbers.divide_doubles)}({left}, {right})")


def _modulo(compiler: Target, type: SqlType, arguments: list[Value]) -> Value:
    writer = compiler.writer
    left, right = arguments
    if left.type.name == "DECIMAL" or right.type.name == "DECIMAL":
        decimal = SqlType("DECIMAL")
        source = (
            f"{writer.use('remainder', numbers.remainder)}({_as(writer, left, decimal)}, {_as(writer, right, decimal)})"
        )
        if type.is_integer:
            source = f"int({source})"
        return writer.strict(type, arguments, source)
    return writer.strict(type, arguments, f"{writer.use('remainder', numbers.remainder)}({left}, {right})")


def _comparison(operator: str) -> Build:
    def build(compiler: Target, type: SqlType, arguments: list[Value]) -> Value:
        left, right = arguments
        names = {left.type.name, right.type.name}
        is_double = bool(names & {"DOUBLE", "FLOAT"}) and "DECIMAL" in names
        parts = [f"float({value})" if is_double and value.type.name == "DECIMAL" else str(value) for value in arguments]
        if left.type.is_nested and operator not in ("==", "!="):
            raise compiler.refusal(f"{left.type} {operator} {right.type}")
        is_mixed = left.type.name != right.type.name
        if is_mixed and not (
            (left.type.is_number and right.type.is_number) or (left.type.is_string and right.type.is_string)
        ):
            raise compiler.refusal(f"{left.type} {operator} {right.type}")
        return compiler.writer.strict(type, arguments, f"{parts[0]} {operator} {parts[1]}")

    return build


def _test(template: str) -> Build:
    def build(compiler: Target, type: SqlType, arguments: list[Value]) -> Value:
        name = compiler.writer.variable()
        compiler.writer.line(f"{name} = {template.format(*arguments)}")
        return Value(name, type, nullable=False)

    return build


def _absolute(compiler: Target, type: SqlType, arguments: list[Value]) -> Value:
    """Write the absolute value. `abs()` would round a DECIMAL to 28 digits."""
    template = "{0}.copy_abs()" if type.name == "DECIMAL" else "abs({0})"
    return compiler.writer.strict(type, arguments, template.format(*arguments))


def _rounded(compiler: Target, type: SqlType, arguments: list[Value]) -> Value:
    digits = str(arguments[1]) if len(arguments) > 1 else "0"
    source = f"{compiler.writer.use('round_to', numbers.round_to)}({arguments[0]}, {digits})"
    if type.name == "DECIMAL":
        source = f"{compiler.writer.use('decimal', numbers.decimal)}({source}, {type.precision}, {type.scale})"
    return compiler.writer.strict(type, arguments, source, may_be_null=type.name == "DECIMAL")


def _local(compiler: Target, value: Value) -> str:
    """Return the source of the local time of a timestamp or date in microseconds."""
    if value.type.name == "TIMESTAMP_LTZ":
        return f"{compiler.writer.use('to_local', times.to_local)}({value}, {compiler.zone!r})"
    if value.type.name == "DATE":
        return f"{value} * 86400000000"
    if value.type.name == "TIMESTAMP":
        return str(value)
    raise compiler.refusal(f"a function of times on {value.type}")


def _extract(compiler: Target, type: SqlType, arguments: list[Value]) -> Value:
    unit, moment = arguments
    if unit.source.strip("'") not in times.EXTRACTED:
        raise compiler.refusal(f"EXTRACT({unit} FROM {moment.type})")
    name = compiler.writer.use("f_extract", times.extract)
    return compiler.writer.strict(type, [moment], f"{name}({unit}, {_local(compiler, moment)})")


def _round_down(compiler: Target, type: SqlType, arguments: list[Value]) -> Value:
    if len(arguments) == 1:
        return call(numbers.floor)(compiler, type, arguments)
    moment, unit = arguments
    if unit.source.strip("'") not in times.FLOORED or moment.type.name != "TIMESTAMP":
        raise compiler.refusal(f"FLOOR({moment.type} TO {unit})")
    name = compiler.writer.use("f_floor", times.floor)
    return compiler.writer.strict(type, [moment], f"{name}({unit}, {moment})")


def _ceil(compiler: Target, type: SqlType, arguments: list[Value]) -> Value:
    if len(arguments) > 1:
        raise compiler.refusal(f"CEIL({arguments[0].type} TO {arguments[1]})")
    return call(numbers.ceil)(compiler, type, arguments)


def _date_format(compiler: Target, type: SqlType, arguments: list[Value]) -> Value:
    moment, pattern = arguments
    name = compiler.writer.use("formatted", times.formatted)
    return compiler.writer.strict(type, arguments, f"{name}({_local(compiler, moment)}, {pattern})")


def _to_timestamp(compiler: Target, type: SqlType, arguments: list[Value]) -> Value:
    writer = compiler.writer
    function = times.parsed if len(arguments) > 1 else times.parse_timestamp
    source = f"{writer.use(f'f_{function.__name__}', function)}({', '.join(map(str, arguments))})"
    parsed = writer.strict(type, arguments, source, may_be_null=True)
    cut = writer.use("truncate", times.truncate)
    return writer.strict(type, [parsed], f"{cut}({parsed}, {type.precision})")


def _to_timestamp_ltz(compiler: Target, type: SqlType, arguments: list[Value]) -> Value:
    if len(arguments) != 2 or not arguments[0].type.is_number:
        raise compiler.refusal("TO_TIMESTAMP_LTZ without a number and a precision")
    value, precision = arguments
    scaled = f"int({value} * (1000000 if {precision} == 0 else 1000))"
    return compiler.writer.strict(type, arguments, scaled)


def _trim(compiler: Target, type: SqlType, arguments: list[Value]) -> Value:
    where, characters, text = arguments
    name = compiler.writer.use("f_trim", texts.trim)
    return compiler.writer.strict(type, [characters, text], f"{name}({where}, {characters}, {text})")


def _concat_ws(compiler: Target, type: SqlType, arguments: list[Value]) -> Value:
    separator, *parts = arguments
    found = ", ".join(map(str, parts))
    source = f"{separator}.join([part for part in ({found},) if part is not None])"
    return compiler.writer.strict(type, [separator], source)


def _digest_of(name: str) -> Build:
    def build(compiler: Target, type: SqlType, arguments: list[Value]) -> Value:
        function = compiler.writer.use("f_digest", texts.digest)
        return compiler.writer.strict(type, arguments, f"{function}({name!r}, {arguments[0]})")

    return build


def _padded(*, on_left: bool) -> Build:
    def build(compiler: Target, type: SqlType, arguments: list[Value]) -> Value:
        function = compiler.writer.use("f_pad", texts.pad)
        source = f"{function}({', '.join(map(str, arguments))}, on_left={on_left})"
        return compiler.writer.strict(type, arguments, source, may_be_null=True)

    return build


FUNCTIONS: dict[str, Build] = {
    "+": _arithmetic("+", numbers.add),
    "-": _arithmetic("-", numbers.subtract),
    "*": _arithmetic("*", numbers.multiply),
    "/": _divide,
    "/INT": _divide,
    "%": _modulo,
    "MOD": _modulo,
    "=": _comparison("=="),
    "<>": _comparison("!="),
    "<": _comparison("<"),
    "<=": _comparison("<="),
    ">": _comparison(">"),
    ">=": _comparison(">="),
    "NOT": text("not {0}"),
    "IS NULL": _test("{0} is None"),
    "IS NOT NULL": _test("{0} is not None"),
    "IS TRUE": _test("{0} is True"),
    "IS NOT TRUE": _test("{0} is not True"),
    "IS FALSE": _test("{0} is False"),
    "IS NOT FALSE": _test("{0} is not False"),
    "IS UNKNOWN": _test("{0} is None"),
    "IS NOT UNKNOWN": _test("{0} is not None"),
    "IS NOT DISTINCT FROM": _test("{0} == {1}"),
    "IS DISTINCT FROM": _test("{0} != {1}"),
    "ABS": _absolute,
    "FLOOR": _round_down,
    "CEIL": _ceil,
    "ROUND": _rounded,
    "SIGN": call(numbers.sign),
    "SQRT": call(numbers.root, as_float=True),
    "POWER": call(numbers.power, as_float=True),
    "EXP": call(numbers.exp, as_float=True),
    "LN": call(numbers.ln, as_float=True),
    "LOG10": call(numbers.log10, as_float=True),
    "UPPER": text("{0}.upper()"),
    "LOWER": text("{0}.lower()"),
    "CHAR_LENGTH": text("len({0})"),
    "CHARACTER_LENGTH": text("len({0})"),
    "||": text("{0} + {1}"),
    "CONCAT_WS": _concat_ws,
    "SUBSTRING": call(texts.substring, may_be_null=True),
    "SUBSTR": call(texts.substring, may_be_null=True),
    "TRIM": _trim,
    "LIKE": call(texts.like),
    "REPLACE": text("{0}.replace({1}, {2})"),
    "POSITION": call(texts.position),
    "LEFT": call(texts.left),
    "RIGHT": call(texts.right),
    "LPAD": _padded(on_left=True),
    "RPAD": _padded(on_left=False),
    "REVERSE": text("{0}[::-1]"),
    "REPEAT": text("{0} * {1}"),
    "INITCAP": call(texts.initcap),
    "SPLIT_INDEX": call(texts.split_index, may_be_null=True),
    "HASH_CODE": call(texts.bucket),
    "MD5": _digest_of("md5"),
    "SHA1": _digest_of("sha1"),
    "SHA256": _digest_of("sha256"),
    "SHA512": _digest_of("sha512"),
    "EXTRACT": _extract,
    "DATE_FORMAT": _date_format,
    "TO_TIMESTAMP": _to_timestamp,
    "TO_TIMESTAMP_LTZ": _to_timestamp_ltz,
}
"""Functions whose arguments are all computed first. `compiler` writes the others, such as CASE."""
