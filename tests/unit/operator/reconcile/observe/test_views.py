"""The interpretation of Kubernetes' objects: pods with problems, check reports, and JSON with missing fields."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.jobmanager.process.master import master_process
from penstock_operator.reconcile.observe import manifests, terminations
from penstock_operator.reconcile.observe.troubles import deployment_trouble, pod_trouble


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
        (pod({"reason": "CrashLoopBackOff"}), "OOMKilled", "no memory limit"),
        (
            pod(conditions=[{"type": "PodScheduled", "status": "False", "message": "Insufficient cpu"}]),
            "Unschedulable",
            "Add nodes",
        ),
        (pod(phase="Failed", reason="Evicted", message="disk pressure"), "Evicted", "disk pressure"),
    ],
)  # fmt: skip
def test_problems_name_a_remedy(manifest: dict[str, Any], reason: str, words: str) -> None:
    trouble = pod_trouble(manifest)
    assert trouble is not None
    assert trouble.reason == reason
    assert words in str(trouble)


def test_a_master_that_another_one_superseded_is_named() -> None:
    manifest = pod({"reason": "CrashLoopBackOff"})
    manifest["status"]["containerStatuses"][0]["lastState"]["terminated"] = {"exitCode": 75, "reason": "Error"}
    trouble = pod_trouble(manifest)
    assert trouble is not None
    assert (trouble.reason, "Only one JobManager may run" in str(trouble)) == ("Fenced", True)


def test_the_operator_knows_the_exit_code_of_a_fenced_master() -> None:
    assert terminations.EXIT_FENCED == master_process.EXIT_FENCED


@pytest.mark.parametrize(
    ("message", "reason"),
    [("pods is forbidden: exceeded quota: q", "QuotaExceeded"), ("denied by policy", "PodsRefused")],
)
def test_deployments_that_cannot_create_pods_are_reported(message: str, reason: str) -> None:
    found = deployment_trouble(
        {"status": {"conditions": [{"type": "ReplicaFailure", "status": "True", "message": message}]}}
    )
    assert found is not None
    assert found.reason == reason


def test_a_healthy_pod_has_no_problem() -> None:
    assert pod_trouble(pod()) is None
    assert deployment_trouble({"status": {"conditions": [{"type": "ReplicaFailure", "status": "False"}]}}) is None


@pytest.mark.parametrize(
    "message",
    [
        'pods "weather-worker-x" is forbidden: maximum memory usage per Container is 512Mi, but limit is 648Mi',
        'Pod "weather-worker-x" is invalid: spec.containers[0].resources.requests: Invalid value: "648Mi": must be less than or equal '
        "to memory limit of 256Mi",
    ],
)
def test_requests_that_a_limit_range_refuses_must_be_set(message: str) -> None:
    refused = {"type": "ReplicaFailure", "status": "True", "message": message}
    found = deployment_trouble({"status": {"conditions": [refused]}})
    assert found is not None
    assert found.reason == "PodsRefused"
    assert "Set spec.master.resources and spec.worker.resources" in found.remedy


@pytest.mark.parametrize(
    ("manifest", "lost"),
    [
        ({"status": {"reason": "NodeLost"}}, True),
        ({"status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]}}, True),
        ({"status": {"conditions": [{"type": "DisruptionTarget", "reason": "DeletionByTaintManager"}]}}, True),
        ({"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "ContainersNotReady"}]}}, False),
    ],
)
def test_lost_nodes_are_detected(manifest: dict[str, Any], lost: bool) -> None:
    seen = manifests.pod({**manifest, "metadata": {"name": "p"}, "spec": {"nodeName": "n1"}})
    assert seen.node_lost is lost
    assert (seen.trouble is not None and seen.trouble.reason == "NodeLost") is lost
    assert not lost or "the node n1 of pod p" in str(seen.trouble)


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
    assert manifests.read_report(log) == REPORT


@pytest.mark.parametrize("log", ["", "Traceback: KeyError", '{"ok"', "[1, 2]", '{"fine": true}'])
def test_a_log_without_a_report_has_none(log: str) -> None:
    assert manifests.read_report(log) is None


@given(st.text(alphabet='{}[]"ok:, truefals\n', max_size=200))
def test_any_log_can_be_read(log: str) -> None:
    manifests.read_report(log)


def check(phase: str, *, message: str = "", code: int = 0) -> dict[str, Any]:
    ended = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed", "message": message}}
    return {
        "metadata": {"name": "c"},
        "status": {"phase": phase, "containerStatuses": [{"name": "penstock", "state": ended}]},
    }


OVER = {"terminated": {"exitCode": 0, "reason": "Completed"}}
REFUSED = {"terminated": {"exitCode": 1, "reason": "Error"}}


def beside(own: dict[str, Any] | None, *, phase: str = "Running", **status: Any) -> dict[str, Any]:
    """Return a pod in which a container of the user still runs or has failed."""
    other = {"running": {}} if phase == "Running" else {"terminated": {"exitCode": 1, "reason": "Error"}}
    states = [{"name": "logs", "state": other}] + ([{"name": "penstock", "state": own}] if own else [])
    return {"metadata": {"name": "c"}, "status": {"phase": phase, "containerStatuses": states, **status}}


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
        (beside(None), None, "Waiting"),
        (beside({"running": {}}), None, "Running"),
        (beside(OVER), json.dumps({"ok": True}), "Passed"),
        (beside(OVER), None, "Passed"),
        (beside(OVER), "the module called sys.exit()", "Crashed"),
        (beside(REFUSED), json.dumps(REPORT), "Refused"),
        (beside(REFUSED), "Traceback: KeyError", "Crashed"),
        (beside(OVER, phase="Failed"), json.dumps({"ok": True}), "Passed"),
        (beside(OVER, phase="Failed", reason="DeadlineExceeded"), json.dumps({"ok": True}), "Passed"),
        (beside(REFUSED, phase="Failed", reason="DeadlineExceeded"), json.dumps(REPORT), "Refused"),
        (beside(OVER, phase="Failed", reason="Evicted"), json.dumps({"ok": True}), "Passed"),
        (beside(REFUSED, phase="Failed", reason="Evicted"), json.dumps(REPORT), "Refused"),
        (beside(REFUSED, phase="Failed", reason="Evicted"), "terminated", "Interrupted"),
        (beside(OVER, phase="Failed", reason="Evicted"), "", "Interrupted"),
        ({}, None, "Waiting"),
    ],
)
def test_the_check_pod_gives_a_verdict(manifest: dict[str, Any], log: str | None, state: str) -> None:
    assert manifests.check_pod(manifest, log).state == state


def ended_by_kubernetes(reason: str, container: dict[str, Any] | None = None) -> dict[str, Any]:
    states = [{"name": "penstock", "image": "job:1", "state": container}] if container else []
    status = {"phase": "Failed", "reason": reason, "message": "the node's own words", "containerStatuses": states}
    return {"metadata": {"name": "c"}, "status": status}


def ran(seconds: int, reason: str = "Error") -> dict[str, Any]:
    over = f"2026-01-01T12:{seconds // 60:02d}:{seconds % 60:02d}Z"
    began = "2026-01-01T12:00:00Z"
    return {"terminated": {"exitCode": 137, "reason": reason, "startedAt": began, "finishedAt": over}}


NEVER_STARTED = {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown"}}
NO_IMAGE = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off"}}


@pytest.mark.parametrize(
    "reason",
    [
        "Evicted", "Preempting", "NodeLost", "Shutdown", "NodeShutdown", "Terminated", "OutOfcpu", "OutOfmemory",
        "OutOfpods", "NodeAffinity", "UnexpectedAdmissionError",
    ],
)  # fmt: skip
@pytest.mark.parametrize("container", [None, ran(20)], ids=["never-started", "started"])
def test_a_check_pod_that_kubernetes_ended_gives_no_verdict(reason: str, container: dict[str, Any] | None) -> None:
    found = manifests.check_pod(ended_by_kubernetes(reason, container), "")
    assert found.state == "Interrupted"
    assert found.trouble is not None
    assert found.trouble.reason == "CheckInterrupted"
    assert f"({reason}): the node's own words" in str(found.trouble)


@pytest.mark.parametrize(
    ("container", "log", "state"),
    [
        (None, None, "Interrupted"),
        (NEVER_STARTED, "", "Interrupted"),
        (NO_IMAGE, None, "Interrupted"),
        (ran(20), "", "Interrupted"),
        (ran(590), "importing", "Overdue"),
        (ran(590), json.dumps({"ok": True}), "Overdue"),
        (ran(590), json.dumps(REPORT), "Refused"),
        ({"terminated": {"exitCode": 137, "reason": "Error"}}, "", "Overdue"),
        ({"running": {}}, None, "Overdue"),
    ],
)
def test_the_deadline_of_a_check_pod_rejects_only_a_program_that_had_its_time(
    container: dict[str, Any] | None, log: str | None, state: str
) -> None:
    assert manifests.check_pod(ended_by_kubernetes("DeadlineExceeded", container), log).state == state


def test_the_obstacle_of_a_check_pod_is_known_at_its_end() -> None:
    trouble = manifests.check_pod(ended_by_kubernetes("DeadlineExceeded", NO_IMAGE), None).trouble
    assert trouble is not None
    assert trouble.reason == "ImagePullFailed"


def test_a_container_with_an_unobserved_end_gives_no_verdict() -> None:
    unseen = {"phase": "Failed", "containerStatuses": [{"name": "penstock", "state": NEVER_STARTED}]}
    assert manifests.check_pod({"status": unseen}, "").state == "Interrupted"


def test_only_the_jobs_own_container_gives_the_verdict() -> None:
    beside = {"name": "logs", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
    own = {"name": "penstock", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
    found = manifests.check_pod({"status": {"phase": "Failed", "containerStatuses": [beside, own]}}, "")
    assert (found.state, "spec.master.resources" in found.output) == ("Crashed", True)


def test_a_check_whose_init_container_fails_names_it() -> None:
    init = {"name": "fetch", "state": {"terminated": {"exitCode": 7, "reason": "Error", "message": "no route"}}}
    found = manifests.check_pod({"status": {"phase": "Failed", "initContainerStatuses": [init]}}, None)
    assert (found.state, found.output) == ("Crashed", "the container fetch failed: Error, exit code 7: no route")


def test_only_the_jobs_own_container_counts_starts_and_restarts() -> None:
    waiting = {"name": "penstock", "restartCount": 0, "state": {"waiting": {"reason": "ImagePullBackOff"}}}
    other = {"name": "logs", "restartCount": 9, "state": {"running": {}}}
    found = manifests.pod({"status": {"phase": "Pending", "containerStatuses": [other, waiting]}})
    assert (found.started, found.restarts) == (False, 0)


@pytest.mark.parametrize(
    ("phase", "over"), [("Failed", True), ("Succeeded", True), ("Running", False), ("Pending", False)]
)
def test_a_failed_pod_is_only_a_record(phase: str, over: bool) -> None:
    assert manifests.pod({"status": {"phase": phase}}).over is over


def test_problems_of_a_check_are_readable() -> None:
    [problem] = manifests.check_pod(check("Failed", code=1), json.dumps(REPORT)).problems
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
    manifests.deployment(manifest)
    manifests.pod(manifest)
    manifests.snapshot(manifest)


def test_the_image_of_a_volume_is_named_if_it_cannot_be_pulled() -> None:
    reference = f"example.com/words@sha256:{'a' * 64}"
    message = f'failed to pull and unpack image "{reference}": not found'
    found = pod({"reason": "ErrImagePull", "message": message})
    found["spec"] = {
        "volumes": [{"name": "work", "emptyDir": {}}, {"name": "source", "image": {"reference": reference}}]
    }
    trouble = pod_trouble(found)
    assert trouble is not None
    assert trouble.message.startswith(f"the image {reference} cannot be pulled")
    assert "spec.job.source.image" in trouble.remedy
    other = pod({"reason": "ErrImagePull", "message": 'failed to pull and unpack image "job:1": not found'})
    other["spec"] = found["spec"]
    trouble = pod_trouble(other)
    assert trouble is not None
    assert "spec.image" in trouble.remedy
