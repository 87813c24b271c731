"""The connector `datagen`: rows of random or sequential values, computed from the number of the row.

The same number always gives the same row, so a job that restarts reads the same rows again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from penstock.sql.expressions import numbers
from penstock.sql.operators.rows import SqlRow
from penstock.sql.plan.nodes import Column
from penstock.sql.plan.types import INTEGERS, SqlType
from penstock.sql.tables.options import TableOptions

_MASK = (1 << 64) - 1
_LENGTH = 100
"""Default length of random strings."""


def mixed(number: int) -> int:
    """Return 64 random-looking bits for a number (the finalizer of SplitMix64)."""
    number = (number * 0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019) & _MASK
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & _MASK
    return number ^ (number >> 31)


class GenerateRows:
    """A function from the number of a row to the row."""

    def __init__(self, options: TableOptions) -> None:
        self._fields = [_Field(options, column, index) for index, column in enumerate(options.table.columns)]

    def __call__(self, index: int) -> SqlRow:
        return tuple([field.value(index) for field in self._fields])

    @property
    def count(self) -> int | None:
        """The number of rows of the shortest sequence, None if no field is a sequence."""
        lengths = [field.end - field.start + 1 for field in self._fields if field.is_sequence]
        return min(lengths, default=None)


class _Field:
    def __init__(self, options: TableOptions, column: Column, position: int) -> None:
        prefix = f"fields.{column.name}."
        self.type, self._salt = column.type, (position + 1) << 56
        self.is_sequence = options.choice(f"{prefix}kind", ("random", "sequence"), "random") == "sequence"
        self.start = self.end = 0
        if self.is_sequence:
            self.start, self.end = int(options.required(f"{prefix}start")), int(options.required(f"{prefix}end"))
        self._low, self._high = _limits(column.type)
        if column.type.is_number:
            self._low = options.number(f"{prefix}min", self._low)
            self._high = options.number(f"{prefix}max", self._high)
        if column.type.is_string:
            self._length = options.integer(f"{prefix}length", min(_LENGTH, column.type.precision or _LENGTH)) or 0
        self._null_rate = options.number(f"{prefix}null-rate", 0.0)
        self._past_ms = options.milliseconds(f"{prefix}max-past") if column.type.is_time_of_day else None
        if _maker(column.type.name) is None:
            raise options.refusal(
                f"the column {column.name} has the type {column.type}, which datagen cannot generate",
                "generate another column, and compute this one from it",
            )

    def value(self, index: int) -> Any:
        bits = mixed(index ^ self._salt)
        if self._null_rate and (mixed(bits) >> 11) / (1 << 53) < self._null_rate:
            return None
        if self.is_sequence:
            return _of_integer(self.start + index, self.type)
        make = _maker(self.type.name)
        assert make is not None
        return make(self, bits)

    def number(self, bits: int) -> float:
        return self._low + (bits >> 11) / (1 << 53) * (self._high - self._low)

    def integer(self, bits: int) -> int:
        low, high = int(self._low), int(self._high)
        return low + bits % (high - low + 1)

    def text(self, bits: int) -> str:
        parts = []
        for _ in range((self._length + 15) // 16):
            parts.append(f"{bits:016x}")
            bits = mixed(bits)
        return "".join(parts)[: self._length]

    def moment(self, bits: int) -> int:
        now = time.time_ns() // 1_000_000
        return (now - (bits % (self._past_ms + 1) if self._past_ms else 0)) * 1000


def _limits(type: SqlType) -> tuple[float, float]:
    if type.is_integer:
        half = 1 << (INTEGERS[type.name] - 1)
        return -half, half - 1
    if type.name == "DECIMAL":
        whole = 10.0 ** (type.precision - type.scale)
        return -whole + 1, whole - 1
    return -1e9, 1e9


def _of_integer(value: int, type: SqlType) -> Any:
    if type.is_string:
        return str(value)
    if type.name == "DECIMAL":
        return numbers.decimal(Decimal(value), type.precision, type.scale)
    return float(value) if type.name in ("DOUBLE", "FLOAT") else value


def _maker(name: str) -> Callable[[_Field, int], Any] | None:
    return _MAKERS.get(name)


def _decimal(field: _Field, bits: int) -> Decimal | None:
    return numbers.decimal(Decimal(repr(field.number(bits))), field.type.precision, field.type.scale)


_MAKERS: dict[str, Callable[[_Field, int], Any]] = {
    **dict.fromkeys(INTEGERS, _Field.integer),
    "BOOLEAN": lambda field, bits: bool(bits & 1),
    "DOUBLE": _Field.number,
    "FLOAT": lambda field, bits: numbers.single(field.number(bits)),
    "DECIMAL": _decimal,
    "CHAR": _Field.text,
    "VARCHAR": _Field.text,
    "TIMESTAMP": _Field.moment,
    "TIMESTAMP_LTZ": _Field.moment,
    "DATE": lambda field, bits: field.moment(bits) // 86_400_000_000,
}
