"""The conversion of values into JSON types, which a checkpoint's manifest can store without change."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from penstock.common.errors import SinkError

_LEAST, _MOST = -(1 << 63), (1 << 64) - 1


def json_able(value: Any, description: str) -> Any:
    """Return the value in JSON's types. A manifest that stores the result contains an equal value when it is read
    again.

    Tuples become lists, and numpy's scalars become Python's.

    Args:
        description: how the error names the value.

    Raises:
        SinkError: a part of the value has no JSON type, so it would be read back as another value.

    >>> json_able({"id": np.int64(7), "parts": (1, 2)}, "a handle")
    {'id': 7, 'parts': [1, 2]}
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool) or type(value) is str:
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int) and _LEAST <= value <= _MOST:
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if isinstance(value, list | tuple):
        return [json_able(each, description) for each in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {str(key): json_able(each, description) for key, each in value.items()}
    shown = repr(value)
    raise SinkError(
        f"{description} has {shown if len(shown) <= 200 else shown[:200] + '…'} of type {type(value).__name__}, which a checkpoint cannot store unchanged",
        remedy="use text, numbers of 64 bits, True, False, None, and lists and dicts of these with text as keys. Convert bytes with hex() and times with isoformat()",
    )
