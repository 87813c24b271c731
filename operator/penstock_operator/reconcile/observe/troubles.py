"""Problems of pods and Deployments that Kubernetes reports, with a remedy for users. Pure functions.

This module maps related reasons of Kubernetes to one reason. The kubelet alternates between `ErrImagePull` and
`ImagePullBackOff`, and an event for each change would be noise.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from penstock_operator.api.pod_template import MAIN_CONTAINER
from penstock_operator.reconcile.decide.refusals import QUOTA_REMEDY
from penstock_operator.reconcile.observation import Trouble
from penstock_operator.reconcile.observe.terminations import (
    EXIT_FENCED,
    describe_end,
    memory_limit,
    memory_remedy,
    terminations,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PULL = frozenset({"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError"})
_CONFIG = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
_MISSING = "Create it, or correct the field that names it: spec.storage.secretName, or env, envFrom and volumes in a podTemplate"
_LOST = ("node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready")
_UNSEEN = "ContainerStatusUnknown"
"""Reason that the kubelet reports for a container that it never started, or whose end it did not see."""
_KILLED = frozenset({137, 143})
"""Exit codes after SIGKILL and SIGTERM."""
_MIN_CHECK_TIME = timedelta(minutes=5)
"""Minimum time that a check must have run before the deadline of its pod. A shorter time means that the image was pulled
late, so the check is repeated.
"""
_RANGE_REMEDY = (
    "Set spec.master.resources and spec.worker.resources to values that the namespace's LimitRange and the containers' limits "
    "allow. The LimitRange sets requests and limits that the spec omits"
)
_RANGE_WORDS = (" usage per ", "must be less than or equal to ")
"""Parts of the messages of a LimitRange, and of the API server if a request exceeds a limit. A LimitRange may have
set that limit.
"""
_TEXT = 500
_MESSAGE = 4096


def pod_trouble(pod: Mapping[str, Any]) -> Trouble | None:
    """Return the most important problem that keeps a pod from working."""
    return next(_pod(pod), None)


def _pod(pod: Mapping[str, Any]) -> Iterator[Trouble]:
    status = pod.get("status", {})
    for container in _containers(pod):
        yield from _container(pod, container)
    for condition in status.get("conditions", ()):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            yield Trouble(
                "Unschedulable",
                f"no node accepts the pod: {_text(condition)}",
                "Add nodes, or lower the resources or the parallelism",
            )
    if status.get("phase") == "Failed" and status.get("reason"):
        yield Trouble(status["reason"], f"the pod failed: {_text(status)}", "Kubernetes replaces it")


def node_trouble(pod: Mapping[str, Any]) -> Trouble | None:
    """Return a problem if the pod's node is lost: it does not respond, or a taint evicts its pods.

    Containers on a lost node may still run. The node itself is not read, because the operator has no permissions on
    nodes.
    """
    status = pod.get("status", {})
    conditions = {c.get("type"): c for c in status.get("conditions", ())}
    silent = status.get("reason") == "NodeLost" or conditions.get("Ready", {}).get("reason") == "NodeStatusUnknown"
    if not silent and not _disrupted(conditions):
        return None
    name, node = pod.get("metadata", {}).get("name", ""), pod.get("spec", {}).get("nodeName", "")
    return Trouble(
        "NodeLost",
        f"the node {node} of pod {name} does not respond or has a taint; Kubernetes replaces the pod",
        "If the node does not recover, restart it, or delete it from the cluster if it is switched off",
    )


def _disrupted(conditions: Mapping[str, Any]) -> bool:
    target = conditions.get("DisruptionTarget", {})
    return target.get("reason") == "DeletionByTaintManager" or any(t in str(target.get("message", "")) for t in _LOST)


def _containers(pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    status = pod.get("status", {})
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _pulled(pod: Mapping[str, Any], container: Mapping[str, Any], message: str) -> tuple[str, str]:
    """Return the image that the kubelet could not pull, and its field. It may be the image of a volume."""
    volumes = (volume.get("image") or {} for volume in pod.get("spec", {}).get("volumes") or ())
    references = [str(image["reference"]) for image in volumes if image.get("reference")]
    named = [reference for reference in references if reference in message]
    return (named[0], "spec.job.source.image") if named else (str(container.get("image", "")), "spec.image")


def _container(pod: Mapping[str, Any], container: Mapping[str, Any]) -> Iterator[Trouble]:
    waiting = container.get("state", {}).get("waiting", {})
    reason = waiting.get("reason", "")
    if reason in _PULL:
        image, field = _pulled(pod, container, str(waiting.get("message", "")))
        yield Trouble(
            "ImagePullFailed",
            f"the image {image} cannot be pulled: {_text(waiting)}",
            f"Correct {field}, or set spec.imagePullSecrets",
        )
    elif reason in _CONFIG:
        yield Trouble(
            "ContainerConfigError",
            f"the container cannot be created: {_text(waiting)}",
            _MISSING
            if reason == "CreateContainerConfigError"
            else "Check the image, and volumes and commands in the podTemplate",
        )
    elif reason == "CrashLoopBackOff" and _exit_code(container) == EXIT_FENCED:
        yield Trouble(
            "Fenced",
            f"another JobManager took the job over from this master: {last_output(container)}",
            "Only one JobManager may run under a job id. Find a `penstock master` that was started by hand, a FlinkJob elsewhere with "
            "the same job id and checkpoint directory, or a pod on a node that is cut off. End it; the job then continues",
        )
    elif reason == "CrashLoopBackOff" and (killed := _killed_for_memory(pod, container)):
        yield killed
    elif reason == "CrashLoopBackOff":
        yield Trouble("CrashLoopBackOff", f"the container ends repeatedly: {last_output(container)}", "Check its log")


def _killed_for_memory(pod: Mapping[str, Any], container: Mapping[str, Any]) -> Trouble | None:
    ends = [t for t in terminations(pod) if t.container == container.get("name") and t.trouble.reason == "OOMKilled"]
    return ends[0].trouble if ends else None


def interruption(pod: Mapping[str, Any]) -> Trouble | None:
    """Return why Kubernetes ended the pod of a check. Return None if the check ended by itself or used up its time.

    Only Kubernetes sets the reason of a pod (Evicted, Preempting, OutOfcpu, UnexpectedAdmissionError and others). If
    a program ends, the reason is empty, whatever its exit code is.
    """
    status, state = pod.get("status", {}), main_container(pod).get("state", {})
    phase, reason, ended = status.get("phase"), status.get("reason"), state.get("terminated", {})
    if phase == "Succeeded" or (phase != "Failed" and reason != "NodeLost"):
        return None
    if not reason and ended.get("reason") == _UNSEEN:
        reason, status = _UNSEEN, ended
    if not reason or (reason == "DeadlineExceeded" and _had_enough_time(state)):
        return None
    waits = [trouble for container in _containers(pod) for trouble in _container(pod, container)]
    message = f"Kubernetes ended the check pod ({reason}): {_text(status)}"
    return waits[0] if waits else Trouble("CheckInterrupted", message, "The operator checks again")


def _had_enough_time(state: Mapping[str, Any]) -> bool:
    """Return whether the container was started, and long enough before the deadline."""
    ended = state.get("terminated", {})
    if ended.get("reason") == _UNSEEN:
        return False
    started, over = ended.get("startedAt"), ended.get("finishedAt")
    if started and over:
        return datetime.fromisoformat(over) - datetime.fromisoformat(started) >= _MIN_CHECK_TIME
    return bool(ended) or "running" in state


def main_container(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the status of the main container, or an empty dict before it exists. Ignore other containers."""
    found = pod.get("status", {}).get("containerStatuses") or ()
    return next((c for c in found if c.get("name") == MAIN_CONTAINER), {})


def ended_by_itself(container: Mapping[str, Any]) -> bool:
    """Return whether the container exited, and was neither killed by a signal nor lost with its node."""
    ended = container.get("state", {}).get("terminated", {})
    return bool(ended) and ended.get("reason") != _UNSEEN and ended.get("exitCode") not in _KILLED


def first_failure(pod: Mapping[str, Any]) -> str:
    """Describe which container failed in a pod whose main container never ran."""
    for container in _containers(pod):
        if container.get("state", {}).get("terminated", {}).get("exitCode"):
            return f"the container {container.get('name')} failed: {last_output(container, pod)}"
    return "the container of the check never started"


def _exit_code(container: Mapping[str, Any]) -> int | None:
    code = container.get("lastState", {}).get("terminated", {}).get("exitCode")
    return None if code is None else int(code)


def last_output(container: Mapping[str, Any], pod: Mapping[str, Any] | None = None) -> str:
    """Describe how a container ended, with its last output. If `pod` is given and the container was killed for its
    memory use, add the remedy.
    """
    ended = container.get("lastState", {}).get("terminated") or container.get("state", {}).get("terminated") or {}
    message = str(ended.get("message", "")).strip()[-_MESSAGE:]
    if ended.get("reason") != "OOMKilled" or pod is None:
        return f"{describe_end(ended)}{': ' + message if message else ''}"
    name, limit = str(container.get("name", "")), memory_limit(pod, str(container.get("name", "")))
    return f"{describe_end(ended, limit)}{': ' + message if message else ''}. {memory_remedy('master', name, limit)}"


def deployment_trouble(deployment: Mapping[str, Any]) -> Trouble | None:
    """Return why a Deployment cannot create its pods, such as a quota or an admission policy."""
    for condition in deployment.get("status", {}).get("conditions", ()):
        if condition.get("type") == "ReplicaFailure" and condition.get("status") == "True":
            text = _text(condition)
            if "exceeded quota" in text:
                return Trouble("QuotaExceeded", f"pods cannot be created: {text}", QUOTA_REMEDY)
            limited = any(words in text for words in _RANGE_WORDS)
            remedy = _RANGE_REMEDY if limited else "Check admission policies and the podTemplate"
            return Trouble("PodsRefused", f"pods cannot be created: {text}", remedy)
    return None


def _text(source: Mapping[str, Any]) -> str:
    return str(source.get("message") or source.get("reason") or "no reason given").strip()[:_TEXT]
