"""What Kubernetes says about pods and Deployments, in words that say what to do. Pure.

Reasons are made stable here: the kubelet alternates between `ErrImagePull` and `ImagePullBackOff`, and events must not.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from penstock_operator.api.pod_template import MAIN_CONTAINER
from penstock_operator.reconcile.decide.refusals import QUOTA_REMEDY
from penstock_operator.reconcile.observation import Trouble
from penstock_operator.reconcile.observe.terminations import EXIT_FENCED, how, memory_limit, memory_remedy, terminations

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PULL = frozenset({"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError"})
_CONFIG = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
_MISSING = "Create it, or correct the field that names it: spec.storage.secretName, or env, envFrom and volumes in a podTemplate"
_LOST = ("node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready")
_UNSEEN = "ContainerStatusUnknown"
"""What the kubelet says of a container that it never started, or whose end it did not see."""
_KILLED = frozenset({137, 143})
"""Exit codes after SIGKILL and SIGTERM."""
_FAIR = timedelta(minutes=5)
"""A check that was given less than this before its pod's deadline had no fair chance: its image came late."""
_RANGE_REMEDY = (
    "Set spec.master.resources and spec.worker.resources to what the namespace's LimitRange and the containers' limits allow; "
    "what they leave out is requested by default"
)
_RANGE_WORDS = (" usage per ", "must be less than or equal to ")
"""Of a LimitRange, and of the API server on a request above a limit, which a LimitRange may have set."""
_TEXT = 500
_MESSAGE = 4096


def pod_trouble(pod: Mapping[str, Any]) -> Trouble | None:
    """The most telling thing that keeps a pod from working."""
    return next(_pod(pod), None)


def _pod(pod: Mapping[str, Any]) -> Iterator[Trouble]:
    status = pod.get("status", {})
    for container in _containers(pod):
        yield from _container(pod, container)
    for condition in status.get("conditions", ()):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            yield Trouble(
                "Unschedulable",
                f"no node takes the pod: {_text(condition)}",
                "Add nodes, or lower the resources or the parallelism",
            )
    if status.get("phase") == "Failed" and status.get("reason"):
        yield Trouble(status["reason"], f"the pod failed: {_text(status)}", "It is replaced")


def node_trouble(pod: Mapping[str, Any]) -> Trouble | None:
    """The pod's node is lost: it does not answer, or its pods have been told to go by a taint that says so.

    What runs on it may run on. The node itself is not looked at: the operator has no rights on nodes.
    """
    status = pod.get("status", {})
    conditions = {c.get("type"): c for c in status.get("conditions", ())}
    silent = status.get("reason") == "NodeLost" or conditions.get("Ready", {}).get("reason") == "NodeStatusUnknown"
    if not silent and not _disrupted(conditions):
        return None
    name, node = pod.get("metadata", {}).get("name", ""), pod.get("spec", {}).get("nodeName", "")
    return Trouble(
        "NodeLost",
        f"the node {node} of pod {name} does not answer, or has been tainted; the pod is replaced",
        "If the node does not come back by itself, start it again, or delete it from the cluster when it is off",
    )


def _disrupted(conditions: Mapping[str, Any]) -> bool:
    target = conditions.get("DisruptionTarget", {})
    return target.get("reason") == "DeletionByTaintManager" or any(t in str(target.get("message", "")) for t in _LOST)


def _containers(pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    status = pod.get("status", {})
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _container(pod: Mapping[str, Any], container: Mapping[str, Any]) -> Iterator[Trouble]:
    waiting = container.get("state", {}).get("waiting", {})
    reason = waiting.get("reason", "")
    image = container.get("image", "")
    if reason in _PULL:
        yield Trouble(
            "ImagePullFailed",
            f"the image {image} cannot be pulled: {_text(waiting)}",
            "Correct spec.image, or give spec.imagePullSecrets",
        )
    elif reason in _CONFIG:
        yield Trouble(
            "ContainerConfigError",
            f"the container cannot be created: {_text(waiting)}",
            _MISSING
            if reason == "CreateContainerConfigError"
            else "Look at the image, and at volumes and commands in the podTemplate",
        )
    elif reason == "CrashLoopBackOff" and _exit_code(container) == EXIT_FENCED:
        yield Trouble(
            "Fenced",
            f"another JobManager took the job over from this master: {last_words(container)}",
            "Only one may run under a job id. Look for a `penstock master` that was started by hand, a FlinkJob elsewhere with "
            "the same job id and checkpoint directory, or a pod on a node that is cut off; when it is gone, the job goes on",
        )
    elif reason == "CrashLoopBackOff" and (killed := _killed_for_memory(pod, container)):
        yield killed
    elif reason == "CrashLoopBackOff":
        yield Trouble(
            "CrashLoopBackOff", f"the container ends again and again: {last_words(container)}", "Look at its log"
        )


def _killed_for_memory(pod: Mapping[str, Any], container: Mapping[str, Any]) -> Trouble | None:
    ends = [t for t in terminations(pod) if t.container == container.get("name") and t.trouble.reason == "OOMKilled"]
    return ends[0].trouble if ends else None


def interruption(pod: Mapping[str, Any]) -> Trouble | None:
    """Why Kubernetes ended a pod whose program had neither ended by itself nor used up its time; None if that is not so.

    The reason of a pod (Evicted, Preempting, OutOfcpu, UnexpectedAdmissionError, ...) is only ever Kubernetes' own: a
    program that ends leaves it empty, whatever its exit code.
    """
    status, state = pod.get("status", {}), main_container(pod).get("state", {})
    phase, reason, ended = status.get("phase"), status.get("reason"), state.get("terminated", {})
    if phase == "Succeeded" or (phase != "Failed" and reason != "NodeLost"):
        return None
    if not reason and ended.get("reason") == _UNSEEN:
        reason, status = _UNSEEN, ended
    if not reason or (reason == "DeadlineExceeded" and _had_its_time(state)):
        return None
    waits = [trouble for container in _containers(pod) for trouble in _container(pod, container)]
    said = f"Kubernetes ended the check pod ({reason}): {_text(status)}"
    return waits[0] if waits else Trouble("CheckInterrupted", said, "It is checked again")


def _had_its_time(state: Mapping[str, Any]) -> bool:
    """The container was started, and not just before the deadline."""
    ended = state.get("terminated", {})
    if ended.get("reason") == _UNSEEN:
        return False
    begun, over = ended.get("startedAt"), ended.get("finishedAt")
    if begun and over:
        return datetime.fromisoformat(over) - datetime.fromisoformat(begun) >= _FAIR
    return bool(ended) or "running" in state


def main_container(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """The status of the job's own container, whatever stands beside it; empty before there is one."""
    found = pod.get("status", {}).get("containerStatuses") or ()
    return next((c for c in found if c.get("name") == MAIN_CONTAINER), {})


def ended_by_itself(container: Mapping[str, Any]) -> bool:
    """It was not killed: neither by a signal nor where nobody saw it."""
    ended = container.get("state", {}).get("terminated", {})
    return bool(ended) and ended.get("reason") != _UNSEEN and ended.get("exitCode") not in _KILLED


def first_failure(pod: Mapping[str, Any]) -> str:
    """Which container made a pod fail whose own one never ran, and how it ended."""
    for container in _containers(pod):
        if container.get("state", {}).get("terminated", {}).get("exitCode"):
            return f"the container {container.get('name')} failed: {last_words(container, pod)}"
    return "the check's container never ran"


def _exit_code(container: Mapping[str, Any]) -> int | None:
    code = container.get("lastState", {}).get("terminated", {}).get("exitCode")
    return None if code is None else int(code)


def last_words(container: Mapping[str, Any], pod: Mapping[str, Any] | None = None) -> str:
    """How a container ended, and what it said last; with its pod, also what to raise if it was killed for memory."""
    ended = container.get("lastState", {}).get("terminated") or container.get("state", {}).get("terminated") or {}
    message = str(ended.get("message", "")).strip()[-_MESSAGE:]
    if ended.get("reason") != "OOMKilled" or pod is None:
        return f"{how(ended)}{': ' + message if message else ''}"
    name, limit = str(container.get("name", "")), memory_limit(pod, str(container.get("name", "")))
    return f"{how(ended, limit)}{': ' + message if message else ''}. {memory_remedy('master', name, limit)}"


def deployment_trouble(deployment: Mapping[str, Any]) -> Trouble | None:
    """Why a Deployment cannot make its pods: quota, admission, …"""
    for condition in deployment.get("status", {}).get("conditions", ()):
        if condition.get("type") == "ReplicaFailure" and condition.get("status") == "True":
            text = _text(condition)
            if "exceeded quota" in text:
                return Trouble("QuotaExceeded", f"pods cannot be created: {text}", QUOTA_REMEDY)
            limited = any(words in text for words in _RANGE_WORDS)
            remedy = _RANGE_REMEDY if limited else "Look at admission policies and the podTemplate"
            return Trouble("PodsRefused", f"pods cannot be created: {text}", remedy)
    return None


def _text(source: Mapping[str, Any]) -> str:
    return str(source.get("message") or source.get("reason") or "no reason given").strip()[:_TEXT]
