"""Readers of the nodes of a compiled plan, one for each type of node."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from penstock.sql.plan import changes, groups, joins, matching, over, windows
from penstock.sql.plan.groups import PHASES, fused
from penstock.sql.plan.identity import identity_of
from penstock.sql.plan.nodes import (
    Calc,
    Column,
    Correlate,
    Deduplicate,
    Exchange,
    Node,
    Plan,
    Rank,
    Scan,
    Sink,
    TableInfo,
    Union,
    Values,
    WatermarkAssigner,
    expression,
    refusal,
)
from penstock.sql.plan.rex import rex_of
from penstock.sql.plan.source import Reader, Source, order_of, ttl_ms, without_hints
from penstock.sql.plan.types import type_of
from penstock.sql.plan.user_functions import UserFunction, functions_of_session


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
    rowtime = None
    if raw["isRowtime"]:
        (rowtime,) = (index for index, column in enumerate(base["output"]) if column.time == "ROWTIME")
    return Deduplicate(
        **base,
        keys=tuple(raw["uniqueKeys"]),
        rowtime=rowtime,
        keep_last=raw["keepLastRow"],
        insert_only=raw.get("outputInsertOnly", False),
        generate_update_before=raw["generateUpdateBefore"],
        ttl_ms=ttl_ms(raw),
    )


def _sink(source: Source, base: dict[str, Any]) -> Node:
    raw = source.raw
    materializes = raw.get("requireUpsertMaterialize", False)
    strategy = (raw.get("conflictStrategy") or {}).get("behavior", "DEDUPLICATE")
    if materializes and strategy != "DEDUPLICATE":
        raise refusal(f"ON CONFLICT DO {strategy} is not supported", "write ON CONFLICT DO DEDUPLICATE")
    return Sink(
        **base,
        table=_table(raw["dynamicTableSink"]),
        materializes=materializes,
        upsert_key=tuple(raw.get("inputUpsertKey") or ()),
        ttl_ms=ttl_ms(raw),
    )


READERS = {
    "table-source-scan": Reader(_scan, ("1", "2")),
    "values": Reader(_values, ("1",)),
    "watermark-assigner": Reader(_watermark, ("1",)),
    "calc": Reader(_calc, ("1",)),
    "correlate": Reader(_correlate, ("1",)),
    "exchange": Reader(_exchange, ("1",)),
    "union": Reader(_union, ("1",)),
    "rank": Reader(_rank, ("1",)),
    "deduplicate": Reader(_deduplicate, ("1",)),
    "sink": Reader(_sink, ("1", "2")),
    "limit": Reader(_rank),
    "sort-limit": Reader(_rank),
    **changes.READERS,
    **groups.READERS,
    **joins.READERS,
    **over.READERS,
    **windows.READERS,
    **matching.READERS,
}
"""The nodes that Penstock runs, without the prefix `stream-exec-`, and the versions of each."""


def read_plan(
    text: str, zone: str = "UTC", ttl_ms: int = 0, functions: Mapping[str, UserFunction] | None = None
) -> Plan:
    """Return the plan that Flink's planner compiled.

    Args:
        text: JSON of a compiled plan.
        zone: time zone of TIMESTAMP_LTZ columns, if the plan names none.
        ttl_ms: TTL of the states whose TTL is not a part of the plan.
        functions: functions of the program by their names in a plan.

    Raises:
        InvalidJob: the plan contains a node, a type or a function that Penstock does not have. The error names it.
    """
    try:
        with functions_of_session(functions or {}):
            return _plan_of(json.loads(text), zone, ttl_ms)
    except (LookupError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise refusal(
            f"this is not a compiled plan that Penstock can read ({type(error).__name__}: {error})",
            "compile the statement again with COMPILE PLAN",
        ) from error


def _columns(raw: Any) -> tuple[Column, ...]:
    times = [""] * len(raw) if isinstance(raw, str) else [_time(field["fieldType"]) for field in raw["fields"]]
    fields = type_of(raw).fields
    return tuple(Column(name, type, time) for (name, type), time in zip(fields, times[: len(fields)], strict=True))


def _time(field: Any) -> str:
    kind = field.get("kind", "") if isinstance(field, dict) else ""
    return kind if kind in ("ROWTIME", "PROCTIME") else ""


def _plan_of(found: dict[str, Any], zone: str, ttl_ms: int) -> Plan:
    inputs: dict[int, list[int]] = {node["id"]: [] for node in found["nodes"]}
    for edge in found["edges"]:
        inputs[edge["target"]].append(edge["source"])
    outputs: dict[int, tuple[Column, ...]] = {}
    partial: set[int] = set()
    nodes, identities = [], []
    for raw in found["nodes"]:
        name, _, version = raw["type"].rpartition("_")
        short = name.removeprefix("stream-exec-")
        if short not in READERS or version not in READERS[short].versions:
            raise refusal(
                f"Penstock does not support the node {raw['type']} of the plan: {without_hints(raw.get('description', ''))[:200]}",
                "rewrite the query with the operations that docs/sql.md lists, or use the DataStream API for this step",
            )
        if short in PHASES or (short == "exchange" and partial & set(inputs[raw["id"]])):
            partial.add(raw["id"])  # its columns are the accumulators of Flink
        output = () if raw["id"] in partial else _columns(raw["outputType"])
        of = tuple(outputs[id] for id in inputs[raw["id"]])
        base: dict[str, Any] = {
            "id": raw["id"],
            "inputs": tuple(inputs[raw["id"]]),
            "output": output,
            "description": without_hints(raw.get("description", "")),
        }
        nodes.append(READERS[short].read(Source(raw, of, zone, ttl_ms), base))
        identities.append(identity_of(raw, [[column.type for column in columns] for columns in of]))
        outputs[raw["id"]] = output
    kept, names = fused(nodes, identities)
    return Plan(kept, found["flinkVersion"], names)
