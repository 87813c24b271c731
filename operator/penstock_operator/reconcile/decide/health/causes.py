"""What has ended containers of the job: noted once each, counted, told, and shown as why the job does not run. Pure.

Kubernetes shows how a container ended last for as long as its pod is there and does not end again; then it is lost, with
the reason why the job restarts. So the ends of the incarnation that runs are noted in the status: `status.ends` says which
have been counted, and `status.lastTermination` is shown in conditions while the job is not RUNNING and in what is said of a
revision that is given up. An end that comes again and again is told in an event at the first, second, fourth, eighth, …
time, so that hundreds of workers or days of restarts do not flood the events.

Ends are not seen in the order in which they happened. When a worker is killed, others that depended on it end a moment
later, and a node in trouble (which is what kills) reports later than one that is well. So each container has a time of its own up to
which its ends are counted, and what Kubernetes has killed is shown rather than what ended by itself at about the same time.

Restarts are told by counters: of a container by its pod, of failovers by the master's process. Both begin anew with a new pod or
process. So what each counter has told is noted beside the sums, and only what it has told since is added: the sums of an incarnation
never fall, and what a pod had told is not lost with it. What a counter never told to anybody nobody knows.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from penstock_operator.api.status import Ends, EndSeries, Termination
from penstock_operator.reconcile.observation import CONTAINER_FAILED

if TYPE_CHECKING:
    from penstock_operator.api.status import FlinkJobStatus, Running
    from penstock_operator.reconcile.decide.context import Context
    from penstock_operator.reconcile.observation import Terminated

SERIES = timedelta(hours=1)
"""The same end, no later than this after the last one, is counted with it."""
FOLLOWS = timedelta(seconds=30)
"""What ends by itself so soon after or before another container was killed did so because of that; clocks of nodes differ."""
PODS_GONE = 64
"""So many pods that are not seen any more are remembered: a copy that is late shows them once more."""
_FAILOVER = "failover"
_START = "#"
"""Between a pod and how often its container was restarted: names one process."""
_SLACK = timedelta(minutes=2)
"""So long before the job is seen not to run may be what ended it."""


def noted(ctx: Context) -> Context:
    """The same context with what has ended since the last look in the status, and told."""
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
        ctx = _told(ctx, ended, at, series, running.job_id)
    return _kept(ctx, _pruned(_with_restarts(ctx, ends), {pod.name for pod in mine}))


def restarts_of(ctx: Context, running: Running) -> int:
    """Failovers and restarts of the master's container; a worker's container that is restarted makes a failover, unless the job
    has not come so far."""
    sums = _with_restarts(ctx, _ends_of(ctx, running)).restarts
    return max(sums.get(_FAILOVER, 0), sums.get("worker", 0)) + sums.get("master", 0)


def failovers_told(status: FlinkJobStatus) -> int:
    """How many failovers of the master that leads are counted."""
    ends, running = status.ends, status.running
    if ends is None or running is None or ends.job_id != running.job_id:
        return 0
    return next((count for key, count in ends.told.items() if _START in key), 0)


def _ends_of(ctx: Context, running: Running) -> Ends:
    ends = ctx.status.ends
    return ends if ends is not None and ends.job_id == running.job_id else Ends(job_id=running.job_id)


def _kept(ctx: Context, ends: Ends) -> Context:
    nothing = ctx.status.ends is None and ends == Ends(job_id=ends.job_id)
    return ctx if nothing or ends == ctx.status.ends else ctx.with_status(ends=ends)


def _with_restarts(ctx: Context, ends: Ends) -> Ends:
    """With what the counters have told since the last look."""
    sums, told = dict(ends.restarts), dict(ends.told)
    pods = [pod for pod in ctx.seen.pods if pod.job_id == ends.job_id]
    for pod in pods:
        _count(sums, pod.role, told, pod.name, pod.restarts)
    masters = [pod for pod in pods if pod.role == "master" and not pod.over]
    engine, leader = ctx.seen.engine, max(masters, key=lambda pod: (pod.created or ctx.now, pod.name), default=None)
    if leader is not None and engine.reachable and engine.job_id == ends.job_id:
        start = f"{leader.name}{_START}{leader.restarts}"
        told = {key: count for key, count in told.items() if _START not in key or key == start}
        if engine.restarts < told.get(start, 0):  # another process answers than the one that the pod tells of
            del told[start]
        _count(sums, _FAILOVER, told, start, engine.restarts)
    return ends.model_copy(update={"restarts": sums, "told": told})


def _count(sums: dict[str, int], kind: str, told: dict[str, int], counter: str, count: int) -> None:
    new = count - told.get(counter, 0)
    if new > 0:
        sums[kind], told[counter] = sums.get(kind, 0) + new, count


def _key(ended: Terminated) -> str:
    return f"{ended.pod}/{ended.container}"


def _is_new(ends: Ends, ended: Terminated) -> bool:
    """A container whose end has no time has ended at most once as far as that can be told."""
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
    left = sorted(name for name in ends.told if name not in pods and _START not in name)[PODS_GONE:]
    changes = {
        "counted": {key: at for key, at in ends.counted.items() if key not in dropped},
        "told": {name: count for name, count in ends.told.items() if name not in left},
    }
    return ends.model_copy(update=changes)


def _told(ctx: Context, ended: Terminated, at: datetime, series: EndSeries, job_id: str) -> Context:
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
    return ctx.tell(trouble.reason, in_words(note), warning=True, key=key)


def _shown(last: Termination | None, note: Termination) -> Termination:
    """Which of two ends says more of why the job does not run: the cause of the other one, else the later one."""
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
