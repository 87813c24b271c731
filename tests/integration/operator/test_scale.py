"""Two hundred FlinkJobs: how fast an edit is seen, what an idle fleet costs the API server, how large the process gets."""

from __future__ import annotations

import asyncio
import random
import re
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock_operator.kube.cluster import FLINKJOB
from tests.integration.operator.conftest import is_true

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.integration.operator.conftest import Site

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

JOBS = 200
EDITS = 60
WRITES = {"create", "apply", "post", "put", "patch", "delete"}


def written(port: int) -> float:
    """Writes to the API server that the operator has made, the Lease's left out."""
    page = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
    found = re.findall(r'penstock_api_requests_total\{verb="(\w+)",kind="(\w+)"\} (\d+)', page)
    return sum(float(count) for verb, kind, count in found if verb in WRITES and kind != "Lease")


def resident_megabytes(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no VmRSS")


def test_two_hundred_jobs(play: Callable[[Callable[[Site], Awaitable[None]]], None]) -> None:
    async def scenario(site: Site) -> None:
        site.masters.tick, site.masters.interval = 1.0, 20.0
        names = [f"job-{i:03d}" for i in range(JOBS)]
        for name in names:
            manifest = site.manifest(name, parallelism=1)
            manifest["spec"]["upgrade"] = {"check": False}
            manifest["spec"]["configuration"]["execution.checkpointing.interval"] = "20s"
            await site.cluster.create(manifest)
        operator = site.start_operator(PENSTOCK_WATCH_INTERVAL="15s")

        async def all_ready() -> bool:
            found = await site.cluster.list(FLINKJOB, site.namespace)
            return sum(is_true(f, "Ready") for f in found) == JOBS

        took = await site.until(all_ready, f"{JOBS} jobs are Ready", within=900, poll=3)
        await asyncio.sleep(70)

        before, begun = written(site.ports[0]), time.monotonic()
        await asyncio.sleep(60)
        minutes = (time.monotonic() - begun) / 60
        idle = (written(site.ports[0]) - before) / JOBS / minutes
        latencies = [await reaction(site, random.choice(names), number) for number in range(EDITS)]
        latencies.sort()
        p50, p99 = latencies[len(latencies) // 2], latencies[int(len(latencies) * 0.99) - 1]
        size = resident_megabytes(operator.pid)
        print(
            f"\n{JOBS} jobs: Ready after {took:.0f} s; idle writes per job and minute {idle:.2f}; "
            f"edit seen after p50 {p50:.2f} s, p99 {p99:.2f} s; {size:.0f} MB"
        )
        assert idle <= 1.0
        assert p99 <= 2.0
        assert size <= 300

    play(scenario)


async def reaction(site: Site, name: str, number: int) -> float:
    """Time from an edit to a status that speaks of it."""
    begun = time.monotonic()
    await site.edit(name, rollback={"after": f"{30 + number}s"})
    while True:
        found = await site.job(name) or {}
        if found["status"]["observedGeneration"] == found["metadata"]["generation"]:
            return time.monotonic() - begun
        await asyncio.sleep(0.02)
