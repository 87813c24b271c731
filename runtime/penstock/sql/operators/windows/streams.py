"""The streams of window nodes."""

from __future__ import annotations

from typing import Any

from penstock.sql.operators.windows.aggregate import WindowAggregateFunction
from penstock.sql.operators.windows.join import WindowJoinFunction
from penstock.sql.operators.windows.ranks import WindowDeduplicateFunction, WindowRankFunction
from penstock.sql.operators.windows.sessions import SessionAggregateFunction, SessionRowsFunction
from penstock.sql.operators.windows.table_function import WindowRowsFunction
from penstock.sql.plan import windows
from penstock.sql.plan.nodes import Node, refusal
from penstock.sql.streams import Inputs, SqlStream, Translate


def _insert_only(inputs: Inputs, what: str) -> None:
    if inputs.changelog:
        raise refusal(f"a {what} over updates is not supported", "use an insert-only table")


def _aggregate(inputs: Inputs, node: windows.WindowAggregate, uid: str) -> SqlStream:
    grows = node.window.kind == "session" and node.window.end_index is None
    cls = SessionAggregateFunction if grows else WindowAggregateFunction
    function = cls(node, inputs.columns[0], changelog=inputs.changelog)
    return SqlStream(inputs.process(node.grouping, function, "WindowAggregate", uid), changelog=False)


def _table_function(inputs: Inputs, node: windows.WindowTableFunction, uid: str) -> SqlStream:
    _insert_only(inputs, "window table function")
    if node.window.kind == "session":
        function: Any = SessionRowsFunction(node)
        return SqlStream(inputs.process(node.window.partition, function, "WindowTableFunction", uid), changelog=False)
    stream = inputs.streams[0].stream.process(WindowRowsFunction(node)).name("WindowTableFunction").uid(uid)
    return SqlStream(stream, changelog=False)


def _join(inputs: Inputs, node: windows.WindowJoin, uid: str) -> SqlStream:
    _insert_only(inputs, "window join")
    function = WindowJoinFunction(node, inputs.zone)
    return SqlStream(inputs.join(node.spec.keys, function, "WindowJoin", uid), changelog=False)


def _rank(inputs: Inputs, node: windows.WindowRank, uid: str) -> SqlStream:
    _insert_only(inputs, "window top-N")
    return SqlStream(inputs.process(node.partition, WindowRankFunction(node), "WindowRank", uid), changelog=False)


def _deduplicate(inputs: Inputs, node: windows.WindowDeduplicate, uid: str) -> SqlStream:
    _insert_only(inputs, "window deduplication")
    function = WindowDeduplicateFunction(node)
    return SqlStream(inputs.process(node.partition, function, "WindowDeduplicate", uid), changelog=False)


TRANSLATIONS: dict[type[Node], Translate] = {
    windows.WindowAggregate: _aggregate,
    windows.WindowTableFunction: _table_function,
    windows.WindowJoin: _join,
    windows.WindowRank: _rank,
    windows.WindowDeduplicate: _deduplicate,
}
