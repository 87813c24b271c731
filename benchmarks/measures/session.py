"""Jobs of a warm session cluster, one after the other: the time of each, and how much memory the session keeps after them."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import psutil

from benchmarks.comparison import RUNTIME

PROGRAM = """
from penstock.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
env.from_collection([(n % 2, n) for n in range(10)]).key_by(lambda pair: pair[0]).sum(1).print()
env.execute("ten records")
"""
JOBS = 1_000
WARM_UP = 100
"""Jobs before the first measurement of memory. The session keeps the data of the last hundred ended jobs."""
GOALS = {"start_s": 1.5, "growth_mb": 20}
POLL_S = 0.01


def session(records: int | None, repetitions: int) -> dict[str, Any]:
    """Run `records` jobs (default: 1,000) after 100 others. `repetitions` has no effect."""
    jobs = records or JOBS
    with tempfile.TemporaryDirectory(prefix="penstock-benchmark-") as folder:
        command = [sys.executable, "-m", "penstock.cli", "session", "--local", "-D", "rest.port=0"]
        environment = {**os.environ, "PYTHONPATH": str(RUNTIME)}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=folder)
        try:
            with _client(process) as client:
                return _measured(client, psutil.Process(process.pid), jobs)
        finally:
            process.terminate()
            process.wait(60)


def _client(process: subprocess.Popen[str]) -> httpx.Client:
    assert process.stdout is not None
    url = process.stdout.readline().split()[-1]
    token = Path(process.stdout.readline().strip().rpartition("=")[2]).read_text()
    return httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=120)


def _measured(client: httpx.Client, process: psutil.Process, jobs: int) -> dict[str, Any]:
    answer = client.post("/jars/upload", files={"jarfile": ("ten.py", PROGRAM)})
    program = str(answer.json()["filename"]).rsplit("/", 1)[1]
    for _ in range(min(WARM_UP, jobs)):
        _run(client, program)
    before = _memory(process)
    accepted, ended = zip(*(_run(client, program) for _ in range(jobs)), strict=True)
    after = _memory(process)
    return {
        "jobs": jobs,
        "accepted_s": round(statistics.median(accepted), 3),
        "ended_s": round(statistics.median(ended), 3),
        "ended_p99_s": round(sorted(ended)[int(0.99 * (jobs - 1))], 3),
        "memory_mb": before,
        "memory_after_mb": after,
        "growth_mb": {name: round(after[name] - before[name], 1) for name in before},
        "processes_after": len(process.children(recursive=True)),
        "goals": GOALS,
    }


def _run(client: httpx.Client, program: str) -> tuple[float, float]:
    """Run the program. Return the seconds until its job is accepted, and until it has finished."""
    start = time.monotonic()
    job_id = client.post(f"/jars/{program}/run").json()["jobid"]
    accepted = time.monotonic() - start
    while (status := json.loads(client.get(f"/jobs/{job_id}/status").text)["status"]) != "FINISHED":
        if status in ("FAILED", "CANCELED"):
            raise RuntimeError(f"job {job_id} is {status}")
        time.sleep(POLL_S)
    return accepted, time.monotonic() - start


def _memory(process: psutil.Process) -> dict[str, float]:
    """Return the resident memory of the session, of its process that forks programs, and of the driver's JVM in MB."""
    found = {"session": process.memory_info().rss / 2**20}
    for child in process.children():
        name = (
            "driver" if child.name() == "java" else "fork server" if "fork_server" in " ".join(child.cmdline()) else ""
        )
        if name:
            found[name] = child.memory_info().rss / 2**20
    return {name: round(value, 1) for name, value in found.items()}
