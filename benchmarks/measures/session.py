"""Jobs of a session cluster: two at the same instant in a fresh cluster, then many one after the other. The result has the time of each, and the
memory and the files that the cluster keeps after them.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psutil

from benchmarks.comparison import RUNTIME
from benchmarks.process_tree import descendants

PROGRAM = """
from penstock.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
env.from_collection([(n % 2, n) for n in range(10)]).key_by(lambda pair: pair[0]).sum(1).print()
env.execute("ten records")
"""
JOBS = 1_000
WARM_UP = 100
"""Jobs before the first measurement. The session keeps the data of the last hundred ended jobs."""
READ_EVERY = 100
GOALS = {"start_s": 1.5, "growth_mb": 20}
POLL_S = 0.01


def session(records: int | None, repetitions: int) -> dict[str, Any]:
    """Run `records` jobs (default: 1,000) after 100 others. `repetitions` has no effect."""
    jobs = records or JOBS
    with tempfile.TemporaryDirectory(prefix="penstock-benchmark-") as name:
        folder = Path(name)
        (folder / "tmp").mkdir()
        command = [sys.executable, "-m", "penstock.cli", "session", "--local", "-D", "rest.port=0"]
        command += ["-D", f"high-availability.storageDir={folder}/storage"]
        environment = {**os.environ, "PYTHONPATH": str(RUNTIME), "TMPDIR": f"{folder}/tmp"}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=folder)
        try:
            with _client(process) as client:
                return _measured(client, process.pid, folder, jobs)
        except httpx.TransportError as error:
            raise RuntimeError(f"the session does not respond. Its exit code is {process.poll()}") from error
        finally:
            process.terminate()
            process.wait(60)


def _client(process: subprocess.Popen[str]) -> httpx.Client:
    assert process.stdout is not None
    url = process.stdout.readline().split()[-1]
    token = Path(process.stdout.readline().strip().rpartition("=")[2]).read_text()
    return httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=120)


def _measured(client: httpx.Client, pid: int, folder: Path, jobs: int) -> dict[str, Any]:
    answer = client.post("/jars/upload", files={"jarfile": ("ten.py", PROGRAM)})
    program = str(answer.json()["filename"]).rsplit("/", 1)[1]
    with ThreadPoolExecutor(2) as pool:
        fresh = [ended for _, ended in pool.map(lambda _: _run(client, program), range(2))]
    for _ in range(WARM_UP):
        _run(client, program)
    readings = [_reading(pid, folder)]
    times: list[tuple[float, float]] = []
    for number in range(1, jobs + 1):
        times.append(_run(client, program))
        if number % READ_EVERY == 0 or number == jobs:
            readings.append({"after": number, **_reading(pid, folder)})
    accepted, ended = zip(*times, strict=True)
    first, last = readings[0], readings[-1]
    return {
        "jobs": jobs,
        "two_at_once_in_a_fresh_cluster_s": [round(value, 2) for value in fresh],
        "accepted_s": round(statistics.median(accepted), 3),
        "ended_s": round(statistics.median(ended), 3),
        "ended_p99_s": round(sorted(ended)[int(0.99 * (jobs - 1))], 3),
        "growth": {name: round(last[name] - first.get(name, 0), 1) for name in last if name != "after"},
        "readings": readings,
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


def _reading(pid: int, folder: Path) -> dict[str, float]:
    """Return the memory of the cluster's processes in MB, and the number and size of the files in its temporary folder and its storage.

    A process counts with its share of pages that several processes have (PSS).
    """
    found: dict[str, float] = defaultdict(float)
    for one in descendants(pid):
        try:
            process = psutil.Process(one)
            name, size = _role(process, pid), process.memory_full_info().pss / 2**20
        except psutil.Error:
            continue
        found[f"{name}_mb"] += size
        found["all_mb"] += size
        found["processes"] += 1
    for place in ("tmp", "storage"):
        files = [path for path in (folder / place).rglob("*") if path.is_file()]
        found[f"{place}_files"] = len(files)
        found[f"{place}_kb"] = sum(path.stat().st_size for path in files if path.exists()) / 1024
    return {name: round(value, 1) for name, value in found.items()}


def _role(process: psutil.Process, session: int) -> str:
    command = " ".join(process.cmdline())
    if process.pid == session:
        return "session"
    if process.name() == "java":
        return "driver" if "SparkSubmit" in command else "executor"
    return "fork_server" if "fork_server" in command else "python"
