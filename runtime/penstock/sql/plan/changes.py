"""Nodes that change the kinds of rows, and nodes that sort or limit rows. Their readers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.sql.plan.nodes import Node, SortField, expression
from penstock.sql.plan.rex import Rex
from penstock.sql.plan.source import Reader, Source, order_of, ttl_ms


@dataclass(frozen=True)
class ChangelogNormalize(Node):
    """A table of upserts as a table whose changes have the former row. `condition`: rows for which it is not true do not exist."""

    keys: tuple[int, ...]
    condition: Rex | None
    generate_update_before: bool
    ttl_ms: int


@dataclass(frozen=True)
class DropUpdateBefore(Node):
    """The changes without the former rows of updates."""


@dataclass(frozen=True)
class TemporalSort(Node):
    """The rows in the order of a time attribute, and then of other columns. `time_index`: as in `OverAggregate`."""

    order: tuple[SortField, ...]
    time_index: int | None


def _normalize(source: Source, base: dict[str, Any]) -> Node:
    raw = source.raw
    return ChangelogNormalize(
        **base,
        keys=tuple(raw["uniqueKeys"]),
        condition=expression(raw.get("filterCondition")),
        generate_update_before=raw["generateUpdateBefore"],
        ttl_ms=ttl_ms(raw),
    )


def _drop(source: Source, base: dict[str, Any]) -> Node:
    return DropUpdateBefore(**base)


def _sort(source: Source, base: dict[str, Any]) -> Node:
    first, *rest = order_of(source.raw["orderBy"])
    is_rowtime = source.inputs[0][first.index].time == "ROWTIME"
    return TemporalSort(**base, order=tuple(rest), time_index=first.index if is_rowtime else None)


READERS = {
    "changelog-normalize": Reader(_normalize),
    "drop-update-before": Reader(_drop),
    "temporal-sort": Reader(_sort),
}
