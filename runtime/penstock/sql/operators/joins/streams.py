"""The streams of join nodes."""

from __future__ import annotations

from penstock.sql.operators.joins.interval import IntervalJoinFunction
from penstock.sql.operators.joins.regular import RegularJoinFunction, SemiJoinFunction
from penstock.sql.operators.joins.temporal import TemporalJoinFunction
from penstock.sql.plan import joins
from penstock.sql.plan.nodes import Node, refusal
from penstock.sql.streams import Inputs, SqlStream, Translate


def _changelogs(inputs: Inputs) -> tuple[bool, bool]:
    left, right = inputs.streams
    return left.changelog, right.changelog


def _regular(inputs: Inputs, node: joins.RegularJoin, uid: str) -> SqlStream:
    cls = RegularJoinFunction if node.spec.kind in joins.OUTER else SemiJoinFunction
    function = cls(node, inputs.zone, _changelogs(inputs))
    return SqlStream(inputs.join(node.spec.keys, function, "Join", uid), function.is_changelog)


def _interval(inputs: Inputs, node: joins.IntervalJoin, uid: str) -> SqlStream:
    if inputs.changelog:
        raise refusal("an interval join of a table with updates is not supported", "join insert-only tables")
    function = IntervalJoinFunction(node, inputs.zone)
    return SqlStream(inputs.join(node.spec.keys, function, "IntervalJoin", uid), changelog=False)


def _temporal(inputs: Inputs, node: joins.TemporalJoin, uid: str) -> SqlStream:
    function = TemporalJoinFunction(node, inputs.zone, _changelogs(inputs))
    return SqlStream(inputs.join(node.spec.keys, function, "TemporalJoin", uid), inputs.streams[0].changelog)


TRANSLATIONS: dict[type[Node], Translate] = {
    joins.RegularJoin: _regular,
    joins.IntervalJoin: _interval,
    joins.TemporalJoin: _temporal,
}
