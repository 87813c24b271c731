"""Nodes of aggregates without windows, their readers, and the union of the phases of an aggregate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.sql.plan.nodes import AggregateCall, Column, Exchange, GroupAggregate, Node, Sink, refusal
from penstock.sql.plan.rex import Rex, rex_of
from penstock.sql.plan.source import Reader, Source, calls_of, ttl_ms
from penstock.sql.plan.types import type_of
from penstock.sql.plan.windows import GlobalWindowAggregate, LocalWindowAggregate, WindowAggregate


@dataclass(frozen=True)
class Expand(Node):
    """A row for each projection of a row, for GROUPING SETS."""

    projections: tuple[tuple[Rex, ...], ...]


@dataclass(frozen=True)
class LocalGroupAggregate(Node):
    """The first phase of an aggregate. `fused` replaces it."""

    grouping: tuple[int, ...]
    calls: tuple[AggregateCall, ...]


@dataclass(frozen=True)
class IncrementalGroupAggregate(Node):
    """The second of three phases of an aggregate over distinct values. `fused` replaces it."""

    grouping: tuple[int, ...]
    ttl_ms: int


@dataclass(frozen=True)
class GlobalGroupAggregate(Node):
    """The last phase of an aggregate. `fused` replaces it."""

    calls: tuple[AggregateCall, ...]
    generate_update_before: bool
    ttl_ms: int


def _group(source: Source, base: dict[str, Any]) -> Node:
    raw = source.raw
    return GroupAggregate(
        **base,
        grouping=tuple(raw["grouping"]),
        calls=calls_of(raw["aggCalls"], source.inputs[0]),
        generate_update_before=raw["generateUpdateBefore"],
        ttl_ms=ttl_ms(raw),
    )


def _local(source: Source, base: dict[str, Any]) -> Node:
    raw = source.raw
    return LocalGroupAggregate(
        **base, grouping=tuple(raw["grouping"]), calls=calls_of(raw["aggCalls"], source.inputs[0])
    )


def _incremental(source: Source, base: dict[str, Any]) -> Node:
    return IncrementalGroupAggregate(**base, grouping=tuple(source.raw["finalAggGrouping"]), ttl_ms=ttl_ms(source.raw))


def _global(source: Source, base: dict[str, Any]) -> Node:
    raw = source.raw
    columns = tuple(Column(name, type) for name, type in type_of(raw["localAggInputRowType"]).fields)
    return GlobalGroupAggregate(
        **base,
        calls=calls_of(raw["aggCalls"], columns),
        generate_update_before=raw["generateUpdateBefore"],
        ttl_ms=ttl_ms(raw),
    )


def _expand(source: Source, base: dict[str, Any]) -> Node:
    return Expand(**base, projections=tuple(tuple(map(rex_of, row)) for row in source.raw["projects"]))


def _mini_batch(source: Source, base: dict[str, Any]) -> Node:
    """Read a node that groups rows for mini-batches as an exchange, because Penstock emits the change of each row."""
    return Exchange(**base, keys=())


READERS = {
    "expand": Reader(_expand),
    "global-group-aggregate": Reader(_global),
    "group-aggregate": Reader(_group),
    "incremental-group-aggregate": Reader(_incremental),
    "local-group-aggregate": Reader(_local),
    "mini-batch-assigner": Reader(_mini_batch),
}
PHASES = ("incremental-group-aggregate", "local-group-aggregate", "local-window-aggregate")
"""The nodes whose results only a later phase can read."""


def fused(nodes: Sequence[Node], identities: Sequence[str]) -> tuple[tuple[Node, ...], tuple[str, ...]]:
    """Replace the phases of each aggregate by one aggregate, and drop the nodes that no sink needs any more.

    Return the nodes, and the identity of each of them.
    """
    found = {node.id: node for node in nodes}
    for node in nodes:
        fuse = _FUSIONS.get(type(node))
        if fuse is not None:
            found.update((new.id, new) for new in fuse(node, found))
    needed: set[int] = set()
    waiting = [node.id for node in nodes if isinstance(node, Sink)]
    while waiting:
        id = waiting.pop()
        if id not in needed:
            needed.add(id)
            waiting += found[id].inputs
    kept = [(found[node.id], identity) for node, identity in zip(nodes, identities, strict=True) if node.id in needed]
    return tuple(node for node, _ in kept), tuple(identity for _, identity in kept)


def _before(node: Node, found: dict[int, Node]) -> Node:
    """Return the node before a node and before its exchange."""
    before = found[node.inputs[0]]
    while isinstance(before, Exchange):
        before = found[before.inputs[0]]
    return before


def _base(node: Node, inputs: tuple[int, ...]) -> dict[str, Any]:
    return {"id": node.id, "inputs": inputs, "output": node.output, "description": node.description}


def _fused_windows(node: Any, found: dict[int, Node]) -> Iterable[Node]:
    local = _before(node, found)
    if not isinstance(local, LocalWindowAggregate):
        raise _unexpected(node, local)
    yield WindowAggregate(
        **_base(node, local.inputs),
        grouping=local.grouping,
        calls=local.calls,
        window=local.window,
        properties=node.properties,
        retracts=local.retracts,
    )


def _fused_groups(node: Any, found: dict[int, Node]) -> Iterable[Node]:
    before = _before(node, found)
    if isinstance(before, LocalGroupAggregate):
        yield _one_phase(node, before, node.generate_update_before, node.ttl_ms)
    elif isinstance(before, IncrementalGroupAggregate):
        local = _before(before, found)
        if not isinstance(local, LocalGroupAggregate):
            raise _unexpected(before, local)
        columns = found[local.inputs[0]].output
        results = (Column(f"$r{i}", call.type) for i, call in enumerate(local.calls))
        output = (*(columns[index] for index in local.grouping), *results)
        yield replace(_one_phase(before, local, True, before.ttl_ms), output=output)
        yield GroupAggregate(
            **_base(node, (before.id,)),
            grouping=before.grouping,
            calls=node.calls,
            generate_update_before=node.generate_update_before,
            ttl_ms=node.ttl_ms,
        )
    else:
        raise _unexpected(node, before)


def _one_phase(node: Node, local: LocalGroupAggregate, generate_update_before: bool, ttl_ms: int) -> GroupAggregate:
    return GroupAggregate(
        **_base(node, local.inputs),
        grouping=local.grouping,
        calls=local.calls,
        generate_update_before=generate_update_before,
        ttl_ms=ttl_ms,
    )


def _unexpected(node: Node, before: Node) -> Exception:
    return refusal(
        f"the plan has {type(before).__name__} before {type(node).__name__}",
        "SET 'table.optimizer.agg-phase-strategy' = 'ONE_PHASE'",
    )


_FUSIONS: dict[type[Node], Callable[[Any, dict[int, Node]], Iterable[Node]]] = {
    GlobalWindowAggregate: _fused_windows,
    GlobalGroupAggregate: _fused_groups,
}
