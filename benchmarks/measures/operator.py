"""The operator with many FlinkJobs, on a real API server with real controllers; kubelet and masters are simulated.

A process of the operator as it runs in its pod; everything else of the control plane shares the machine with it.
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
"""FlinkJobs that are being deployed at the same time."""
WITHIN_S = 2.5
"""Seconds for a job to become Ready, of all of them together."""
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
    """`records` FlinkJobs (1,000 unless given), once: start, edits, an idle minute, memory, and another start."""
    from tests.integration.operator.sim import install_crds, open_site
    from tools.devcluster import Cluster

    async def measured(control: Cluster, folder: Path) -> dict[str, Any]:
        async with open_site(control, folder) as site:
            return await measure(site, jobs=records or JOBS)

    with (
        # a checkpoint of a simulated master may still be on its way when all is measured
        tempfile.TemporaryDirectory(prefix="penstock-benchmark-", ignore_cleanup_errors=True) as folder,
        Cluster("benchmark", level="control") as up,
    ):
        install_crds(up)
        figures = asyncio.run(measured(up, Path(folder)))
    return {"figures": figures, "goals": GOALS, "problems": missed(figures)}


def missed(figures: dict[str, Any]) -> list[str]:
    """Goals that were not reached."""
    return [f"{name}: {figures[name]} is more than {most}" for name, most in GOALS.items() if figures[name] > most]


async def measure(site: Site, *, jobs: int = JOBS, edits: int = EDITS) -> dict[str, Any]:
    """All figures; the jobs are deployed, and stay."""
    site.masters.tick, site.masters.interval, site.kubelet.poll = 1.0, 20.0, max(1.0, jobs / 200)
    names = [f"job-{i:03d}" for i in range(jobs)]
    for name in names[:AT_ONCE]:
        await _create(site, name)
    begun = time.monotonic()
    process = site.start_operator(PENSTOCK_WATCH_INTERVAL="15s")
    first = await _until(lambda: _any_status(site, [names[0], names[:AT_ONCE][-1]]), begun, within=60, poll=0.05)
    process, restarts = await _deploy_rest(site, names, process)
    ready = time.monotonic() - begun
    _tell(f"{jobs} jobs are Ready after {ready:.0f} s, the first was looked at after {first:.1f} s")
    await asyncio.sleep(SETTLE_S)
    idle = await _idle(site, process.pid, jobs)
    _tell(f"an idle minute: {idle}")
    seen = sorted([await _reaction(site, random.choice(names), number) for number in range(edits)])
    memory = _memory(process.pid)
    _tell(
        f"{edits} edits were seen after {seen[0]:.2f} to {seen[-1]:.2f} s, half of them within {statistics.median(seen):.2f} s; {memory}"
    )
    process.terminate()  # gives its Lease back; one that is killed is waited for 15 s
    await asyncio.to_thread(process.wait, 60)
    begun = time.monotonic()
    process = site.start_operator(PENSTOCK_WATCH_INTERVAL="15s")
    again = await _until(lambda: _passes(site, 1), begun, within=60, poll=0.05)
    everything = await _until(lambda: _passes(site, jobs), begun, within=300, poll=0.2)
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


def _tell(text: str) -> None:
    """How far it is; the whole takes minutes."""
    print(text, file=sys.stderr, flush=True)


async def _deploy_rest(
    site: Site, names: list[str], process: subprocess.Popen[bytes]
) -> tuple[subprocess.Popen[bytes], int]:
    """As fast as they become Ready, until all are: a thousand operations at once are not what is measured.

    Returns:
        The operator's process, and how often it had to be started again, as the kubelet does: one that cannot renew its
        Lease within 10 s, for the API server gets no processor, ends.
    """
    created, ready, begun, restarts = AT_ONCE, 0, time.monotonic(), 0
    while ready < len(names):
        if time.monotonic() - begun > 300 + WITHIN_S * len(names):
            raise TimeoutError(f"{ready} of {len(names)} are Ready after {time.monotonic() - begun:.0f} s")
        if process.poll() is not None:
            process, restarts = site.start_operator(PENSTOCK_WATCH_INTERVAL="15s"), restarts + 1
        ready = await _ready(site)
        batch = names[created : ready + AT_ONCE]
        await asyncio.gather(*(_create(site, name) for name in batch))
        created += len(batch)
        _tell(f"{ready} of {len(names)} are Ready after {time.monotonic() - begun:.0f} s")
        await asyncio.sleep(5)
    return process, restarts


async def _create(site: Site, name: str) -> None:
    manifest = site.manifest(name, parallelism=1)
    manifest["spec"]["upgrade"] = {"check": False}
    manifest["spec"]["configuration"]["execution.checkpointing.interval"] = "20s"
    await site.cluster.create(manifest)


async def _until(reached: Callable[[], Awaitable[bool]], begun: float, *, within: float, poll: float) -> float:
    while not await reached():
        if time.monotonic() - begun > within:
            raise TimeoutError(f"not within {within} s")
        await asyncio.sleep(poll)
    return time.monotonic() - begun


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
    """Requests and CPU time of a minute in which nobody changes anything; those for the Lease are left out."""
    before, cpu, begun = _requests(site.ports[-1]), _cpu(pid), time.monotonic()
    await asyncio.sleep(IDLE_S)
    spent = _requests(site.ports[-1]) - before
    minutes = (time.monotonic() - begun) / 60
    writes = Counter({key: n for key, n in spent.items() if key[0] in WRITES and key[1] != "Lease"})
    reads = sum(n for key, n in spent.items() if key[0] not in WRITES and key[1] != "Lease")
    return {
        "idle_writes_per_job_and_minute": round(sum(writes.values()) / jobs / minutes, 2),
        "idle_writes": {f"{verb} {kind}": n for (verb, kind), n in writes.most_common(5)},
        "idle_reads_per_job_and_minute": round(reads / jobs / minutes, 1),
        "idle_cpu_cores": round((_cpu(pid) - cpu) / minutes / 60, 3),
    }


async def _reaction(site: Site, name: str, number: int) -> float:
    """Seconds from an edit to a status that speaks of it."""
    begun = time.monotonic()
    await site.edit(name, rollback={"after": f"{300 + number}s"})
    while True:
        found = await site.job(name) or {}
        if found["status"]["observedGeneration"] == found["metadata"]["generation"]:
            return time.monotonic() - begun
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
