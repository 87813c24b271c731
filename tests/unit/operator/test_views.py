"""Kubernetes' words, understood: pods in trouble, check reports, and JSON with anything missing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_operator.reconcile import views
from penstock_operator.reconcile.troubles import deployment_trouble, pod_trouble


def pod(waiting: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "penstock", "image": "job:1", "restartCount": 4}
    if waiting:
        container["state"] = {"waiting": waiting}
        container["lastState"] = {"terminated": {"exitCode": 137, "reason": "OOMKilled", "message": "last words"}}
    return {"metadata": {"name": "p"}, "status": {"containerStatuses": [container], **status}}


@pytest.mark.parametrize(
    ("manifest", "reason", "words"),
    [
        (pod({"reason": "ErrImagePull", "message": "not found"}), "ImagePullFailed", "spec.image"),
        (pod({"reason": "ImagePullBackOff"}), "ImagePullFailed", "job:1"),
        (pod({"reason": "ErrImageNeverPull"}), "ImagePullFailed", "spec.image"),
        (pod({"reason": "CreateContainerConfigError", "message": 'secret "s3" not found'}), "ContainerConfigError", 's3'),
        (pod({"reason": "CrashLoopBackOff"}), "CrashLoopBackOff", "more memory"),
        (
            pod(conditions=[{"type": "PodScheduled", "status": "False", "message": "Insufficient cpu"}]),
            "Unschedulable",
            "Add nodes",
        ),
        (pod(phase="Failed", reason="Evicted", message="disk pressure"), "Evicted", "disk pressure"),
    ],
)  # fmt: skip
def test_troubles_say_what_to_do(manifest: dict[str, Any], reason: str, words: str) -> None:
    trouble = pod_trouble(manifest)
    assert trouble is not None
    assert trouble.reason == reason
    assert words in str(trouble)


@pytest.mark.parametrize(
    ("message", "reason"),
    [("pods is forbidden: exceeded quota: q", "QuotaExceeded"), ("denied by policy", "PodsRefused")],
)
def test_deployments_that_cannot_make_pods(message: str, reason: str) -> None:
    found = deployment_trouble(
        {"status": {"conditions": [{"type": "ReplicaFailure", "status": "True", "message": message}]}}
    )
    assert found is not None
    assert found.reason == reason


def test_a_healthy_pod_is_no_trouble() -> None:
    assert pod_trouble(pod()) is None
    assert deployment_trouble({"status": {"conditions": [{"type": "ReplicaFailure", "status": "False"}]}}) is None


@pytest.mark.parametrize(
    ("manifest", "lost"),
    [
        ({"status": {"reason": "NodeLost"}}, True),
        ({"status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]}}, True),
        ({"status": {"conditions": [{"type": "DisruptionTarget", "reason": "DeletionByTaintManager"}]}}, True),
        ({"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "ContainersNotReady"}]}}, False),
    ],
)
def test_lost_nodes(manifest: dict[str, Any], lost: bool) -> None:
    assert views.pod(manifest).node_lost is lost


REPORT = {
    "ok": False,
    "problems": [{"code": "STATE", "message": "uid 'dedup' has no operator", "remedy": "keep it", "operator": "dedup"}],
}


@pytest.mark.parametrize(
    "log",
    [
        json.dumps(REPORT),
        f"hello\n{json.dumps(REPORT)}\n",
        f'{{"not": "it"}}\n{json.dumps(REPORT)}',
        json.dumps(REPORT, indent=2),
        f"warning: {{\n{json.dumps(REPORT)}\nbye",
    ],
)
def test_the_report_is_found_in_any_log(log: str) -> None:
    assert views.read_report(log) == REPORT


@pytest.mark.parametrize("log", ["", "Traceback: KeyError", '{"ok"', "[1, 2]", '{"fine": true}'])
def test_no_report(log: str) -> None:
    assert views.read_report(log) is None


@given(st.text(alphabet='{}[]"ok:, truefals\n', max_size=200))
def test_any_log_can_be_read(log: str) -> None:
    views.read_report(log)


def check(phase: str, *, message: str = "", code: int = 0) -> dict[str, Any]:
    ended = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed", "message": message}}
    return {"metadata": {"name": "c"}, "status": {"phase": phase, "containerStatuses": [{"state": ended}]}}


@pytest.mark.parametrize(
    ("manifest", "log", "state"),
    [
        (check("Succeeded"), json.dumps({"ok": True}), "Passed"),
        (check("Succeeded"), None, "Passed"),
        (check("Succeeded"), "the module called sys.exit()", "Crashed"),
        (check("Failed", code=1), json.dumps(REPORT), "Refused"),
        (check("Failed", code=1, message=json.dumps(REPORT)), None, "Refused"),
        (check("Failed", code=137), "", "Crashed"),
        (check("Failed", code=1), json.dumps({"ok": True}), "Refused"),
        ({"status": {"phase": "Running"}}, None, "Running"),
        ({}, None, "Waiting"),
    ],
)
def test_verdicts_of_the_check_pod(manifest: dict[str, Any], log: str | None, state: str) -> None:
    assert views.check_pod(manifest, log).state == state


def test_problems_of_a_check_read_well() -> None:
    [problem] = views.check_pod(check("Failed", code=1), json.dumps(REPORT)).problems
    assert str(problem) == "operator 'dedup': uid 'dedup' has no operator. keep it"


keys = st.sampled_from(["metadata", "status", "spec", "labels", "annotations", "replicas"])
values = st.dictionaries(
    keys, st.dictionaries(keys, st.none() | st.dictionaries(keys, st.text(max_size=3)), max_size=2), max_size=3
)


@given(values)
def test_missing_fields_are_never_an_error(manifest: dict[str, Any]) -> None:
    manifest = {k: v for k, v in manifest.items() if k in ("metadata", "status", "spec")}
    for part in ("metadata", "status", "spec"):
        manifest.get(part, {}).pop("replicas", None)
    views.deployment(manifest)
    views.pod(manifest)
    views.snapshot(manifest)
