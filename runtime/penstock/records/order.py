"""The order of values in `min` and `max`, and the numbers with which aggregates calculate.

The order is total for floats, so a minimum or maximum does not depend on the order of arrival or on the boundaries of
batches. It is the order of Java's `Double.compare`, which Flink uses, and of Spark SQL for NaN:

* -0.0 is less than 0.0;
* NaN is greater than every other number. So `max` is NaN if any value is NaN, and `min` is NaN only if all values are.

If values are equal but have different types, such as 1 and 1.0, the first value is kept.
"""

from __future__ import annotations

from math import copysign
from typing import Any

import numpy as np

_PYTHON_NUMBERS = frozenset({int, float, bool, type(None)})


def lesser(kept: Any, value: Any) -> Any:
    """Return the minimum of two values. `kept` is None at first. If both values are equal, return `kept`.

    >>> nan = float("nan")
    >>> lesser(nan, 1.0), lesser(1.0, nan), lesser(0.0, -0.0), lesser(None, 5)
    (1.0, 1.0, -0.0, 5)
    """
    if kept is None or (kept != kept and value == value):
        return value
    if value != value or kept < value:
        return kept
    return value if value < kept or _sign(value) < _sign(kept) else kept


def greater(kept: Any, value: Any) -> Any:
    """Return the maximum of two values. `kept` is None at first. If both values are equal, return `kept`.

    >>> nan = float("nan")
    >>> greater(nan, 1.0), greater(1.0, nan), greater(-0.0, 0.0), greater(None, 5)
    (nan, nan, 0.0, 5)
    """
    if kept is None or (value != value and kept == kept):
        return value
    if kept != kept or value < kept:
        return kept
    return value if kept < value or _sign(kept) < _sign(value) else kept


def _sign(value: Any) -> float:
    """Return -1.0 for -0.0. The operator `<` distinguishes all other values."""
    return -1.0 if isinstance(value, float) and value == 0 and copysign(1.0, value) < 0 else 1.0


def python_numbers(values: list[Any]) -> list[Any]:
    """Return the values with each numpy number and numpy bool replaced by the equal Python number.

    numpy's integers overflow, and Python's do not. A sum of `float32` values has only 32 bits.

    >>> python_numbers([np.int8(100), 5, None])
    [100, 5, None]
    """
    if _PYTHON_NUMBERS.issuperset(map(type, values)):
        return values
    return list(map(python_number, values))


def python_number(value: Any) -> Any:
    """Return one value converted as in `python_numbers`."""
    is_number = isinstance(value, np.number | np.bool_) and not isinstance(value, np.timedelta64)
    return value.item() if is_number else value
