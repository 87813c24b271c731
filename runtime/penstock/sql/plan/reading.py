"""Readers of the nodes of a compiled plan, one for each type of node."""

from __future__ import annotations

import json
from typing import Any

from penstock.sql.plan import joins
from penstock.sql.plan.identity import identity_of
from penstock.sql.plan.nodes import (
    Calc,
    Column,
    Correlate,
    Deduplicate,
    Exchange,
    GroupAggregate,
    Node,
    Plan,
    Rank,
    Scan,
    Sink,
    TableInfo,
    Union,
    Values,
    WatermarkAssigner,
    WindowAggregate,
    WindowSpec,
    expression,
    refusal,
)
from penstock.sql.plan.rex import rex_of
from penstock.sql.plan.source import Reader, Source, calls_of, duration_ms, order_of, ttl_ms
from penstock.sql.plan.types import type_of


def _table(raw: dict[str, Any]) -> TableInfo:
    table = raw["table"]
    if "options" not in table.get("resolvedTable", {}):
        raise refusal(
            f"the plan does not contain the options of the table {table['identifier']}",
            "compile the plan with 'table.plan.compile.catalog-objects' = 'ALL'",
        )
    if raw.get("abilities"):
        names = ", ".join(ability["type"] for ability in raw["abilities"])
        raise refusal(f"the table {table['identifier']} uses {names}", "remove partitions and metadata columns")
    resolved = table["resolvedTable"]
    columns = []
    for column in resolved["schema"]["columns"]:
        kind = column.get("kind", "PHYSICAL")
        if kind == "METADATA":
            raise refusal(
                f"the metadata column {column['name']} of {table['identifier']} is not supported",
                "leave the column out of the CREATE TABLE",
            )
        if kind == "PHYSICAL":
            columns.append(Column(column["name"], type_of(column["dataType"])))
    key = resolved["schema"].get("primaryKey", {}).get("columns", ())
    return TableInfo(table["identifier"].replace("`", ""), tuple(columns), resolved["options"], tuple(key))


def _no_mini_batch(raw: dict[str, Any]) -> None:
    if raw.get("configuration", {}).get("table.exec.mini-batch.enabled") == "true":
        raise refusal("mini-batch is not supported", "SET 'table.exec.mini-batch.enabled' = 'false'")


def _scan(source: Source, base: dict[str, Any]) -> Node:
    return Scan(**base, table=_table(source.raw["scanTableSource"]))


def _values(source: Source, base: dict[str, Any]) -> Node:
    return Values(**base, rows=tuple(tuple(map(rex_of, row)) for row in source.raw["tuples"]))


def _watermark(source: Source, base: dict[str, Any]) -> Node:
    raw = source.raw
    return WatermarkAssigner(**base, expression=rex_of(raw["watermarkExpr"]), rowtime=raw["rowtimeFieldIndex"])


def _calc(source: Source, base: dict[str, Any]) -> Node:
    projection = tuple(map(rex_of, source.raw["projection"]))
    return Calc(**base, projection=projection, condition=expression(source.raw.get("condition")))


def _correlate(source: Source, base: dict[str, Any]) -> Node:
    raw = source.raw
    if raw["joinType"] not in ("INNER", "LEFT"):
        raise refusal(f"the correlation {raw['joinType']} is not supported", "use CROSS JOIN or LEFT JOIN … ON TRUE")
    return Correlate(
        **base,
        call=rex_of(raw["functionCall"]),
        condition=expression(raw.get("condition")),
        is_left=raw["joinType"] == "LEFT",
        left_columns=len(source.inputs[0]),
    )


def _exchange(source: Source, base: dict[str, Any]) -> Node:
    (properties,) = source.raw["inputProperties"]
    distribution = properties["requiredDistribution"]
    if distribution["type"] not in ("HASH", "SINGLETON"):
        raise refusal(f"the exchange {distribution['type']} is not supported", "use a query without this exchange")
    return Exchange(**base, keys=tuple(distribution.get("keys", ())))


def _union(source: Source, base: dict[str, Any]) -> Node:
    return Union(**base)


def _group(source: Source, base: dict[str, Any]) -> Node:
    raw = source.raw
    _no_mini_batch(raw)
    return GroupAggregate(
        **base,
        grouping=tuple(raw["grouping"]),
        calls=calls_of(raw["aggCalls"], source.inputs[0]),
        generate_update_before=raw["generateUpdateBefore"],
        ttl_ms=ttl_ms(raw),
    )


def _window(source: Source, base: dict[str, Any]) -> Node:
    raw, windowing = source.raw, source.raw["windowing"]
    window, strategy = windowing["window"], windowing["strategy"]
    kinds = {"TumblingWindow": "tumble", "HoppingWindow": "hop", "CumulativeWindow": "cumulate"}
    if window["type"] not in kinds or strategy != "TimeAttribute" or not windowing["isRowtime"]:
        kind = f"{window['type']} with {strategy}{'' if windowing['isRowtime'] else ' in processing time'}"
        raise refusal(f"the window {kind} is not supported", "use TUMBLE, HOP or CUMULATE on an event-time column")
    if raw["needRetraction"]:
        raise refusal("a window aggregate over updates is not supported", "aggregate an insert-only table")
    size = duration_ms(window.get("size") or window["maxSize"])
    step = duration_ms(window.get("slide") or window.get("step") or window["size"])
    offset = window.get("offset")
    zone = raw.get("configuration", {}).get("table.local-time-zone", "default")
    is_local = type_of(windowing["timeAttributeType"]).name == "TIMESTAMP_LTZ"
    spec = WindowSpec(
        kinds[window["type"]],
        size,
        step,
        0 if offset is None else duration_ms(offset),
        windowing["timeAttributeIndex"],
        (source.zone if zone == "default" else zone) if is_local else None,
    )
    properties = tuple(found["property"]["kind"] for found in raw["namedWindowProperties"])
    unknown = set(properties) - {"WindowStart", "WindowEnd", "Rowtime"}
    if unknown:
        raise refusal(f"the window column {unknown.pop()} is not supported", "select window_start and window_end")
    return WindowAggregate(
        **base,
        grouping=tuple(raw["grouping"]),
        calls=calls_of(raw["aggCalls"], source.inputs[0]),
        window=spec,
        properties=properties,
    )


def _rank(source: Source, base: dict[str, Any]) -> Node:
    raw = source.raw
    if raw["rankType"] != "ROW_NUMBER" or raw["rankRange"]["type"] != "Constant":
        raise refusal(f"the rank {raw['rankType']} is not supported", "use ROW_NUMBER() with constant limits")
    strategy = raw["rankStrategy"]
    return Rank(
        **base,
        unique_key=tuple(strategy.get("primaryKeys", ())) if strategy["type"] == "UpdateFast" else (),
        partition=tuple(raw["partition"]["fields"]),
        order=order_of(raw["orderBy"]),
        first=raw["rankRange"]["start"],
        last=raw["rankRange"]["end"],
        output_row_number=raw["outputRowNumber"],
        generate_update_before=raw["generateUpdateBefore"],
        ttl_ms=ttl_ms(raw),
    )


def _deduplicate(source: Source, base: dict[str, Any]) -> Node:
    raw = source.raw
    _no_mini_batch(raw)
    rowtime = None
    if raw["isRowtime"]:
        (rowtime,) = (
            index for index, field in enumerate(raw["outputType"]["fields"]) if _is_rowtime(field["fieldType"])
        )
    return Deduplicate(
        **base,
        keys=tuple(raw["uniqueKeys"]),
        rowtime=rowtime,
        keep_last=raw["keepLastRow"],
        insert_only=raw.get("outputInsertOnly", False),
        generate_update_before=raw["generateUpdateBefore"],
        ttl_ms=ttl_ms(raw),
    )


def _is_rowtime(field: Any) -> bool:
    return isinstance(field, dict) and field.get("kind") == "ROWTIME"


def _sink(source: Source, base: dict[str, Any]) -> Node:
    raw = source.raw
    if raw.get("requireUpsertMaterialize"):
        raise refusal(
            "the sink needs Flink's upsert materializer, because its primary key is not the key of the query",
            "declare the query's key as the primary key of the table, or write to a table without a primary key",
        )
    return Sink(**base, table=_table(raw["dynamicTableSink"]))


READERS = {
    "table-source-scan": Reader(_scan, ("1", "2")),
    "values": Reader(_values, ("1",)),
    "watermark-assigner": Reader(_watermark, ("1",)),
    "calc": Reader(_calc, ("1",)),
    "correlate": Reader(_correlate, ("1",)),
    "exchange": Reader(_exchange, ("1",)),
    "union": Reader(_union, ("1",)),
    "group-aggregate": Reader(_group, ("1",)),
    "window-aggregate": Reader(_window, ("1",)),
    "rank": Reader(_rank, ("1",)),
    "deduplicate": Reader(_deduplicate, ("1",)),
    "sink": Reader(_sink, ("1", "2")),
    **joins.READERS,
}
"""The nodes that Penstock runs, without the prefix `stream-exec-`, and the versions of each."""


def read_plan(text: str, zone: str = "UTC") -> Plan:
    """Return the plan that Flink's planner compiled.

    Args:
        text: JSON of a compiled plan.
        zone: time zone of TIMESTAMP_LTZ columns, if the plan names none.

    Raises:
        InvalidJob: the plan contains a node, a type or a function that Penstock does not have. The error names it.
    """
    try:
        return _plan_of(json.loads(text), zone)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise refusal(
            f"this is not a compiled plan that Penstock can read ({type(error).__name__}: {error})",
            "compile the statement again with COMPILE PLAN",
        ) from error


def _plan_of(found: dict[str, Any], zone: str) -> Plan:
    inputs: dict[int, list[int]] = {node["id"]: [] for node in found["nodes"]}
    for edge in found["edges"]:
        inputs[edge["target"]].append(edge["source"])
    outputs: dict[int, tuple[Column, ...]] = {}
    nodes, identities = [], []
    for raw in found["nodes"]:
        name, _, version = raw["type"].rpartition("_")
        short = name.removeprefix("stream-exec-")
        if short not in READERS or version not in READERS[short].versions:
            raise refusal(
                f"Penstock does not support the node {raw['type']} of the plan: {raw.get('description', '')[:200]}",
                "rewrite the query with the operations that docs/sql.md lists, or use the DataStream API for this step",
            )
        output = tuple(Column(name, type) for name, type in type_of(raw["outputType"]).fields)
        of = tuple(outputs[id] for id in inputs[raw["id"]])
        base: dict[str, Any] = {
            "id": raw["id"],
            "inputs": tuple(inputs[raw["id"]]),
            "output": output,
            "description": raw.get("description", ""),
        }
        nodes.append(READERS[short].read(Source(raw, of, zone), base))
        identities.append(identity_of(raw, [[column.type for column in columns] for columns in of]))
        outputs[raw["id"]] = output
    return Plan(tuple(nodes), found["flinkVersion"], tuple(identities))
