"""The streams of nodes that change, sort or multiply rows."""

from __future__ import annotations

from penstock.sql.operators.calc import ExpandFunction
from penstock.sql.operators.changes import ChangelogNormalizeFunction, is_no_update_before
from penstock.sql.operators.sorting import TemporalSortFunction
from penstock.sql.plan.changes import ChangelogNormalize, DropUpdateBefore, TemporalSort
from penstock.sql.plan.groups import Expand
from penstock.sql.plan.nodes import Node, refusal
from penstock.sql.streams import Inputs, SqlStream, Translate


def _expand(inputs: Inputs, node: Expand, uid: str) -> SqlStream:
    (upstream,) = inputs.streams
    function = ExpandFunction(node.projections, inputs.zone, changelog=upstream.changelog)
    return SqlStream(upstream.stream.flat_map(function).name("Expand").uid(uid), upstream.changelog)


def _normalize(inputs: Inputs, node: ChangelogNormalize, uid: str) -> SqlStream:
    function = ChangelogNormalizeFunction(node, inputs.zone, changelog=inputs.changelog)
    return SqlStream(inputs.process(node.keys, function, "ChangelogNormalize", uid), changelog=True)


def _drop(inputs: Inputs, node: DropUpdateBefore, uid: str) -> SqlStream:
    (upstream,) = inputs.streams
    if not upstream.changelog:
        return upstream
    return SqlStream(upstream.stream.filter(is_no_update_before).name("DropUpdateBefore").uid(uid), changelog=True)


def _sort(inputs: Inputs, node: TemporalSort, uid: str) -> SqlStream:
    if inputs.changelog:
        raise refusal("ORDER BY a time of a table with updates is not supported", "sort an insert-only table")
    return SqlStream(inputs.process((), TemporalSortFunction(node), "TemporalSort", uid), changelog=False)


TRANSLATIONS: dict[type[Node], Translate] = {
    Expand: _expand,
    ChangelogNormalize: _normalize,
    DropUpdateBefore: _drop,
    TemporalSort: _sort,
}
