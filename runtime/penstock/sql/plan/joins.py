"""Join nodes of a compiled plan, and their readers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.sql.plan.nodes import Column, Node, expression, refusal
from penstock.sql.plan.rex import Rex
from penstock.sql.plan.source import Reader, Source, ttls_ms

OUTER = {"INNER": (False, False), "LEFT": (True, False), "RIGHT": (False, True), "FULL": (True, True)}
"""Types of joins, with whether the left and the right side keep rows without a partner."""
_TYPES = (*OUTER, "SEMI", "ANTI")


@dataclass(frozen=True)
class JoinSpec:
    """The keys and the condition of a join.

    Args:
        kind: `INNER`, `LEFT`, `RIGHT`, `FULL`, `SEMI` or `ANTI`.
        filter_nulls: for each key, whether NULL has no partner. It is false for `IS NOT DISTINCT FROM`.
        condition: the condition beyond the keys, over the left row followed by the right row.
    """

    kind: str
    keys: tuple[tuple[int, ...], tuple[int, ...]]
    filter_nulls: tuple[bool, ...]
    condition: Rex | None
    columns: tuple[tuple[Column, ...], tuple[Column, ...]]

    @property
    def outer(self) -> tuple[bool, bool]:
        return OUTER[self.kind]


@dataclass(frozen=True)
class RegularJoin(Node):
    """A join whose sides keep their rows. `upsert_keys`: for each side, the sets of columns that identify a row."""

    spec: JoinSpec
    upsert_keys: tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]
    ttls_ms: tuple[int, int]


@dataclass(frozen=True)
class IntervalJoin(Node):
    """A join of rows whose times differ by at least `lower_ms` and at most `upper_ms` (left time minus right time).

    `times`: the time columns of both sides. It is None for processing time.
    """

    spec: JoinSpec
    lower_ms: int
    upper_ms: int
    times: tuple[int, int] | None


@dataclass(frozen=True)
class TemporalJoin(Node):
    """A join of left rows with the version of the right row that was valid at the time of the left row."""

    spec: JoinSpec
    times: tuple[int, int]
    ttl_ms: int


def spec_of(raw: dict[str, Any], source: Source) -> JoinSpec:
    kind = raw["joinType"]
    if kind not in _TYPES:
        raise refusal(f"the join {kind} is not supported", f"use one of {', '.join(_TYPES)}")
    left, right = source.inputs
    keys = (tuple(raw["leftKeys"]), tuple(raw["rightKeys"]))
    return JoinSpec(kind, keys, tuple(raw["filterNulls"]), expression(raw["nonEquiCondition"]), (left, right))


def _keys(raw: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(key) for key in raw or ())


def _join(source: Source, base: dict[str, Any]) -> Node:
    raw = source.raw
    left, right = ttls_ms(raw) or (0, 0)
    keys = (_keys(raw.get("leftUpsertKeys")), _keys(raw.get("rightUpsertKeys")))
    return RegularJoin(**base, spec=spec_of(raw["joinSpec"], source), upsert_keys=keys, ttls_ms=(left, right))


def _interval_join(source: Source, base: dict[str, Any]) -> Node:
    raw = source.raw["intervalJoinSpec"]
    bounds, spec = raw["windowBounds"], spec_of(raw["joinSpec"], source)
    if spec.kind not in OUTER:
        raise refusal(f"the interval join {spec.kind} is not supported", "use an inner or an outer join")
    times = (bounds["leftTimeIndex"], bounds["rightTimeIndex"]) if bounds["isEventTime"] else None
    return IntervalJoin(
        **base, spec=spec, lower_ms=bounds["leftLowerBound"], upper_ms=bounds["leftUpperBound"], times=times
    )


def _temporal_join(source: Source, base: dict[str, Any]) -> Node:
    raw, spec = source.raw, spec_of(source.raw["joinSpec"], source)
    times = (raw["leftTimeAttributeIndex"], raw["rightTimeAttributeIndex"])
    if raw["isTemporalFunctionJoin"] or min(times) < 0:
        raise refusal(
            "a temporal join in processing time is not supported",
            "use FOR SYSTEM_TIME AS OF with the event time of the left table, or a lookup join",
        )
    return TemporalJoin(**base, spec=spec, times=times, ttl_ms=source.ttl_ms)


READERS = {
    "join": Reader(_join),
    "interval-join": Reader(_interval_join),
    "temporal-join": Reader(_temporal_join),
}
