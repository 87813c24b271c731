"""The operator with many FlinkJobs, on a real API server with real controllers; kubelet and masters are simulated.

The operator runs as in its pod. The rest of the control plane runs on the same machine.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.process_tree import status as process_status

if TYPE_CHECKING:
    from tests.integration.operator.sim import Site

JOBS = 1000
EDITS = 200
AT_ONCE = 100
"""FlinkJobs in deployment at the same time."""
WITHIN_S = 2.5
"""Seconds until a job is Ready, in the mean of all jobs."""
SETTLE_S = 70.0
IDLE_S = 60.0
GOALS = {
    "start_to_first_reconcile_s": 5.0,
    "edit_seen_p99_s": 2.0,
    "idle_writes_per_job_and_minute": 1.0,
    "idle_reads_per_job_and_minute": 4.0,
    "idle_cpu_cores": 0.5,
    "rss_mb": 400,
}
WRITES = {"create", "apply", "post", "put", "patch", "delete"}


def operator(records: int | None, repetitions: int) -> dict[str, Any]:
    """Measure `records` FlinkJobs (default: 1,000) once: start, edits, an idle minute, memory, and a second start."""
    from tests.integration.operator.sim import install_crds, open_site
    from tools.devcluster import Cluster

    async def measured(control: Cluster, folder: Path) -> dict[str, Any]:
        async with open_site(control, folder) as site:
            return await measure(site, jobs=records or JOBS)

    with (
        # a simulated master may still write a checkpoint after the last measurement
        tempfile.TemporaryDirectory(prefix="penstock-benchmark-", ignore_cleanup_errors=True) as folder,
        Cluster("benchmark", level="control") as up,
    ):
        install_crds(up)
        figures = asyncio.run(measured(up, Path(folder)))
    return {"figures": figures, "goals": GOALS, "problems": missed(figures)}


def missed(figures: dict[str, Any]) -> list[str]:
    """Return the goals that were missed."""
    return [f"{name}: {figures[name]} is more than {most}" for name, most in GOALS.items() if figures[name] > most]


async def measure(site: Site, *, jobs: int = JOBS, edits: int = EDITS) -> dict[str, Any]:
    """Return all figures. The deployed jobs stay."""
    site.masters.tick, site.masters.interval, site.kubelet.poll = 1.0, 20.0, max(1.0, jobs / 200)
    names = [f"job-{i:03d}" for i in range(jobs)]
    for name in names[:AT_ONCE]:
        await _create(site, name)
    started = time.monotonic()
    process = site.start_operator(PENSTOCK_WATCH_INTERVAL="15s")
    first = await _until(lambda: _any_status(site, [names[0], names[:AT_ONCE][-1]]), started, within=60, poll=0.05)
    process, restarts = await _deploy_rest(site, names, process)
    ready = time.monotonic() - started
    _log(f"{jobs} jobs are Ready after {ready:.0f} s, the operator handled the first after {first:.1f} s")
    await asyncio.sleep(SETTLE_S)
    idle = await _idle(site, process.pid, jobs)
    _log(f"an idle minute: {idle}")
    seen = sorted([await _reaction(site, random.choice(names), number) for number in range(edits)])
    memory = _memory(process.pid)
    _log(
        f"{edits} edits were seen after {seen[0]:.2f} to {seen[-1]:.2f} s, half of them within {statistics.median(seen):.2f} s; {memory}"
    )
    process.terminate()  # it releases its Lease; after a kill, the next operator would wait 15 s for the Lease
    await asyncio.to_thread(process.wait, 60)
    started = time.monotonic()
    process = site.start_operator(PENSTOCK_WATCH_INTERVAL="15s")
    again = await _until(lambda: _passes(site, 1), started, within=60, poll=0.05)
    everything = await _until(lambda: _passes(site, jobs), started, within=300, poll=0.2)
    restarted = _memory(process.pid)
    return {
        "jobs": jobs,
        "start_to_first_reconcile_s": round(max(first, again), 2),
        "all_ready_s": round(ready, 1),
        "restarts_while_deploying": restarts,
        "restart_to_first_reconcile_s": round(again, 2),
        "restart_to_all_reconciled_s": round(everything, 1),
        "edits": edits,
        "edit_seen_p50_s": round(statistics.median(seen), 3),
        "edit_seen_p99_s": round(seen[max(int(len(seen) * 0.99) - 1, 0)], 3),
        "edit_seen_max_s": round(seen[-1], 3),
        **idle,
        **memory,
        "restart_rss_mb": restarted["rss_mb"],
        "restart_peak_mb": restarted["peak_mb"],
        "load": [round(load, 1) for load in os.getloadavg()],
    }


def _log(text: str) -> None:
    """Print the progress, because the run takes minutes."""
    print(text, file=sys.stderr, flush=True)


async def _deploy_rest(
    site: Site, names: list[str], process: subprocess.Popen[bytes]
) -> tuple[subprocess.Popen[bytes], int]:
    """Deploy jobs as fast as they become Ready, until all are. A thousand operations at once are not part of the measurement.

    Returns:
        The operator's process, and the number of its restarts. Like the kubelet, this function restarts the operator. It
        exits if it cannot renew its Lease within 10 s, for example because the API server gets no CPU.
    """
    created, ready, started, restarts = AT_ONCE, 0, time.monotonic(), 0
    while ready < len(names):
        if time.monotonic() - started > 300 + WITHIN_S * len(names):
            raise TimeoutError(f"{ready} of {len(names)} are Ready after {time.monotonic() - started:.0f} s")
        if process.poll() is not None:
            process, restarts = site.start_operator(PENSTOCK_WATCH_INTERVAL="15s"), restarts + 1
        ready = await _ready(site)
        batch = names[created : ready + AT_ONCE]
        await asyncio.gather(*(_create(site, name) for name in batch))
        created += len(batch)
        _log(f"{ready} of {len(names)} are Ready after {time.monotonic() - started:.0f} s")
        await asyncio.sleep(5)
    return process, restarts


async def _create(site: Site, name: str) -> None:
    manifest = site.manifest(name, parallelism=1)
    manifest["spec"]["upgrade"] = {"check": False}
    manifest["spec"]["configuration"]["execution.checkpointing.interval"] = "20s"
    await site.cluster.create(manifest)


async def _until(reached: Callable[[], Awaitable[bool]], started: float, *, within: float, poll: float) -> float:
    while not await reached():
        if time.monotonic() - started > within:
            raise TimeoutError(f"not within {within} s")
        await asyncio.sleep(poll)
    return time.monotonic() - started


async def _any_status(site: Site, names: list[str]) -> bool:
    return any([(await site.job(name) or {}).get("status") for name in names])


async def _ready(site: Site) -> int:
    from penstock_operator.kube.cluster import FLINKJOB
    from tests.integration.operator.sim import is_true

    found = await site.cluster.list(FLINKJOB, site.namespace)
    return sum(is_true(f, "Ready") for f in found)


async def _passes(site: Site, count: int) -> bool:
    try:
        page = await asyncio.to_thread(_page, site.ports[-1])
    except OSError:
        return False
    found = re.search(r'penstock_reconcile_seconds_count\{kind="FlinkJob"\} (\d+)', page)
    return found is not None and int(found[1]) >= count


async def _idle(site: Site, pid: int, jobs: int) -> dict[str, Any]:
    """Measure requests and CPU time of a minute without changes. Requests for the Lease are excluded."""
    before, cpu, started = _requests(site.ports[-1]), _cpu(pid), time.monotonic()
    await asyncio.sleep(IDLE_S)
    spent = _requests(site.ports[-1]) - before
    minutes = (time.monotonic() - started) / 60
    writes = Counter({key: n for key, n in spent.items() if key[0] in WRITES and key[1] != "Lease"})
    reads = sum(n for key, n in spent.items() if key[0] not in WRITES and key[1] != "Lease")
    return {
        "idle_writes_per_job_and_minute": round(sum(writes.values()) / jobs / minutes, 2),
        "idle_writes": {f"{verb} {kind}": n for (verb, kind), n in writes.most_common(5)},
        "idle_reads_per_job_and_minute": round(reads / jobs / minutes, 1),
        "idle_cpu_cores": round((_cpu(pid) - cpu) / minutes / 60, 3),
    }


async def _reaction(site: Site, name: str, number: int) -> float:
    """Return the seconds from an edit to a status that reflects it."""
    started = time.monotonic()
    await site.edit(name, rollback={"after": f"{300 + number}s"})
    while True:
        found = await site.job(name) or {}
        if found["status"]["observedGeneration"] == found["metadata"]["generation"]:
            return time.monotonic() - started
        await asyncio.sleep(0.02)


def _page(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


def _requests(port: int) -> Counter[tuple[str, str]]:
    found = re.findall(r'penstock_api_requests_total\{verb="(\w+)",kind="(\w+)"\} (\d+)', _page(port))
    return Counter({(verb, kind): int(count) for verb, kind, count in found})


def _cpu(pid: int) -> float:
    found = process_status(pid)
    return found.cpu_s if found else 0.0


def _memory(pid: int) -> dict[str, Any]:
    sizes = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    return {
        "rss_mb": round(int(sizes["VmRSS"].split()[0]) / 1024),
        "peak_mb": round(int(sizes["VmHWM"].split()[0]) / 1024),
    }
