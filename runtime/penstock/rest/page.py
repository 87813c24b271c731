"""The overview page: what a person sees who opens the REST port in a browser. Plain HTML, nothing from elsewhere."""

from __future__ import annotations

import time
from html import escape
from typing import TYPE_CHECKING

from penstock import __version__
from penstock.rest.views.ids import duration
from penstock.rest.views.states import ENDED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.rest import facts

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --ok: #1a7f37; --bad: #c62828; --busy: #9a6700; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin: 0 0 .2rem } h2 { font-size: 1.05rem; margin: 2rem 0 .4rem }
p { margin: .2rem 0 } .muted { opacity: .7 }
table { border-collapse: collapse; width: 100% } th { text-align: left; font-weight: 600 }
th, td { border-bottom: 1px solid var(--line); padding: .35rem .8rem .35rem 0; vertical-align: top }
td.n { text-align: right; font-variant-numeric: tabular-nums } code { font-size: .9em }
.RUNNING, .FINISHED { color: var(--ok) } .FAILED, .FAILING { color: var(--bad) }
.RESTARTING, .INITIALIZING, .CREATED, .CANCELLING { color: var(--busy) }
"""


def overview_page(cluster: facts.Cluster, jobs: Iterable[facts.Job], now: int) -> str:
    """The whole page as a string. `now`: ms since the epoch."""
    newest_first = sorted(jobs, key=lambda job: job.start, reverse=True)
    running = [job for job in newest_first if job.state not in ENDED]
    ended = [job for job in newest_first if job.state in ENDED]
    used = cluster.slots_total - cluster.slots_available
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8><title>Penstock</title>"
        '<meta name=viewport content="width=device-width"><meta http-equiv=refresh content=5>'
        f"<style>{_STYLE}</style></head><body><h1>Penstock</h1>"
        f"<p class=muted>{__version__} · {_time(now)} · this page renews itself every 5 s</p>"
        f"<p>{len(cluster.task_managers)} TaskManagers, {used} of {cluster.slots_total} slots in use</p>"
        f"<h2>Running jobs</h2>{_jobs(running, now) or '<p class=muted>None.</p>'}"
        f"<h2>Ended jobs</h2>{_jobs(ended, now) or '<p class=muted>None.</p>'}"
        f"<h2>TaskManagers</h2>{_task_managers(cluster) or '<p class=muted>None is registered.</p>'}"
        '<h2>API</h2><p><a href="/overview">/overview</a> · <a href="/jobs/overview">/jobs/overview</a> · '
        '<a href="/taskmanagers">/taskmanagers</a> · <a href="/jobmanager/config">/jobmanager/config</a> · '
        '<a href="/metrics">/metrics</a> · <a href="/openapi.json">/openapi.json</a></p></body></html>'
    )


def _jobs(jobs: list[facts.Job], now: int) -> str:
    if not jobs:
        return ""
    head = ("Job", "State", "Started", "Duration", "Parallelism", "Epoch", "Records/s", "Watermark", "Restarts")
    return _table(head, (_job(job, now) for job in jobs))


def _job(job: facts.Job, now: int) -> str:
    failure = ""
    if job.failures and job.state != "RUNNING":
        newest = job.failures[-1]
        failure = f"<br><span class=muted>{escape(newest.name)}: {escape(newest.message[:300])}</span>"
    watermark = job.progress.watermark
    job_id = escape(job.id, quote=True)
    return (
        f'<td><a href="/jobs/{job_id}">{escape(job.name)}</a><br><code class=muted>{job_id}</code>{failure}</td>'
        f'<td class="{escape(job.state, quote=True)}">{escape(job.state)}</td><td>{_time(job.start)}</td>'
        + _number(_seconds(duration(job.start, job.end, now)))
        + _number(str(job.parallelism))
        + _number(str(job.progress.epoch))
        + _number(f"{job.progress.records_per_second:,.0f}")
        + f"<td>{'-' if watermark is None else _time(watermark)}</td>"
        + _number(str(job.restarts))
    )


def _task_managers(cluster: facts.Cluster) -> str:
    if not cluster.task_managers:
        return ""
    rows = (
        f"<td><code>{escape(worker.id)}</code></td><td>{escape(worker.host)}</td>"
        + _number(str(worker.slots))
        + _number(str(worker.free_slots))
        + _number(f"{worker.memory_used / 2**20:,.0f} MB")
        for worker in cluster.task_managers
    )
    return _table(("Id", "Host", "Slots", "Free", "Memory"), rows)


def _table(head: Iterable[str], rows: Iterable[str]) -> str:
    cells = "".join(f"<th>{name}</th>" for name in head)
    return f"<table><tr>{cells}</tr>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def _number(text: str) -> str:
    return f"<td class=n>{escape(text)}</td>"


def _time(ms: int) -> str:
    if ms < 0:
        return "-"
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(ms / 1000))


def _seconds(ms: int) -> str:
    hours, rest = divmod(max(ms, 0) // 1000, 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}"
