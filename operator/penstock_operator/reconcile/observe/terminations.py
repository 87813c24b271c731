"""What ended the containers of a job, as its pods show it. Pure; what becomes of it is in `decide.health.causes`.

A stop that somebody asked for is none of these: pods that are being deleted, exit code 0, and a master that another one has taken
over from (`EXIT_FENCED`, which is told as that).

Kubernetes does not always say when: an evicted pod may have no statuses of containers, and what a node that was lost had run is
`ContainerStatusUnknown`. Then it ended when it is first seen.
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
"""Exit code of a master that another one has taken over from (`penstock.jobmanager.process.master_process`)."""
_MESSAGE = 500
_OOM = "OOMKilled"
_DISRUPTED = "DisruptionTarget"


def terminations(pod: Mapping[str, Any]) -> tuple[Terminated, ...]:
    """How containers of a pod of the job have ended last, other than by being stopped."""
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
    said = str(ended.get("message", "")).strip()[-_MESSAGE:]
    text = f"container {name} of {role} {pod.get('metadata', {}).get('name', '')} ended: {how(ended, limit)}"
    remedy = memory_remedy(role, name, limit) if reason == _OOM else _look(pod, name)
    return Terminated(
        pod=str(pod.get("metadata", {}).get("name", "")),
        role=role,
        container=name,
        trouble=Trouble(reason, f"{text}: {said}" if said else text, remedy),
        exit_code=ended.get("exitCode"),
        memory_limit=limit,
        at=_moment(ended.get("finishedAt")),
    )


def _of_pod(pod: Mapping[str, Any]) -> Terminated:
    """Kubernetes has ended a whole pod: an eviction, a node that was shut down, …"""
    meta, status, role = pod.get("metadata", {}), pod.get("status", {}), _role(pod)
    reason, said = str(status["reason"]), str(status.get("message") or "").strip()[:_MESSAGE]
    ends = [c.get("state", {}).get("terminated", {}).get("finishedAt") for c in status.get("containerStatuses") or ()]
    said_at = [c.get("lastTransitionTime") for c in status.get("conditions") or () if c.get("type") == _DISRUPTED]
    return Terminated(
        pod=str(meta.get("name", "")),
        role=role,
        container="",
        trouble=Trouble(
            reason, f"{role} {meta.get('name', '')} was ended by Kubernetes ({reason}): {said}", _kept(role, said)
        ),
        at=max(filter(None, map(_moment, (*ends, *said_at))), default=None),
    )


def _kept(role: str, said: str) -> str:
    for resource in ("ephemeral-storage", "memory"):
        if resource in said:
            what = f"spec.{role}.resources.requests.{resource}"
            return f"It is replaced. Set {what} to what it needs, so that it is placed where there is as much"
    return "It is replaced"


def how(ended: Mapping[str, Any], limit: str = "") -> str:
    """How a container ended: reason, exit code and signal; killed for memory, also its limit."""
    parts = [str(ended.get("reason") or "unknown reason")]
    parts.append(f"exit code {ended['exitCode']}" if "exitCode" in ended else "no exit code")
    number = ended.get("signal") or int(ended.get("exitCode") or 0) - 128
    if number in list(signals.Signals):
        parts.append(signals.Signals(number).name)
    if ended.get("reason") == _OOM:
        parts.append(f"memory limit {limit}" if limit else "no memory limit")
    return ", ".join(parts)


def memory_limit(pod: Mapping[str, Any], name: str) -> str:
    """The memory limit of one of a pod's containers; empty if there is none."""
    spec = pod.get("spec", {})
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        if container.get("name") == name:
            limit = str(((container.get("resources") or {}).get("limits") or {}).get("memory") or "")
            return "" if limit == "0" else limit
    return ""


def memory_remedy(role: str, container: str, limit: str) -> str:
    """What to raise for a container that was killed for memory."""
    if container != MAIN_CONTAINER:
        return f"Raise resources.limits.memory of container {container} in spec.{role}.podTemplate"
    if not limit:
        field = f"spec.{role}.resources.requests.memory"
        return f"Its node has run out of memory: set {field} and limits.memory to what it needs"
    slots = ", or lower spec.worker.slots" if role == "worker" else ""
    return f"Raise spec.{role}.resources.limits.memory{slots}"


def _look(pod: Mapping[str, Any], container: str) -> str:
    name = pod.get("metadata", {}).get("name", "")
    return f"Look at its log: kubectl logs {name} -c {container} --previous"


def _role(pod: Mapping[str, Any]) -> str:
    role = (pod.get("metadata", {}).get("labels") or {}).get(ROLE, "worker")
    return "master" if role == "check" else str(role)


def _moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
