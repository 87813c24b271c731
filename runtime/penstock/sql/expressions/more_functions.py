"""More functions: regular expressions, encodings, JSON, trigonometry, and differences of times."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from penstock.sql.expressions import json_values, numbers, patterns, texts, times
from penstock.sql.expressions.functions import Build, call, text
from penstock.sql.expressions.writer import Target, Value
from penstock.sql.plan.types import SqlType


def _tested(function: Callable[..., Any], *, negated: bool = False) -> Build:
    """Return the writer of a test of a value that may be NULL. Its result is never NULL."""

    def build(compiler: Target, type: SqlType, arguments: list[Value]) -> Value:
        name = compiler.writer.variable()
        used = compiler.writer.use(f"t_{function.__name__}", function)
        compiler.writer.line(f"{name} = {'not ' if negated else ''}{used}({arguments[0]})")
        return Value(name, type, nullable=False)

    return build


def _float(function: Callable[[float], float]) -> Build:
    """Return the writer of a function of a DOUBLE. A value outside of its domain gives NaN, as in Java."""

    def compute(value: float) -> float:
        try:
            return function(value)
        except ValueError:
            return math.nan
        except OverflowError:
            return math.inf

    compute.__name__ = function.__name__
    return call(compute, as_float=True)


def logarithm(base: float, value: float | None = None) -> float:
    """Return the logarithm. The base of a single argument is e."""
    if value is None:
        return numbers.ln(base)
    divisor = numbers.ln(base)
    return numbers.divide_doubles(numbers.ln(value), divisor)


def log2(value: float) -> float:
    return math.log2(value) if value > 0 else -math.inf if value == 0 else math.nan


def cotangent(value: float) -> float:
    return numbers.divide_doubles(1.0, math.tan(value))


def truncated(value: Any, digits: int = 0) -> Any:
    """Return the number without the digits after a position."""
    if isinstance(value, float):
        if not math.isfinite(value):
            return value
        return float(truncated(Decimal(repr(value)), digits))
    if isinstance(value, int):
        return value if digits >= 0 else int(truncated(Decimal(value), digits))
    return numbers.quantized(value, digits, "ROUND_DOWN")


def _truncate(compiler: Target, type: SqlType, arguments: list[Value]) -> Value:
    source = f"{compiler.writer.use('f_truncated', truncated)}({', '.join(map(str, arguments))})"
    if type.name == "DECIMAL":
        source = f"{compiler.writer.use('decimal', numbers.decimal)}({source}, {type.precision}, {type.scale})"
    return compiler.writer.strict(type, arguments, source, may_be_null=type.name == "DECIMAL")


def _extreme(name: str) -> Build:
    def build(compiler: Target, type: SqlType, arguments: list[Value]) -> Value:
        found = [compiler.convert(argument, type) for argument in arguments]
        return compiler.writer.strict(type, found, f"{name}({', '.join(map(str, found))})")

    return build


def _constant(value: float) -> Build:
    return lambda compiler, type, arguments: compiler.writer.constant(value, type)


def _concat(compiler: Target, type: SqlType, arguments: list[Value]) -> Value:
    return compiler.writer.strict(type, arguments, " + ".join(map(str, arguments)))


def _element_of(compiler: Target, type: SqlType, arguments: list[Value]) -> Value:
    index, *parts = arguments
    source = f"({', '.join(map(str, parts))},)[{index} - 1] if 1 <= {index} <= {len(parts)} else None"
    return compiler.writer.strict(type, [index], f"({source})", may_be_null=True)


def _sha2(compiler: Target, type: SqlType, arguments: list[Value]) -> Value:
    value, bits = arguments
    name = compiler.writer.use("f_digest", texts.digest)
    return compiler.writer.strict(type, arguments, f"{name}(f'sha{{{bits}}}', {value})")


def unix_seconds(text: str, pattern: str, zone: str) -> int:
    """Return the seconds since 1970 of a local time. A text in another format gives the lowest BIGINT, as in Flink.

    >>> unix_seconds("02/01/1970", "dd/MM/yyyy", "UTC"), unix_seconds("1970-01-01 09:00:00", "yyyy-MM-dd HH:mm:ss", "Asia/Tokyo")
    (86400, 0)
    """
    found = times.parsed(text, pattern)
    return -(2**63) if found is None else times.to_instant(found, zone) // 1_000_000


def unix_text(seconds: int, pattern: str, zone: str) -> str:
    return times.formatted(times.to_local(seconds * 1_000_000, zone), pattern)


_STANDARD = "yyyy-MM-dd HH:mm:ss"


def _with_format(function: Callable[..., Any]) -> Build:
    def build(compiler: Target, type: SqlType, arguments: list[Value]) -> Value:
        if not arguments:
            raise compiler.refusal("UNIX_TIMESTAMP() without arguments")
        value = arguments[0]
        pattern = str(arguments[1]) if len(arguments) > 1 else repr(_STANDARD)
        name = compiler.writer.use(f"f_{function.__name__}", function)
        return compiler.writer.strict(type, arguments, f"{name}({value}, {pattern}, {compiler.zone!r})")

    return build


def converted_zone(text: str, source: str, target: str) -> str | None:
    found = times.parse_timestamp(text)
    return None if found is None else times.text_of(times.to_local(times.to_instant(found, source), target), 0)


def _to_date(compiler: Target, type: SqlType, arguments: list[Value]) -> Value:
    writer = compiler.writer
    if len(arguments) == 1:
        name = writer.use("parse_date", times.parse_date)
        return writer.strict(type, arguments, f"{name}({arguments[0]})", may_be_null=True)
    name = writer.use("parsed", times.parsed)
    found = writer.strict(type, arguments, f"{name}({arguments[0]}, {arguments[1]})", may_be_null=True)
    return writer.strict(type, [found], f"{found} // 86400000000")


def _json(function: Callable[..., Any]) -> Build:
    """Return the writer of a JSON function of a text and a path, with the default behaviour for errors and missing values."""

    def build(compiler: Target, type: SqlType, arguments: list[Value]) -> Value:
        writer = compiler.writer
        source, path, *behaviour = arguments
        unusual = [str(found) for found in behaviour if str(found).strip("'") not in _USUAL]
        if unusual:
            raise compiler.refusal(f"{function.__name__.upper()} of JSON with {', '.join(unusual)}")
        name = writer.use(f"json_{function.__name__}", function)
        found = writer.strict(
            SqlType("VARCHAR"),
            [source, path],
            f"{name}({source}, {path})",
            may_be_null=function is not json_values.exists,
        )
        if type.name in ("VARCHAR", "BOOLEAN") or function is not json_values.value:
            return Value(found.source, type, nullable=found.nullable)
        return compiler.convert(found, type)

    return build


_USUAL = ("NULL", "EMPTY", "FALSE", "WITHOUT_ARRAY", "None")
FUNCTIONS: dict[str, Build] = {
    "ACOS": _float(math.acos),
    "ASIN": _float(math.asin),
    "ATAN": _float(math.atan),
    "ATAN2": call(math.atan2, as_float=True),
    "COS": _float(math.cos),
    "COSH": _float(math.cosh),
    "COT": _float(cotangent),
    "DEGREES": _float(math.degrees),
    "E": _constant(math.e),
    "GREATEST": _extreme("max"),
    "LEAST": _extreme("min"),
    "LOG": call(logarithm, as_float=True),
    "LOG2": call(log2, as_float=True),
    "PI": _constant(math.pi),
    "RADIANS": _float(math.radians),
    "SIN": _float(math.sin),
    "SINH": _float(math.sinh),
    "TAN": _float(math.tan),
    "TANH": _float(math.tanh),
    "TRUNCATE": _truncate,
    "BIN": call(patterns.binary),
    "HEX": call(patterns.hexadecimal),
    "UNHEX": call(patterns.from_hexadecimal, may_be_null=True),
    "TO_BASE64": call(patterns.to_base64),
    "FROM_BASE64": call(patterns.from_base64, may_be_null=True),
    "ENCODE": call(patterns.encoded),
    "DECODE": call(patterns.decoded),
    "URL_ENCODE": call(patterns.url_encoded),
    "URL_DECODE": call(patterns.url_decoded, may_be_null=True),
    "PARSE_URL": call(patterns.url_part, may_be_null=True),
    "ASCII": call(patterns.ascii_code),
    "CHR": call(patterns.character),
    "CONCAT": _concat,
    "ELT": _element_of,
    "BTRIM": call(patterns.trimmed_both),
    "LTRIM": call(patterns.trimmed_left),
    "RTRIM": call(patterns.trimmed_right),
    "INSTR": call(patterns.instr),
    "LOCATE": call(patterns.located),
    "OVERLAY": call(patterns.overlay),
    "STARTSWITH": text("{0}.startswith({1})"),
    "ENDSWITH": text("{0}.endswith({1})"),
    "TRANSLATE": call(patterns.translated),
    "TRANSLATE3": call(patterns.translated),
    "IS_ALPHA": call(patterns.is_alpha),
    "IS_DIGIT": call(patterns.is_digit),
    "IS_DECIMAL": call(patterns.is_decimal),
    "REGEXP": call(patterns.matches),
    "REGEXP_COUNT": call(patterns.count_of, may_be_null=True),
    "REGEXP_EXTRACT": call(patterns.extract, may_be_null=True),
    "REGEXP_EXTRACT_ALL": call(patterns.extract_all, may_be_null=True),
    "REGEXP_INSTR": call(patterns.position_of, may_be_null=True),
    "REGEXP_REPLACE": call(patterns.replaced, may_be_null=True),
    "REGEXP_SUBSTR": call(patterns.part_of, may_be_null=True),
    "SHA2": _sha2,
    "CONVERT_TZ": call(converted_zone, may_be_null=True),
    "FROM_UNIXTIME": _with_format(unix_text),
    "TO_DATE": _to_date,
    "UNIX_TIMESTAMP": _with_format(unix_seconds),
    "IS JSON ARRAY": _tested(json_values.is_array),
    "IS JSON OBJECT": _tested(json_values.is_object),
    "IS JSON SCALAR": _tested(json_values.is_scalar),
    "IS JSON VALUE": _tested(json_values.is_json),
    "IS NOT JSON ARRAY": _tested(json_values.is_array, negated=True),
    "IS NOT JSON OBJECT": _tested(json_values.is_object, negated=True),
    "IS NOT JSON SCALAR": _tested(json_values.is_scalar, negated=True),
    "IS NOT JSON VALUE": _tested(json_values.is_json, negated=True),
    "JSON_EXISTS": _json(json_values.exists),
    "JSON_QUERY": _json(json_values.query),
    "JSON_VALUE": _json(json_values.value),
}
