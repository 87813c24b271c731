"""What ended the containers of a job: read from its pods, kept in the status, and told. Pure.

Kubernetes shows how a container ended last for as long as its pod is there and does not end again; then it is lost, with
the reason why the job restarts. So what ends a container of the incarnation that runs is noted in
`status.lastTermination`, and shown from there: in conditions while the job is not RUNNING, in what is said of a revision
that is given up, and in an event.

A stop that somebody asked for is none of these: pods that are being deleted, exit code 0, and a master that another one has taken
over from (`troubles.EXIT_FENCED`, which is told as that).

A container that ends again and again is told at the first, second, fourth, eighth, … time, so that hundreds of workers or
days of restarts do not flood the events.
"""

from __future__ import annotations

import signal as signals
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from penstock_operator.api.pod_template import MAIN_CONTAINER
from penstock_operator.api.status import Termination
from penstock_operator.reconcile.observation import Terminated, Trouble
from penstock_operator.resources.names import ROLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock_operator.reconcile.context import Context
    from penstock_operator.reconcile.observation import Pod

EXIT_FENCED = 75
"""Exit code of a master that another one has taken over from (`penstock.jobmanager.master_process`)."""
SERIES = timedelta(hours=1)
"""The same end, no later than this after the last one, is counted with it."""
_SLACK = timedelta(minutes=2)
"""So long before the job is seen not to run may be what ended it."""
_MESSAGE = 500
_OOM = "OOMKilled"


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
    reason = _OOM if ended.get("reason") == _OOM else "ContainerFailed"
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
        at=_moment(ended.get("finishedAt")) or _moment(pod.get("metadata", {}).get("creationTimestamp")),
    )


def _of_pod(pod: Mapping[str, Any]) -> Terminated:
    """Kubernetes has ended a whole pod: an eviction, a node that was shut down, …"""
    meta, status, role = pod.get("metadata", {}), pod.get("status", {}), _role(pod)
    reason, said = str(status["reason"]), str(status.get("message") or "").strip()[:_MESSAGE]
    ends = [c.get("state", {}).get("terminated", {}).get("finishedAt") for c in status.get("containerStatuses") or ()]
    return Terminated(
        pod=str(meta.get("name", "")),
        role=role,
        container="",
        trouble=Trouble(
            reason, f"{role} {meta.get('name', '')} was ended by Kubernetes ({reason}): {said}", _kept(role, said)
        ),
        at=max(filter(None, map(_moment, ends)), default=None) or _moment(meta.get("creationTimestamp")),
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


# --- what is kept of it ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Key:
    """The order in which ends are noted: each once."""

    at: datetime
    pod: str
    container: str

    def __lt__(self, other: _Key) -> bool:
        return (self.at, self.pod, self.container) < (other.at, other.pod, other.container)


def noted(ctx: Context) -> Context:
    """The same context with what has ended since the last look in the status, and told."""
    running = ctx.status.running
    if running is None:
        return ctx
    mine: list[Pod] = [pod for pod in ctx.seen.pods if pod.job_id == running.job_id]
    found = [(_Key(t.at, t.pod, t.container), t) for pod in mine for t in pod.terminations if t.at is not None]
    for key, ended in sorted(found, key=lambda pair: pair[0]):
        last = ctx.status.last_termination
        if last is None or last.job_id != running.job_id or _Key(last.time, last.pod, last.container) < key:
            ctx = _noted(ctx, ended, key.at, running.job_id)
    return ctx


def _noted(ctx: Context, ended: Terminated, at: datetime, job_id: str) -> Context:
    last, trouble = ctx.status.last_termination, ended.trouble
    again = (
        last is not None
        and (last.job_id, last.role, last.container, last.reason)
        == (job_id, ended.role, ended.container, trouble.reason)
        and at - last.time <= SERIES
    )
    count, since = (last.count + 1, last.since) if last is not None and again else (1, at)
    note = Termination(
        pod=ended.pod,
        role=ended.role,
        container=ended.container,
        reason=trouble.reason,
        exit_code=ended.exit_code,
        memory_limit=ended.memory_limit or None,
        message=ctx.clip(trouble.message),
        remedy=trouble.remedy,
        job_id=job_id,
        time=at,
        count=count,
        since=since,
    )
    ctx = ctx.with_status(last_termination=note)
    if count & (count - 1):
        return ctx
    key = f"{job_id}/{since.isoformat()}/{ended.role}/{ended.container}/{count}"
    return ctx.tell(trouble.reason, in_words(note), warning=True, key=key)


def in_words(note: Termination) -> str:
    """What ended, how often, and what to do."""
    often = f" ({note.count} times since {note.since:%H:%M:%S} UTC)" if note.count > 1 else f" ({_at(note.time)})"
    return f"{note.message}{often}. {note.remedy}"


def _at(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"


def last_of_running(ctx: Context) -> Termination | None:
    """What ended last of the incarnation that runs, or ran."""
    running, last = ctx.status.running, ctx.status.last_termination
    return last if last is not None and running is not None and last.job_id == running.job_id else None


def cause(ctx: Context) -> str:
    """Why the job does not run, as far as the end of a container says so; empty if none does."""
    last, op = last_of_running(ctx), ctx.status.operation
    if last is None:
        return ""
    since = ctx.status.job_state_since or ctx.now
    recent = last.time >= since - _SLACK or (op is not None and op.step == "Watch")
    return in_words(last) if recent else ""
