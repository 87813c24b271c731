"""A comparison of SQL plans tells for each node with state whether a restore keeps it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from penstock.checkpoint.files.manifest import FORMAT_VERSION, Manifest, OperatorInfo, OperatorState
from penstock.datastream import StreamExecutionEnvironment
from penstock.graph.job_graph import JobGraph
from penstock.jobmanager.process.session.entry import GraphBuilt, GraphCollector
from penstock.jobmanager.validation.plan_nodes import compare_plans
from penstock.sql.plan.reading import read_plan
from penstock.sql.translation import StreamPlan
from tests.unit.sql.queries import PLANS, TABLE


def collected(change: Callable[[str], str] = str) -> tuple[JobGraph, Mapping[str, Any]]:
    """Return the graph and the plans of a program with the stored plan `group`, after a change of the plan."""
    text = change((PLANS / "group.plan.json").read_text()).replace('"penstock-collect"', '"blackhole"')
    env = StreamExecutionEnvironment.get_execution_environment()
    source = env.from_collection([(1,)])
    StreamPlan(env, read_plan(text), tables={TABLE: source}).add_to_environment()
    collector = GraphCollector()
    with suppress(GraphBuilt):
        collector.execute(env.get_program("job"))
    assert collector.graph is not None
    return collector.graph, collector.plans


def snapshot(program: tuple[JobGraph, Mapping[str, Any]], plans: Mapping[str, Any] | None = None) -> Manifest:
    """Return a manifest in which each keyed operator of the program has state."""
    graph, found = program
    keyed = [node for node in graph.operators if node.operation.is_keyed]
    return Manifest(
        format_version=FORMAT_VERSION,
        kind="savepoint",
        job_id="j",
        job_name="job",
        checkpoint_id=1,
        leader_epoch=1,
        trigger_timestamp=0,
        complete_timestamp=0,
        parallelism=1,
        max_parallelism=128,
        graph_fingerprint="",
        operators=[OperatorInfo(node.uid, node.name, 1, 128) for node in keyed],
        sources={},
        states={node.uid: OperatorState(keyed=[{"files": [{"path": "x"}]}]) for node in keyed},
        plans=json.loads(json.dumps(dict(found if plans is None else plans))),
    )


def messages(program: tuple[JobGraph, Mapping[str, Any]], manifest: Manifest) -> list[str]:
    return [str(found) for found in compare_plans(manifest, *program)]


def test_an_unchanged_node_keeps_its_state():
    before = collected()
    (found,) = messages(before, snapshot(before))
    assert found.startswith("GroupAggregate(groupBy=[name]")
    assert found.endswith("the state is kept, because the node is the same")


def test_a_changed_filter_before_the_node_keeps_its_state():
    manifest = snapshot(collected())
    after = collected(
        lambda plan: plan.replace(
            '"condition": null', '"condition": {"kind": "LITERAL", "value": true, "type": "BOOLEAN"}'
        )
    )
    (found,) = messages(after, manifest)
    assert "is kept" in found


def test_a_changed_aggregate_drops_its_state_and_names_the_new_node():
    manifest = snapshot(collected())
    after = collected(lambda plan: plan.replace("$MIN$1", "$MAX$1").replace("MIN(x)", "MAX(x)"))
    dropped, empty = messages(after, manifest)
    assert "MIN(x)" in dropped.split(": ")[0]
    assert "is dropped, because the new plan has GroupAggregate(" in dropped
    assert "starts without state, because the snapshot has GroupAggregate(" in empty


def test_a_snapshot_without_plans_starts_the_nodes_without_state():
    (found,) = messages(collected(), snapshot(collected(), {"nodes": 5}))
    assert "starts without state, because the snapshot has no such node" in found
