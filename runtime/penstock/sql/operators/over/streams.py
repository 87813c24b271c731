"""The stream of an OVER aggregate."""

from __future__ import annotations

from penstock.sql.operators.over.base import OverFunction
from penstock.sql.operators.over.event_time import RangeOverFunction, RowsOverFunction, UnboundedOverFunction
from penstock.sql.operators.over.processing_time import ArrivedOverFunction, ArrivedRangeOverFunction
from penstock.sql.plan.nodes import Node, refusal
from penstock.sql.plan.over import OverAggregate
from penstock.sql.streams import Inputs, SqlStream, Translate


def _function(node: OverAggregate) -> OverFunction:
    is_range = not node.is_rows and node.preceding is not None
    if node.time_index is None:
        return ArrivedRangeOverFunction(node) if is_range else ArrivedOverFunction(node)
    if node.preceding is None:
        return UnboundedOverFunction(node)
    return RangeOverFunction(node) if is_range else RowsOverFunction(node)


def _over(inputs: Inputs, node: OverAggregate, uid: str) -> SqlStream:
    if inputs.changelog:
        raise refusal("an OVER aggregate of a table with updates is not supported", "use an insert-only table")
    return SqlStream(inputs.process(node.partition, _function(node), "OverAggregate", uid), changelog=False)


TRANSLATIONS: dict[type[Node], Translate] = {OverAggregate: _over}
