"""Every wait of every operation ends: by an edit of the spec, or by a deadline.

The test reads the waits from the code. For each step, it collects the reasons that its functions and their callees pass
to `wait`, `pending`, `retry` and `wait_for_storage`. The test therefore includes new reasons. A list names the waits
that only the cluster can end.
"""

from __future__ import annotations

import ast
from dataclasses import replace
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock_operator.api.status.snapshots import Restore
from penstock_operator.reconcile.decide import operations
from penstock_operator.reconcile.decide.flows import FLOWS
from penstock_operator.reconcile.decide.next_step import next_step
from penstock_operator.reconcile.decide.operations import STEPS
from penstock_operator.reconcile.decide.refusals import PODS_STUCK, REFUSALS, REVISION_LOST
from penstock_operator.reconcile.observation import Revisions
from tests.unit.operator.contexts import SAVEPOINT, make_context, make_op, make_running, make_spec, revision, up

if TYPE_CHECKING:
    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.api.status.operation import Operation

WAITS = {"wait", "pending", "retry", "wait_for_storage"}
CONSTANTS = {"REVISION_LOST": REVISION_LOST, "PODS_STUCK": PODS_STUCK}
FROM_THE_CLUSTER = "FromTheCluster"
"""A placeholder for a reason that Kubernetes provides, such as the problem of a pod."""
POINT = Restore(kind="Savepoint", path=SAVEPOINT, reason="test")

ONLY_THE_CLUSTER: dict[str, set[str | None]] = {
    "Teardown": {*REFUSALS, PODS_STUCK, None},
    "Seal": {None},
    "Start": {None},
}
"""Waits of a stopped job that only the cluster ends.

The API server accepts the scale-down, the pods disappear, or storage answers. `Stalled` reports each of them after a
while.
"""
FOR_A_WHILE: set[tuple[str, str | None]] = {("RemoveWorkers", None)}
"""Waits that end by their own deadline (`BLIND_AFTER`)."""
NEVER = {("Redeploy", "Teardown", "StateLost")}
"""Reasons that this kind of operation cannot have: a redeploy starts from the path that a person has named."""


@cache
def functions() -> dict[str, ast.FunctionDef]:
    """Return all functions of the modules of `operations` by name."""
    found = {}
    for path in Path(str(operations.__file__)).parent.glob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef):
                found[f"{path.stem}.{node.name}"] = node
    return found


@cache
def _called(caller: str) -> list[str]:
    module, node = caller.partition(".")[0], functions()[caller]
    names = {n.func.id for n in ast.walk(node) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    found = []
    for name in functions():
        owner, _, short = name.partition(".")
        if short in names and (owner == module or not short.startswith("_")):
            found.append(name)
    return found


def _reasons(call: ast.Call) -> set[str | None]:
    assert isinstance(call.func, ast.Attribute)
    if call.func.attr == "wait_for_storage":
        return {None, "StorageUnavailable"}
    if call.func.attr == "retry":
        first = call.args[0]
        return {str(first.value) if isinstance(first, ast.Constant) else FROM_THE_CLUSTER}
    given = next((k.value for k in call.keywords if k.arg == "blocked"), None)
    if given is None:
        return {None}
    if isinstance(given, ast.Constant):
        return {given.value if isinstance(given.value, str) else None}
    text = ast.unparse(given)
    if text in CONSTANTS:
        return {CONSTANTS[text]}
    if text == "op.blocked":  # as above
        return set()
    return set(REFUSALS) if "code" in text else {FROM_THE_CLUSTER}


@cache
def reasons(step: str) -> frozenset[str | None]:
    """Return the reasons for which a step may wait."""
    module = STEPS[step].__module__.rpartition(".")[2]
    todo, seen, found = [f"{module}.{STEPS[step].__name__}"], set[str](), set[str | None]()
    while todo:
        name = todo.pop()
        if name in seen or name not in functions():
            continue
        seen.add(name)
        todo += _called(name)
        found |= _reasons_of(name)
    return frozenset(found)


@cache
def _reasons_of(name: str) -> frozenset[str | None]:
    calls = (node for node in ast.walk(functions()[name]) if isinstance(node, ast.Call))
    waits = (call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr in WAITS)
    return frozenset(reason for call in waits for reason in _reasons(call))


STATES = [
    (kind, step, reason) for kind, flow in FLOWS.items() for step in flow for reason in sorted(reasons(step), key=str)
]

EDITS: dict[str, FlinkJobSpec] = {
    "another image": make_spec(image="job:9"),
    "suspended": make_spec(job={"state": "suspended"}),
    "running": make_spec(job={"state": "running"}),
    "another image, running": make_spec(image="job:9", job={"state": "running"}),
    "stateless": make_spec(image="job:9", job={"upgradeMode": "stateless"}),
    "redeploy elsewhere": make_spec(
        image="job:9", job={"initialSavepointPath": f"{SAVEPOINT}-2", "savepointRedeployNonce": 9}
    ),
    "redeploy": make_spec(image="job:9", job={"initialSavepointPath": SAVEPOINT, "savepointRedeployNonce": 9}),
}


def left_by_an_edit(op: Operation) -> bool:
    stored = {revision(spec): spec.to_manifest() for spec in (make_spec(), *EDITS.values())}
    none = op.kind in ("Deploy", "Resume")
    for spec in EDITS.values():
        status: dict[str, Any] = {"running": None if none else make_running(), "next_restore": POINT}
        ctx = make_context(spec, seen=up(revisions=Revisions(stored)), operation=op, **status)
        after = next_step(ctx).status.operation
        if after is None or after.id != op.id or after.target_revision != op.target_revision:
            return True
    return False


def left_by_a_deadline(op: Operation) -> bool:
    subject = {"deleting": True, "deleting_since": op.started_at} if op.kind == "Delete" else {}
    seen = up(master=None, worker=None) if op.kind == "Delete" else up()
    with_deadline = op.model_copy(update={"deadline": op.deadline or op.started_at})
    ctx = make_context(operation=with_deadline, subject=subject, seen=seen)
    ctx = replace(ctx, now=ctx.now + timedelta(days=1))
    decision = next_step(ctx)
    after = decision.status.operation
    return after is None or after.step != op.step or type(decision.action).__name__ == "RemoveFinalizer"


def test_the_code_has_waits() -> None:
    assert len(STATES) > 100
    assert "StateLost" in reasons("Teardown")
    assert "RevisionLost" in reasons("Start")


@pytest.mark.parametrize(("kind", "step", "reason"), STATES)
def test_every_wait_ends(kind: str, step: str, reason: str | None) -> None:
    """An edit or a deadline ends it, or it is in the list of waits that the cluster ends and that are reported as such."""
    target = revision(make_spec(image="job:2")) if kind in ("Upgrade", "Redeploy") else revision()
    op = make_op(
        kind, step, blocked=reason, restore=POINT, target_revision=target, target_parallelism=4, message="waits"
    )
    if kind == "Delete":
        assert left_by_a_deadline(op)
        return
    if step == "Prepare":
        assert left_by_a_deadline(op) or left_by_an_edit(op)
        return
    if (step, reason) in FOR_A_WHILE or (kind, step, reason) in NEVER:
        return
    only_cluster = reason in ONLY_THE_CLUSTER.get(step, set())
    assert left_by_an_edit(op) or only_cluster, f"{kind} waits in {step} for {reason}, and no edit ends it"
