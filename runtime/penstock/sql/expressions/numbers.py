"""Arithmetic of Flink's SQL: integers wrap around, decimals have a fixed precision, doubles follow IEEE 754."""

from __future__ import annotations

import math
import struct
from decimal import ROUND_DOWN, ROUND_HALF_UP, Context, Decimal
from typing import Any

from penstock.common.errors import UserFunctionError

_EXACT = Context(prec=200, rounding=ROUND_HALF_UP, traps=[])
_DIVIDE = Context(prec=38, rounding=ROUND_HALF_UP, traps=[])


def wrap(value: int, bits: int) -> int:
    """Return the integer that Java computes with this many bits.

    >>> wrap(2**31, 32), wrap(200, 8), wrap(5, 64)
    (-2147483648, -56, 5)
    """
    half = 1 << (bits - 1)
    return ((value + half) & ((1 << bits) - 1)) - half


def decimal(value: Decimal, precision: int, scale: int) -> Decimal | None:
    """Return the value with this scale, rounded half up, or None if it has too many digits.

    >>> decimal(Decimal("1.005"), 12, 2), decimal(Decimal("123.4"), 3, 1)
    (Decimal('1.01'), None)
    """
    if not value.is_finite():
        return None
    rounded = value.quantize(Decimal(1).scaleb(-scale), context=_EXACT)
    return rounded if not rounded or (rounded.is_finite() and rounded.adjusted() < precision - scale) else None


def quantized(value: Decimal, digits: int, rounding: str = ROUND_HALF_UP) -> Decimal:
    """Return the value with at most this number of digits after the point.

    >>> quantized(Decimal("1.25"), 1), quantized(Decimal("1E+300"), 2)
    (Decimal('1.3'), Decimal('1E+300'))
    """
    exponent = value.as_tuple().exponent
    if isinstance(exponent, int) and exponent >= -digits:
        return value
    return value.quantize(Decimal(1).scaleb(-digits), rounding=rounding, context=_EXACT)


def add(left: Decimal, right: Decimal) -> Decimal:
    return _EXACT.add(left, right)


def subtract(left: Decimal, right: Decimal) -> Decimal:
    return _EXACT.subtract(left, right)


def multiply(left: Decimal, right: Decimal) -> Decimal:
    return _EXACT.multiply(left, right)


def divide(left: Decimal, right: Decimal) -> Decimal:
    if not right:
        raise _division_by_zero()
    return _DIVIDE.divide(left, right)


def _division_by_zero() -> ZeroDivisionError:
    return ZeroDivisionError("Division by zero!")


def divide_integers(left: int, right: int) -> int:
    """Return the quotient rounded towards zero.

    >>> divide_integers(-7, 2)
    -3
    """
    if right == 0:
        raise _division_by_zero()
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def divide_doubles(left: float, right: float) -> float:
    """Return the quotient as IEEE 754 defines it: a division by zero gives an infinity or NaN."""
    if right:
        return left / right
    if left == 0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def remainder(left: Any, right: Any) -> Any:
    """Return the remainder with the sign of the dividend."""
    if isinstance(left, float) or isinstance(right, float):
        return math.fmod(left, right) if right and math.isfinite(left) else math.nan
    if not right:
        raise _division_by_zero()
    if isinstance(left, Decimal) or isinstance(right, Decimal):
        return _EXACT.remainder(Decimal(left), Decimal(right))
    return _int_remainder(left, right)


def _int_remainder(left: int, right: int) -> int:
    found = abs(left) % abs(right)
    return -found if left < 0 else found


def single(value: float) -> float:
    """Return the value rounded to a FLOAT of 32 bits."""
    try:
        found: float = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return found


def to_integer(value: float, bits: int) -> int:
    """Return the integer that Java's cast from a double gives: rounded towards zero, within the limits of the type."""
    if math.isnan(value):
        return 0
    wide = 64 if bits == 64 else 32
    limit = 1 << (wide - 1)
    return wrap(
        max(-limit, min(limit - 1, int(value) if math.isfinite(value) else int(math.copysign(limit, value)))), bits
    )


def decimal_to_integer(value: Decimal, bits: int) -> int:
    """Return the integer part of a decimal, which must fit into the type."""
    found = int(value.to_integral_value(ROUND_DOWN))
    if wrap(found, bits) != found:
        raise UserFunctionError(f"Numeric overflow: {value} does not fit into an integer of {bits} bits")
    return found


def round_to(value: Any, digits: int) -> Any:
    """Return the value rounded half up to this number of digits after the point. Negative digits round to tens, hundreds, …"""
    if isinstance(value, float):
        if not math.isfinite(value):
            return value
        return float(quantized(Decimal(repr(value)), digits))
    if isinstance(value, int):
        return int(quantized(Decimal(value), digits)) if digits < 0 else value
    return quantized(value, digits)


def text_of(value: Any) -> str:
    """Return the text of a number as a CAST to STRING gives it. Doubles have Java's format.

    >>> text_of(1e10), text_of(0.1), text_of(12345.678), text_of(Decimal("1.50"))
    ('1.0E10', '0.1', '12345.678', '1.50')
    """
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, int):
        return str(value)
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "-0.0" if math.copysign(1, value) < 0 else "0.0"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    text = "".join(map(str, digits))
    point = len(text) + int(exponent)
    prefix = "-" if sign else ""
    if 1e-3 <= abs(value) < 1e7:
        if point <= 0:
            return f"{prefix}0.{'0' * -point}{text}"
        whole, fraction = text[:point].ljust(point, "0"), text[point:]
        return f"{prefix}{whole}.{fraction or '0'}"
    return f"{prefix}{text[0]}.{text[1:] or '0'}E{point - 1}"


def shortest_single(value: float) -> str:
    """Return the text of a FLOAT, with the fewest digits that distinguish it from other FLOATs."""
    import numpy as np

    return text_of(float(str(np.float32(value))))


def floor(value: Any) -> Any:
    if isinstance(value, float):
        return float(math.floor(value)) if math.isfinite(value) else value
    return value if isinstance(value, int) else value.quantize(Decimal(1), rounding="ROUND_FLOOR", context=_EXACT)


def ceil(value: Any) -> Any:
    if isinstance(value, float):
        return float(math.ceil(value)) if math.isfinite(value) else value
    return value if isinstance(value, int) else value.quantize(Decimal(1), rounding="ROUND_CEILING", context=_EXACT)


def sign(value: Any) -> Any:
    if isinstance(value, float):
        return value if value == 0 or math.isnan(value) else math.copysign(1.0, value)
    return type(value)((value > 0) - (value < 0))


def power(left: float, right: float) -> float:
    try:
        return math.pow(left, right)
    except OverflowError:
        return math.inf
    except ValueError:
        return math.nan if left < 0 else math.inf


def root(value: float) -> float:
    return math.sqrt(value) if value >= 0 else math.nan


def exp(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def ln(value: float) -> float:
    if value > 0:
        return math.log(value)
    return -math.inf if value == 0 else math.nan


def log10(value: float) -> float:
    if value > 0:
        return math.log10(value)
    return -math.inf if value == 0 else math.nan
