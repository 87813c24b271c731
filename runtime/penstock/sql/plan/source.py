"""Parts that the readers of all nodes share: durations, TTLs and aggregate calls."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.sql.plan.nodes import AggregateCall, Column, Node, SortField, refusal
from penstock.sql.plan.types import type_of
from penstock.sql.plan.user_functions import session_function

_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d+))?S)?)?$")
_UNITS = {"ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True)
class Source:
    """The JSON of a node, with the columns of its inputs."""

    raw: dict[str, Any]
    inputs: tuple[tuple[Column, ...], ...]
    zone: str
    ttl_ms: int = 0
    """TTL of the states of a node whose plan does not name its states."""


@dataclass(frozen=True)
class Reader:
    """A function from the JSON of a node to the node, and the versions of the node that it reads."""

    read: Callable[[Source, dict[str, Any]], Node]
    versions: tuple[str, ...] = ("1",)


def without_hints(description: str) -> str:
    """Return the description of a node without its hints. The hint OPTIONS shows options, also passwords.

    >>> without_hints("TableSourceScan(table=[[t]], hints=[[[OPTIONS options:{password=x}]]])")
    'TableSourceScan(table=[[t]], hints=[…])'
    """
    shown, found, _ = description.partition(", hints=[")
    return f"{shown}, hints=[…])" if found else shown


def duration_ms(text: str) -> int:
    """Return the milliseconds of an ISO duration such as `PT5S`.

    >>> duration_ms("PT5S"), duration_ms("PT1H30M"), duration_ms("PT0.5S")
    (5000, 5400000, 500)
    """
    found = _DURATION.match(text)
    if found is None:
        raise refusal(f"the duration {text} is not supported", "use days, hours, minutes, seconds or milliseconds")
    days, hours, minutes, seconds, fraction = found.groups()
    whole = ((int(days or 0) * 24 + int(hours or 0)) * 60 + int(minutes or 0)) * 60 + int(seconds or 0)
    return whole * 1000 + int((fraction or "0").ljust(3, "0")[:3])


def ttls_ms(raw: dict[str, Any]) -> tuple[int, ...]:
    """Return the TTL of each state of a node, in the order of the states. 0 means that the state never expires."""
    return tuple(_ttl_ms(state["ttl"]) for state in sorted(raw.get("state", ()), key=lambda state: int(state["index"])))


def _ttl_ms(text: str) -> int:
    number, _, unit = text.partition(" ")
    if unit not in _UNITS:
        raise refusal(f"the state TTL {text} is not supported", f"use the units {', '.join(_UNITS)}")
    return int(number) * _UNITS[unit]


def ttl_ms(raw: dict[str, Any]) -> int:
    """Return the TTL of a node whose states have the same TTL."""
    found = set(ttls_ms(raw))
    if len(found) > 1:
        raise refusal(f"the states of {raw['type']} have different TTLs: {sorted(found)} ms", "give one TTL")
    return found.pop() if found else 0


def calls_of(raw_calls: list[dict[str, Any]], columns: tuple[Column, ...]) -> tuple[AggregateCall, ...]:
    """Return the aggregate calls of a node over rows with these columns."""
    calls = []
    for raw in raw_calls:
        name = (raw.get("internalName") or raw.get("systemName") or raw.get("catalogName") or "?").strip("$")
        user = None if "internalName" in raw else session_function(name)
        name = name.split("$")[0]
        arguments = tuple(raw["argList"])
        types = tuple(columns[index].type for index in arguments)
        calls.append(
            AggregateCall(name, arguments, types, raw["filterArg"], raw["distinct"], type_of(raw["type"]), user)
        )
    return tuple(calls)


def order_of(raw: dict[str, Any]) -> tuple[SortField, ...]:
    return tuple(SortField(f["index"], f["isAscending"], f["nullIsLast"]) for f in raw["fields"])
