"""Window nodes of a compiled plan, and their readers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.sql.plan.joins import JoinSpec, spec_of
from penstock.sql.plan.nodes import AggregateCall, Node, SortField, refusal
from penstock.sql.plan.source import Reader, Source, calls_of, duration_ms, order_of
from penstock.sql.plan.types import type_of

_KINDS = {
    "TumblingWindow": "tumble",
    "HoppingWindow": "hop",
    "CumulativeWindow": "cumulate",
    "SessionWindow": "session",
    "TUMBLING": "tumble",
    "SLIDING": "hop",
    "SESSION": "session",
}
_PROPERTIES = ("WindowStart", "WindowEnd", "Rowtime", "Proctime")


@dataclass(frozen=True)
class WindowSpec:
    """The windows of rows. Times are in ms.

    Args:
        kind: `tumble`, `hop`, `cumulate` or `session`.
        size_ms: length of a window, or the gap between two sessions.
        time_index: column of the event time.
        zone: time zone of a TIMESTAMP_LTZ time, or None.
        end_index: column with the end of the row's window. None means that `time_index` tells the windows.
        start_index: column with the start, together with `end_index`.
        partition: for sessions, the columns that separate the sessions.
    """

    kind: str
    size_ms: int
    step_ms: int
    offset_ms: int = 0
    time_index: int = -1
    zone: str | None = None
    is_rowtime: bool = True
    start_index: int | None = None
    end_index: int | None = None
    partition: tuple[int, ...] = ()


@dataclass(frozen=True)
class WindowAggregate(Node):
    grouping: tuple[int, ...]
    calls: tuple[AggregateCall, ...]
    window: WindowSpec
    properties: tuple[str, ...]
    """Columns after the aggregates: `WindowStart`, `WindowEnd`, `Rowtime` or `Proctime`."""
    retracts: bool


@dataclass(frozen=True)
class LocalWindowAggregate(Node):
    """The first phase of an aggregate. Penstock aggregates in one phase, so `fused` replaces both nodes by one."""

    grouping: tuple[int, ...]
    calls: tuple[AggregateCall, ...]
    window: WindowSpec
    retracts: bool


@dataclass(frozen=True)
class GlobalWindowAggregate(Node):
    """The second phase of an aggregate."""

    properties: tuple[str, ...]


@dataclass(frozen=True)
class WindowTableFunction(Node):
    """The rows of the input, with the columns window_start, window_end and window_time."""

    window: WindowSpec


@dataclass(frozen=True)
class WindowJoin(Node):
    """A join of the rows of the same window. `windows`: the windows of both sides."""

    spec: JoinSpec
    windows: tuple[WindowSpec, WindowSpec]


@dataclass(frozen=True)
class WindowRank(Node):
    """The first rows of each window and partition."""

    partition: tuple[int, ...]
    order: tuple[SortField, ...]
    first: int
    last: int
    output_row_number: bool
    window: WindowSpec


@dataclass(frozen=True)
class WindowDeduplicate(Node):
    """The first or last row of each window and partition, by a column of time."""

    partition: tuple[int, ...]
    time_index: int
    keep_last: bool
    window: WindowSpec


def _zone(source: Source, time_type: Any) -> str | None:
    zone: str = source.raw.get("configuration", {}).get("table.local-time-zone", "default")
    is_local = type_of(time_type).name == "TIMESTAMP_LTZ"
    return (source.zone if zone == "default" else zone) if is_local else None


def window_of(raw: dict[str, Any], source: Source) -> WindowSpec:
    """Return the windows of a node, from its windowing strategy.

    Raises:
        InvalidJob: Penstock does not have the windows.
    """
    window = raw["window"]
    if window["type"] not in _KINDS:
        raise refusal(f"the window {window['type']} is not supported", "use TUMBLE, HOP, CUMULATE or SESSION")
    size = duration_ms(window.get("size") or window.get("maxSize") or window.get("gap"))
    step = window.get("slide") or window.get("step")
    offset = window.get("offset")
    return WindowSpec(
        _KINDS[window["type"]],
        size,
        duration_ms(step) if step else size,
        0 if offset is None else duration_ms(offset),
        raw.get("timeAttributeIndex", -1),
        _zone(source, raw["timeAttributeType"]),
        raw["isRowtime"],
        raw.get("windowStart"),
        raw.get("windowEnd"),
        tuple(window.get("partition_key_indices", ())),
    )


def _properties(source: Source) -> tuple[str, ...]:
    found = tuple(entry["property"]["kind"] for entry in source.raw["namedWindowProperties"])
    unknown = set(found) - set(_PROPERTIES)
    if unknown:
        raise refusal(f"the window column {unknown.pop()} is not supported", "select window_start and window_end")
    return found


def _aggregate(source: Source, base: dict[str, Any]) -> Node:
    raw = source.raw
    return WindowAggregate(
        **base,
        grouping=tuple(raw["grouping"]),
        calls=calls_of(raw["aggCalls"], source.inputs[0]),
        window=window_of(raw["windowing"], source),
        properties=_properties(source),
        retracts=raw["needRetraction"],
    )


def _local(source: Source, base: dict[str, Any]) -> Node:
    raw = source.raw
    return LocalWindowAggregate(
        **base,
        grouping=tuple(raw["grouping"]),
        calls=calls_of(raw["aggCalls"], source.inputs[0]),
        window=window_of(raw["windowing"], source),
        retracts=raw["needRetraction"],
    )


def _global(source: Source, base: dict[str, Any]) -> Node:
    return GlobalWindowAggregate(**base, properties=_properties(source))


def _group_window(source: Source, base: dict[str, Any]) -> Node:
    """Read an aggregate of the older syntax, `GROUP BY TUMBLE(ts, …)`."""
    raw, window = source.raw, source.raw["window"]
    if window["kind"] not in _KINDS or not window.get("isTimeWindow", True):
        raise refusal(f"the window {window['kind']} of rows is not supported", "use windows of time")
    field = window["timeField"]["fieldType"]
    size = duration_ms(window.get("size") or window.get("gap"))
    spec = WindowSpec(
        _KINDS[window["kind"]],
        size,
        duration_ms(window["slide"]) if window.get("slide") else size,
        time_index=window["timeField"]["fieldIndex"],
        zone=_zone(source, field),
        is_rowtime=isinstance(field, dict) and field.get("kind") == "ROWTIME",
    )
    return WindowAggregate(
        **base,
        grouping=tuple(raw["grouping"]),
        calls=calls_of(raw["aggCalls"], source.inputs[0]),
        window=spec,
        properties=_properties(source),
        retracts=raw["needRetraction"],
    )


def _table_function(source: Source, base: dict[str, Any]) -> Node:
    return WindowTableFunction(**base, window=window_of(source.raw["windowing"], source))


def _join(source: Source, base: dict[str, Any]) -> Node:
    raw = source.raw
    windows = (window_of(raw["leftWindowing"], source), window_of(raw["rightWindowing"], source))
    _check_attached(windows[0], "join")
    return WindowJoin(**base, spec=spec_of(raw["joinSpec"], source), windows=windows)


def _check_attached(window: WindowSpec, what: str) -> None:
    if window.end_index is None or not window.is_rowtime:
        raise refusal(
            f"a window {what} without the column window_end, or in processing time, is not supported",
            "use a window table function on an event-time column",
        )


def _rank(source: Source, base: dict[str, Any]) -> Node:
    raw, window = source.raw, window_of(source.raw["windowing"], source)
    if raw["rankType"] != "ROW_NUMBER" or raw["rankRange"]["type"] != "Constant":
        raise refusal(f"the rank {raw['rankType']} is not supported", "use ROW_NUMBER() with constant limits")
    return WindowRank(
        **base,
        partition=tuple(raw["partitionSpec"]["fields"]),
        order=order_of(raw["sortSpec"]),
        first=raw["rankRange"]["start"],
        last=raw["rankRange"]["end"],
        output_row_number=raw["outputRowNumber"],
        window=window,
    )


def _deduplicate(source: Source, base: dict[str, Any]) -> Node:
    raw, window = source.raw, window_of(source.raw["windowing"], source)
    return WindowDeduplicate(
        **base,
        partition=tuple(raw["partitionKeys"]),
        time_index=raw["orderKey"],
        keep_last=raw["keepLastRow"],
        window=window,
    )


READERS = {
    "window-aggregate": Reader(_aggregate),
    "local-window-aggregate": Reader(_local),
    "global-window-aggregate": Reader(_global),
    "group-window-aggregate": Reader(_group_window),
    "window-table-function": Reader(_table_function),
    "window-join": Reader(_join),
    "window-rank": Reader(_rank),
    "window-deduplicate": Reader(_deduplicate),
}
