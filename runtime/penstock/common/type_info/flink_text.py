"""Values as text in Flink's form: the result of Java's `toString` for Flink's value of a type.

A PyFlink program that declares the type of a stream gets this text from `print`, from text files and from
`SimpleStringSchema`. Without a declared type Flink has pickled values, and PyFlink writes Python's own `str`.
"""

from __future__ import annotations

import datetime
import decimal
import math
import struct
from typing import TYPE_CHECKING, Any

from penstock.common.time import Instant
from penstock.common.type_info.composite_types import (
    ExternalTypeInfo,
    MapTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    _ElementsTypeInfo,
)
from penstock.common.type_info.type_information import BasicType, BasicTypeInfo, TypeInformation
from penstock.common.types import Row

if TYPE_CHECKING:
    from collections.abc import Callable

_PLAIN_EXPONENTS = range(-3, 7)
"""Java writes numbers from 10⁻³ up to 10⁷ without an exponent."""


def text_of(type_info: TypeInformation | None) -> Callable[[Any], str]:
    """Return the function that formats values of the type. If the type is not known, the function is Python's `str`.

    >>> from penstock.common.typeinfo import Types
    >>> text_of(Types.TUPLE([Types.STRING(), Types.INT()]))(("a", 1))
    '(a,1)'
    >>> row = Types.ROW([Types.STRING(), Types.LONG(), Types.BOOLEAN(), Types.DOUBLE()])
    >>> text_of(row)(Row("a", 1, True, None)), text_of(row)(("b", 2, False, 1e10))
    ('+I[a, 1, true, null]', '+I[b, 2, false, 1.0E10]')
    >>> text_of(None)(("a", True))
    "('a', True)"
    """
    if type_info is None:
        return str
    write = _writer(type_info)
    return lambda value: "null" if value is None else write(value)


def printed_text_of(type_info: TypeInformation | None) -> Callable[[Any], str]:
    """Return the function that formats values of the type for `print`. PyFlink's `print` writes the fields of a ROW as Python does.

    >>> from penstock.common.typeinfo import Types
    >>> printed_text_of(Types.ROW([Types.STRING(), Types.BOOLEAN()]))(Row("a", True))
    '+I[a,True]'
    """
    inner = type_info.inner if isinstance(type_info, ExternalTypeInfo) else type_info
    return _printed_row if isinstance(inner, RowTypeInfo) else text_of(type_info)


def _printed_row(value: Any) -> str:
    if value is None:
        return "null"
    return f"{_kind_of(value)}[{','.join(map(str, value))}]"


def _kind_of(value: Any) -> Any:
    return value.get_row_kind() if isinstance(value, Row) else "+I"


def differs_from_python(type_info: TypeInformation) -> bool:
    """Return whether Flink's text of the values differs from Python's. It differs for booleans and floating-point numbers."""
    kinds = (BasicType.BOOLEAN, BasicType.FLOAT, BasicType.DOUBLE)
    return isinstance(type_info, BasicTypeInfo) and type_info.basic_type in kinds


def _writer(type_info: TypeInformation) -> Callable[[Any], str]:
    if isinstance(type_info, ExternalTypeInfo):
        return _writer(type_info.inner)
    if isinstance(type_info, BasicTypeInfo) and type_info.basic_type is BasicType.FLOAT:
        return float_text
    if isinstance(type_info, BasicTypeInfo) and type_info.basic_type is BasicType.DOUBLE:
        return double_text
    if isinstance(type_info, RowTypeInfo):
        return _row_writer(type_info)
    if isinstance(type_info, TupleTypeInfo):
        fields = [text_of(field) for field in type_info.get_field_types()]
        return lambda value: f"({','.join([write(item) for write, item in zip(fields, value, strict=True)])})"
    if isinstance(type_info, PrimitiveArrayTypeInfo) and type_info.python_type is bytes:
        return _plain
    if isinstance(type_info, _ElementsTypeInfo):
        element = text_of(type_info.element_type)
        return lambda value: f"[{', '.join(map(element, value))}]"
    if isinstance(type_info, MapTypeInfo):
        key, item = text_of(type_info.key_type), text_of(type_info.value_type)
        return lambda value: f"{{{', '.join([f'{key(k)}={item(v)}' for k, v in value.items()])}}}"
    return _plain


def _row_writer(type_info: RowTypeInfo) -> Callable[[Any], str]:
    fields = [text_of(field) for field in type_info.get_field_types()]
    values_of = type_info.declared_fields.values

    def write(value: Any) -> str:
        items = zip(fields, values_of(value), strict=True)
        return f"{_kind_of(value)}[{', '.join([write(item) for write, item in items])}]"

    return write


def _plain(value: Any) -> str:
    """Format a value by its Python class."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return double_text(value)
    if isinstance(value, bytes | bytearray):
        return str(list(value))
    if isinstance(value, datetime.datetime):
        return timestamp_text(value)
    if isinstance(value, datetime.time):
        return value.strftime("%H:%M:%S")
    if isinstance(value, Instant):
        return _instant_text(value)
    return str(value)


def double_text(value: float) -> str:
    """Format a DOUBLE.

    >>> [double_text(value) for value in (1.0, 1e10, 1.5e-5, 0.001, 12345678.9, float("inf"), -0.0)]
    ['1.0', '1.0E10', '1.5E-5', '0.001', '1.23456789E7', 'Infinity', '-0.0']
    """
    return _float_text(float(value), repr(float(value)))


def float_text(value: float) -> str:
    """Format a FLOAT with the fewest digits that distinguish it from the next smaller and larger 32-bit floats.

    >>> float_text(1.23), float_text(0.1 + 0.2), float_text(16777217.0)
    ('1.23', '0.3', '1.6777216E7')
    """
    value = float(value)
    if not math.isfinite(value):
        return _float_text(value, "")
    single = _single(value)
    digits = next(
        (text for text in (f"{single:.{n}e}" for n in range(9)) if _single(float(text)) == single), repr(single)
    )
    return _float_text(single, digits)


def _single(value: float) -> float:
    try:
        single: float = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return single


def _float_text(value: float, shortest: str) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "-0.0" if math.copysign(1, value) < 0 else "0.0"
    parts = decimal.Decimal(shortest).normalize().as_tuple()
    digits = "".join(map(str, parts.digits))
    exponent = len(digits) - 1 + int(parts.exponent)
    sign = "-" if parts.sign else ""
    if exponent not in _PLAIN_EXPONENTS:
        return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    whole = digits[: exponent + 1].ljust(exponent + 1, "0")
    return f"{sign}{whole}.{digits[exponent + 1 :] or '0'}"


def timestamp_text(value: datetime.datetime) -> str:
    """Format a SQL timestamp. The fraction has no trailing zeros, but at least one digit.

    >>> timestamp_text(datetime.datetime(2021, 1, 9, 12)), timestamp_text(datetime.datetime(2021, 1, 9, 12, 0, 0, 11000))
    ('2021-01-09 12:00:00.0', '2021-01-09 12:00:00.011')
    """
    fraction = f"{value.microsecond:06}".rstrip("0") or "0"
    return f"{value:%Y-%m-%d %H:%M:%S}.{fraction}"


def _instant_text(value: Instant) -> str:
    moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=value.seconds)
    nanos = f"{value.nanos:09}"
    while nanos.endswith("000"):
        nanos = nanos[:-3]
    return f"{moment:%Y-%m-%dT%H:%M:%S}{'.' + nanos if nanos else ''}Z"
