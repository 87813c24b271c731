"""The JSON functions of SQL: values at paths such as `$.a[0].b`, tests, and construction."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

_STEP = re.compile(r"\.(\w+)|\.\"([^\"]+)\"|\[(\d+)\]|\['([^']+)'\]|\.?\[?(\*)\]?")
_MODE = re.compile(r"^\s*(lax|strict)\s+", re.IGNORECASE)
MISSING = object()
"""A path without a value."""


@lru_cache(maxsize=1000)
def _steps(path: str) -> tuple[str | int, ...]:
    """Return the names and positions of a path. `*` is an error, because functions of single values do not have it."""
    text = _MODE.sub("", path).strip()
    if not text.startswith("$"):
        raise ValueError(f"the JSON path {path!r} does not start with $")
    steps: list[str | int] = []
    at = 1
    while at < len(text):
        found = _STEP.match(text, at)
        if found is None or found[5]:
            raise ValueError(f"the JSON path {path!r} is not supported: use names and positions, such as $.a[0].b")
        steps.append(int(found[3]) if found[3] else found[1] or found[2] or found[4])
        at = found.end()
    return tuple(steps)


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refused)
"""A decoder without NaN and Infinity, which JSON does not have."""


def _parsed(text: str) -> Any:
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError):  # RecursionError: the text is nested too deeply
        return MISSING


def at(text: str, path: str) -> Any:
    """Return the value at a path, or MISSING."""
    found = _parsed(text)
    for step in _steps(path):
        if isinstance(step, int):
            if not isinstance(found, list) or step >= len(found):
                return MISSING
            found = found[step]
        elif isinstance(found, dict) and step in found:
            found = found[step]
        else:
            return MISSING
    return found


def value(text: str, path: str) -> str | None:
    """Return the scalar value at a path as text. Objects and arrays give None.

    >>> value('{"a": [true, 1.5]}', "$.a[1]"), value('{"a": 1}', "$.b")
    ('1.5', None)
    """
    found = at(text, path)
    if found is MISSING or found is None or isinstance(found, dict | list):
        return None
    return found if isinstance(found, str) else json.dumps(found)


def query(text: str, path: str) -> str | None:
    """Return the object or array at a path as JSON. Scalars give None."""
    found = at(text, path)
    return json.dumps(found, separators=(",", ":"), ensure_ascii=False) if isinstance(found, dict | list) else None


def exists(text: str, path: str) -> bool:
    return at(text, path) is not MISSING


def is_json(text: str | None) -> bool:
    return text is not None and _parsed(text) is not MISSING


def is_object(text: str | None) -> bool:
    return text is not None and isinstance(_parsed(text), dict)


def is_array(text: str | None) -> bool:
    return text is not None and isinstance(_parsed(text), list)


def is_scalar(text: str | None) -> bool:
    return is_json(text) and not is_object(text) and not is_array(text)
