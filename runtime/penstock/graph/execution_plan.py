"""The execution plan of a program: JSON in the format of Flink's tools and visualizers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from penstock.graph.transformation import Exchange

if TYPE_CHECKING:
    from penstock.graph.program import Program
    from penstock.graph.transformation import Transformation

SHIP_STRATEGIES = {
    Exchange.FORWARD: "FORWARD",
    Exchange.KEY_GROUP: "HASH",
    Exchange.REBALANCE: "REBALANCE",
    Exchange.RESCALE: "RESCALE",
    Exchange.SHUFFLE: "SHUFFLE",
    Exchange.BROADCAST: "BROADCAST",
    Exchange.GLOBAL: "GLOBAL",
    Exchange.CUSTOM: "CUSTOM",
}


def execution_plan(program: Program) -> str:
    """Return the plan. Each operator is a node with its id, type, description, parallelism, and its inputs with their partitioning."""
    return json.dumps({"nodes": [_node(one, program) for one in program.transformations]}, indent=2)


def _node(transformation: Transformation, program: Program) -> dict[str, Any]:
    parallelism = program.parallelism if transformation.parallelism is None else transformation.parallelism
    node: dict[str, Any] = {
        "id": transformation.id,
        "type": transformation.name,
        "pact": _kind(transformation),
        "contents": transformation.description or transformation.name,
        "parallelism": parallelism,
    }
    if transformation.uid is not None:
        node["uid"] = transformation.uid
    if transformation.inputs:
        node["predecessors"] = [
            {
                "id": edge.upstream.id,
                "ship_strategy": SHIP_STRATEGIES[edge.partitioning.exchange],
                "side": "first" if edge.index == 0 else "second",
                **({"side_output": edge.side_tag} if edge.side_tag is not None else {}),
            }
            for edge in transformation.inputs
        ]
    return node


def _kind(transformation: Transformation) -> str:
    if transformation.source is not None:
        return "Data Source"
    return "Data Sink" if transformation.is_sink else "Operator"
