"""The terminations of a job's containers, as its pods show them. Pure functions. `decide.health.causes` evaluates
them.

Requested stops are not included: pods that are being deleted, and containers with exit code 0. A master that another
master has replaced is not included either (`EXIT_FENCED`). Such a master is reported separately.

Kubernetes does not always report the time. An evicted pod may have no statuses of containers. The containers of a
lost node have the reason `ContainerStatusUnknown`. In these cases the time is the first observation.
"""

from __future__ import annotations

import signal as signals
from datetime import datetime
from typing import TYPE_CHECKING, Any

from penstock_operator.api.pod_template import MAIN_CONTAINER
from penstock_operator.reconcile.observation import CONTAINER_FAILED, Terminated, Trouble
from penstock_operator.resources.names import ROLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

EXIT_FENCED = 75
"""Exit code of a master that another master has replaced (`penstock.jobmanager.process.master.master_process`)."""
EXIT_STORAGE = 74
"""Exit code of a master whose checkpoint storage failed (`penstock.jobmanager.process.master.master_process`)."""
_MESSAGE = 500
_OOM = "OOMKilled"
_DISRUPTED = "DisruptionTarget"


def terminations(pod: Mapping[str, Any]) -> tuple[Terminated, ...]:
    """Return the last unexpected termination of each container of a pod."""
    return tuple(_found(pod))


def _found(pod: Mapping[str, Any]) -> Iterator[Terminated]:
    meta, status = pod.get("metadata", {}), pod.get("status", {})
    if status.get("phase") == "Failed" and status.get("reason"):
        yield _of_pod(pod)
        return
    statuses = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    for container in statuses:
        ended = container.get("lastState", {}).get("terminated")
        if not ended and "deletionTimestamp" not in meta:
            ended = container.get("state", {}).get("terminated")
        if ended and not _is_wanted(ended):
            yield _of_container(pod, container, ended)


def _is_wanted(ended: Mapping[str, Any]) -> bool:
    code = ended.get("exitCode")
    return (code == 0 and not ended.get("signal")) or code == EXIT_FENCED


def _of_container(pod: Mapping[str, Any], container: Mapping[str, Any], ended: Mapping[str, Any]) -> Terminated:
    name, role = str(container.get("name", "")), _role(pod)
    limit = memory_limit(pod, name)
    reason = _OOM if ended.get("reason") == _OOM else CONTAINER_FAILED
    message = str(ended.get("message", "")).strip()[-_MESSAGE:]
    text = f"container {name} of {role} {pod.get('metadata', {}).get('name', '')} ended: {describe_end(ended, limit)}"
    remedy = memory_remedy(role, name, limit) if reason == _OOM else _log_remedy(pod, name)
    return Terminated(
        pod=str(pod.get("metadata", {}).get("name", "")),
        role=role,
        container=name,
        trouble=Trouble(reason, f"{text}: {message}" if message else text, remedy),
        exit_code=ended.get("exitCode"),
        memory_limit=limit,
        at=_moment(ended.get("finishedAt")),
    )


def _of_pod(pod: Mapping[str, Any]) -> Terminated:
    """Return the termination of a whole pod by Kubernetes, such as an eviction or a node shutdown."""
    meta, status, role = pod.get("metadata", {}), pod.get("status", {}), _role(pod)
    reason, message = str(status["reason"]), str(status.get("message") or "").strip()[:_MESSAGE]
    ends = [c.get("state", {}).get("terminated", {}).get("finishedAt") for c in status.get("containerStatuses") or ()]
    disrupted_at = [c.get("lastTransitionTime") for c in status.get("conditions") or () if c.get("type") == _DISRUPTED]
    return Terminated(
        pod=str(meta.get("name", "")),
        role=role,
        container="",
        trouble=Trouble(
            reason,
            f"{role} {meta.get('name', '')} was ended by Kubernetes ({reason}): {message}",
            _eviction_remedy(role, message),
        ),
        at=max(filter(None, map(_moment, (*ends, *disrupted_at))), default=None),
    )


def _eviction_remedy(role: str, message: str) -> str:
    for resource in ("ephemeral-storage", "memory"):
        if resource in message:
            field = f"spec.{role}.resources.requests.{resource}"
            return f"Kubernetes replaces it. Set {field} to the amount that the pod needs, so that the scheduler selects a node with enough"
    return "Kubernetes replaces it"


def describe_end(ended: Mapping[str, Any], limit: str = "") -> str:
    """Describe how a container ended: reason, exit code and signal. If it was killed for its memory use, add the memory
    limit.
    """
    parts = [str(ended.get("reason") or "unknown reason")]
    parts.append(f"exit code {ended['exitCode']}" if "exitCode" in ended else "no exit code")
    number = ended.get("signal") or int(ended.get("exitCode") or 0) - 128
    if number in list(signals.Signals):
        parts.append(signals.Signals(number).name)
    if ended.get("reason") == _OOM:
        parts.append(f"memory limit {limit}" if limit else "no memory limit")
    return ", ".join(parts)


def memory_limit(pod: Mapping[str, Any], name: str) -> str:
    """Return the memory limit of a container, or an empty string if the container has no limit."""
    spec = pod.get("spec", {})
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        if container.get("name") == name:
            limit = str(((container.get("resources") or {}).get("limits") or {}).get("memory") or "")
            return "" if limit == "0" else limit
    return ""


def memory_remedy(role: str, container: str, limit: str) -> str:
    """Return the setting to raise for a container that was killed for its memory use."""
    if container != MAIN_CONTAINER:
        return f"Raise resources.limits.memory of container {container} in spec.{role}.podTemplate"
    if not limit:
        field = f"spec.{role}.resources.requests.memory"
        return f"Its node has run out of memory: set {field} and limits.memory to the memory that the pod needs"
    slots = ", or lower spec.worker.slots" if role == "worker" else ""
    return f"Raise spec.{role}.resources.limits.memory{slots}"


def _log_remedy(pod: Mapping[str, Any], container: str) -> str:
    name = pod.get("metadata", {}).get("name", "")
    return f"Check its log: kubectl logs {name} -c {container} --previous"


def _role(pod: Mapping[str, Any]) -> str:
    role = (pod.get("metadata", {}).get("labels") or {}).get(ROLE, "worker")
    return "master" if role == "check" else str(role)


def _moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
