"""The position of a metric within its subtask, and its form as one string that can be a key of a snapshot."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

_SEPARATOR = "\x1f"
_PAIR = "\x1e"
_CONTROL = {ord(_SEPARATOR): "_", ord(_PAIR): "_"}


class MetricKey(NamedTuple):
    """The position of a metric within its subtask. `operator` is the operator's uid. It is empty for the task's own metrics.

    `groups`: the user scope. A pair with a value is a variable, and a pair with None is a plain group.
    """

    operator: str
    groups: tuple[tuple[str, str | None], ...]
    name: str


def encode_key(key: MetricKey) -> str:
    """Return the key as one string.

    >>> decode_key(encode_key(MetricKey("map", (("room", "kitchen"), ("MyMetrics", None)), "hits"))).groups
    (('room', 'kitchen'), ('MyMetrics', None))
    """
    groups = (_clean(name) if value is None else f"{_clean(name)}{_PAIR}{_clean(value)}" for name, value in key.groups)
    return _SEPARATOR.join((_clean(key.operator), *groups, _clean(key.name)))


@lru_cache(maxsize=65_536)
def decode_key(text: str) -> MetricKey:
    operator, *groups, name = text.split(_SEPARATOR)
    return MetricKey(operator, tuple(_group(part) for part in groups), name)


def _group(part: str) -> tuple[str, str | None]:
    name, separator, value = part.partition(_PAIR)
    return name, value if separator else None


def _clean(text: str) -> str:
    return text.translate(_CONTROL)
