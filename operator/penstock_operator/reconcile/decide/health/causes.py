"""The terminations of the job's containers. Each termination is recorded once, counted, and reported. It is shown as
the reason why the job does not run.

Pure functions. Kubernetes shows the last termination of a container until its pod is gone or the container ends
again. After that, the reason for a restart of the job would be lost. So the status records the terminations of the
running incarnation. `status.ends` records which terminations were counted. `status.lastTermination` is shown in
conditions while the job is not RUNNING, and in the report on a failed revision. An event reports a repeated termination
at the first, second, fourth and eighth time, and so on. So hundreds of workers or days of restarts do not flood the
events.

Terminations are not observed in their order. When a worker is killed, other containers that depend on it end a moment
later, and a broken node reports later than a healthy node. So the status records a time for each container.
Terminations of the container up to this time were counted. A container that Kubernetes killed is shown in preference to
a container that exited at about the same time.

Restarts are read from counters. A pod counts the restarts of its containers, and the master's process counts failovers.
Each counter starts at 0 in a new pod or process. So the last value of each counter is stored next to the sums, and only
the increase is added. The sums of an incarnation never decrease, and the restarts of a deleted pod are not lost.
Increases that the operator never observed are not included.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from penstock_operator.api.status.incarnation import Ends, EndSeries, Termination
from penstock_operator.reconcile.observation import CONTAINER_FAILED

if TYPE_CHECKING:
    from penstock_operator.api.status.flinkjob_status import FlinkJobStatus
    from penstock_operator.api.status.incarnation import Running
    from penstock_operator.reconcile.decide.context import Context
    from penstock_operator.reconcile.observation import Terminated

SERIES = timedelta(hours=1)
"""Maximum time between two terminations of the same kind that are counted as one series."""
FOLLOWS = timedelta(seconds=30)
"""Maximum time between the end of a killed container and the end of another container that depends on it. It allows for
different clocks of nodes.
"""
PODS_GONE = 64
"""Maximum number of remembered pods that no longer exist. They are remembered because a stale copy may show them again."""
_FAILOVER = "failover"
_START = "#"
"""Separator between a pod and the restarts of its container. Together they identify one process."""
_SLACK = timedelta(minutes=2)
"""A termination may be the reason why the job stopped running if it occurred at most this long before the stop."""


def with_terminations(ctx: Context) -> Context:
    """Return the same context with new terminations in the status, and with events for them."""
    running = ctx.status.running
    if running is None:
        return ctx
    ends = _ends_of(ctx, running)
    mine = [pod for pod in ctx.seen.pods if pod.job_id == running.job_id]
    new = [(t.at or ctx.now, t) for pod in mine for t in pod.terminations if _is_new(ends, t)]
    for at, ended in sorted(new, key=lambda pair: (pair[0], pair[1].pod, pair[1].container)):
        series = _counted(ends, ended, at)
        others = tuple(s for s in ends.series if _series(s) != _series(series))
        ends = ends.model_copy(update={"counted": {**ends.counted, _key(ended): at}, "series": (*others, series)})
        ctx = _with_termination(ctx, ended, at, series, running.job_id)
    return _with_ends(ctx, _pruned(_with_restarts(ctx, ends), {pod.name for pod in mine}))


def restarts_of(ctx: Context, running: Running) -> int:
    """Return the number of restarts: restarts of the master's container, plus the larger of two numbers, failovers and
    restarts of worker containers.

    A restart of a worker's container causes a failover, unless the job was not running yet.
    """
    sums = _with_restarts(ctx, _ends_of(ctx, running)).restarts
    return max(sums.get(_FAILOVER, 0), sums.get("worker", 0)) + sums.get("master", 0)


def counted_failovers(status: FlinkJobStatus) -> int:
    """Return the number of counted failovers of the leading master."""
    ends, running = status.ends, status.running
    if ends is None or running is None or ends.job_id != running.job_id:
        return 0
    return next((count for key, count in ends.counted_restarts.items() if _START in key), 0)


def _ends_of(ctx: Context, running: Running) -> Ends:
    ends = ctx.status.ends
    return ends if ends is not None and ends.job_id == running.job_id else Ends(job_id=running.job_id)


def _with_ends(ctx: Context, ends: Ends) -> Context:
    nothing = ctx.status.ends is None and ends == Ends(job_id=ends.job_id)
    return ctx if nothing or ends == ctx.status.ends else ctx.with_status(ends=ends)


def _with_restarts(ctx: Context, ends: Ends) -> Ends:
    """Return the record with the increases of the counters since the last pass."""
    sums, counted = dict(ends.restarts), dict(ends.counted_restarts)
    pods = [pod for pod in ctx.seen.pods if pod.job_id == ends.job_id]
    for pod in pods:
        _count(sums, pod.role, counted, pod.name, pod.restarts)
    masters = [pod for pod in pods if pod.role == "master" and not pod.over]
    engine, leader = ctx.seen.engine, max(masters, key=lambda pod: (pod.created or ctx.now, pod.name), default=None)
    if leader is not None and engine.reachable and engine.job_id == ends.job_id:
        start = f"{leader.name}{_START}{leader.restarts}"
        counted = {key: count for key, count in counted.items() if _START not in key or key == start}
        if engine.restarts < counted.get(start, 0):  # the response comes from a process that the pod does not show
            del counted[start]
        _count(sums, _FAILOVER, counted, start, engine.restarts)
    return ends.model_copy(update={"restarts": sums, "counted_restarts": counted})


def _count(sums: dict[str, int], kind: str, counted: dict[str, int], counter: str, count: int) -> None:
    new = count - counted.get(counter, 0)
    if new > 0:
        sums[kind], counted[counter] = sums.get(kind, 0) + new, count


def _key(ended: Terminated) -> str:
    return f"{ended.pod}/{ended.container}"


def _is_new(ends: Ends, ended: Terminated) -> bool:
    """Return whether a termination was not counted yet. If the time of the end is not known, count the container at
    most once.
    """
    counted = ends.counted.get(_key(ended))
    return counted is None or (ended.at is not None and ended.at > counted)


def _series(found: EndSeries) -> tuple[str, str, str]:
    return found.role, found.container, found.reason


def _counted(ends: Ends, ended: Terminated, at: datetime) -> EndSeries:
    new = EndSeries(role=ended.role, container=ended.container, reason=ended.trouble.reason, count=1, since=at, time=at)
    before = next((s for s in ends.series if _series(s) == _series(new)), None)
    if before is None or at - before.time > SERIES:
        return new
    changes = {"count": before.count + 1, "since": min(before.since, at), "time": max(before.time, at)}
    return before.model_copy(update=changes)


def _pruned(ends: Ends, pods: set[str]) -> Ends:
    gone = sorted((at, key) for key, at in ends.counted.items() if key.partition("/")[0] not in pods)
    dropped = {key for _, key in gone[:-PODS_GONE]}
    surplus = sorted(name for name in ends.counted_restarts if name not in pods and _START not in name)[PODS_GONE:]
    changes = {
        "counted": {key: at for key, at in ends.counted.items() if key not in dropped},
        "counted_restarts": {name: count for name, count in ends.counted_restarts.items() if name not in surplus},
    }
    return ends.model_copy(update=changes)


def _with_termination(ctx: Context, ended: Terminated, at: datetime, series: EndSeries, job_id: str) -> Context:
    trouble = ended.trouble
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
        count=series.count,
        since=series.since,
    )
    ctx = ctx.with_status(last_termination=_shown(last_of_running(ctx), note))
    if series.count & (series.count - 1):
        return ctx
    key = f"{job_id}/{at.isoformat()}/{ended.pod}/{ended.container}/{trouble.reason}/{series.count}"
    return ctx.with_event(trouble.reason, in_words(note), warning=True, key=key)


def _shown(last: Termination | None, note: Termination) -> Termination:
    """Return the more important of two terminations: the termination that caused the other, otherwise the later
    termination."""
    if last is None or _is_cause(note, last):
        return note
    if (last.role, last.container, last.reason) == (note.role, note.container, note.reason):
        later = max(last, note, key=lambda t: t.time)
        return later.model_copy(update={"count": note.count, "since": note.since})
    return last if _is_cause(last, note) or note.time < last.time else note


def _is_cause(one: Termination, other: Termination) -> bool:
    killed = one.reason != CONTAINER_FAILED and other.reason == CONTAINER_FAILED
    return killed and one.pod != other.pod and abs(one.time - other.time) <= FOLLOWS


def in_words(note: Termination) -> str:
    """Describe what ended, how often, and the remedy."""
    often = f" ({note.count} times since {note.since:%H:%M:%S} UTC)" if note.count > 1 else f" ({_at(note.time)})"
    return f"{note.message}{often}. {note.remedy}"


def _at(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"


def last_of_running(ctx: Context) -> Termination | None:
    """Return the last termination of the incarnation that runs, or ran last."""
    running, last = ctx.status.running, ctx.status.last_termination
    return last if last is not None and running is not None and last.job_id == running.job_id else None


def cause(ctx: Context) -> str:
    """Describe the termination that keeps the job from running. Return an empty string if no termination does."""
    last, op = last_of_running(ctx), ctx.status.operation
    if last is None:
        return ""
    since = ctx.status.job_state_since or ctx.now
    recent = last.time >= since - _SLACK or (op is not None and op.step == "Watch")
    return in_words(last) if recent else ""
