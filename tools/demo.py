"""`make demo`: run the main job on real input, on a cluster of real processes with a real S3 server, and change it while it runs.

The cluster is a JobManager with the embedded ResourceManager in this process, two worker processes with two slots each, and
an S3 server. The job is `examples/airport_weather`, with the manifest that Kubernetes gets. While it runs, the demo

1. takes a savepoint,
2. rescales the job live from 2 to 4 to 3 subtasks,
3. kills a worker and all of its child processes with SIGKILL.

At the end, the demo reads the output from S3. It compares every record with the result that DuckDB computes in one pass.
The exit code is 0 only if they are equal.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import fsspec
import pyarrow.parquet as pq
import yaml

from penstock.cli.client import RestClient
from penstock.cli.live import LiveView
from penstock.jobmanager.cluster.local_cluster import LocalCluster
from penstock.jobmanager.process.launch import command_line
from penstock.jobmanager.process.session.embedded import EmbeddedExecutor
from penstock.jobmanager.process.session.entry import run_script_on
from tools.servers.s3 import S3Server

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "airport_weather"
BUILD = ROOT / "build" / "demo"
BUCKET = "penstock"
RECORDS_PER_EPOCH = 50
"""Records of one source subtask per epoch. Without a limit the job reads a year of weather within a second.
Only the batched runner supports it.
"""


@dataclass
class Story:
    """The actions of the demo on the job, for the result file."""

    savepoint: str = ""
    rescales: list[int] = field(default_factory=list)
    killed_worker: int = 0
    restarts: int = 0
    checkpoints: int = 0
    problems: list[str] = field(default_factory=list)


def main() -> int:
    shutil.rmtree(BUILD, ignore_errors=True)
    BUILD.mkdir(parents=True)
    manifest = yaml.safe_load((EXAMPLE / "flinkjob.yaml").read_text())
    print(
        "penstock demo: starting a real S3 server and a cluster of two workers (this takes some seconds) …", flush=True
    )
    with S3Server(BUILD / "s3") as s3:
        s3.create_bucket(BUCKET)
        os.environ.update(s3.exports())
        story = Story()
        job_id = _run(manifest["spec"], story)
        equal, comparison = compare(_options(manifest["spec"]))
    result = {"job_id": job_id, "equal": equal, "comparison": comparison, **story.__dict__}
    (BUILD / "result.json").write_text(json.dumps(result, indent=2) + "\n")
    print(f"\n{json.dumps(comparison)}\nresult: {BUILD / 'result.json'}")
    if not equal or story.problems:
        print("FAILED: " + "; ".join(story.problems or ["the output differs from DuckDB's"]), file=sys.stderr)
        return 1
    print("the job's output equals DuckDB's, record for record")
    return 0


def _options(spec: dict[str, Any]) -> str:
    """Return the output directory that the manifest's arguments name."""
    arguments = spec["job"]["args"]
    return str(arguments[arguments.index("--output") + 1])


def _run(spec: dict[str, Any], story: Story) -> str:
    configuration = {
        **{key: str(value) for key, value in spec["configuration"].items()},
        "execution.checkpointing.dir": spec["storage"]["checkpoints"],
        "execution.checkpointing.savepoint-dir": spec["storage"]["savepoints"],
        "taskmanager.numberOfTaskSlots": str(spec["worker"]["slots"]),
        "penstock.runner": "batched",
        "penstock.epoch.max-records": str(RECORDS_PER_EPOCH),
        "rest.port": "0",
    }
    executor = EmbeddedExecutor()
    executor.provider.least_workers = 2
    executor.session.on_line = None
    started = threading.Event()
    job_ids: list[str] = []

    def on_started(master: Any) -> None:
        job_ids.append(master.job_id)
        started.set()

    executor.session.on_started = on_started
    director = threading.Thread(target=_direct, args=(executor, job_ids, started, story), daemon=True)
    director.start()
    entry = str(EXAMPLE / spec["job"]["entry"])
    try:
        run_script_on(executor, entry, spec["job"]["args"], command_line(configuration, spec["job"]["parallelism"]))
        director.join(60)
    finally:
        executor.stop()
    return job_ids[0]


def _direct(executor: EmbeddedExecutor, job_ids: list[str], started: threading.Event, story: Story) -> None:
    """Change the running job through REST, like its operator, and kill a worker by its process id."""
    started.wait()
    job_id = job_ids[0]
    client = RestClient(executor.rest_url)
    view = LiveView(lambda: client.progress(job_id).model_dump(by_alias=True)).start()
    try:
        _wait_for(lambda: client.job(job_id).state == "RUNNING", 180)
        _wait_for(lambda: client.checkpoints(job_id).counts.completed >= 1, 60)
        view.note("taking a savepoint")
        story.savepoint = client.wait(client.savepoint(job_id, None), "the savepoint", 120).location or ""
        view.note(f"savepoint {story.savepoint}")
        for parallelism in (4, 3):
            view.note(f"rescaling live to parallelism {parallelism}")
            client.wait(client.rescale(job_id, parallelism), "the rescale", 120)
            story.rescales.append(parallelism)
        cluster = executor.provider.cluster
        assert isinstance(cluster, LocalCluster)
        number, pid = sorted(cluster.workers.items())[-1]
        view.note(f"killing worker {number} (pid {pid}, SIGKILL, with its executors)")
        story.killed_worker = pid
        cluster.kill_worker(number)
        _wait_for(lambda: executor.session.dispatcher.jobs()[0].is_done, 300)
        master = executor.session.dispatcher.jobs()[0]
        story.restarts = master.history.restarts
        story.checkpoints = client.checkpoints(job_id).counts.completed
        if story.restarts < 1:
            story.problems.append("the job ended before it noticed that a worker was killed")
    except Exception as error:
        story.problems.append(f"{type(error).__name__}: {error}")
    finally:
        view.stop()


def _wait_for(condition: Any, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the condition was not met within {timeout_s:.0f} s")
        time.sleep(0.1)


def compare(output: str, data: str = str(EXAMPLE / "data")) -> tuple[bool, dict[str, Any]]:
    """Compare the job's output with DuckDB's. Return whether they are equal, and the counts and first differences."""
    fs, path = fsspec.core.url_to_fs(output)
    days = [
        tuple(row[c] for c in ("station", "day", "mean", "minimum", "maximum", "readings"))
        for file in fs.find(f"{path}/days")
        for row in pq.read_table(fs.open(file, "rb")).to_pylist()
    ]
    alerts = [
        tuple(json.loads(line)[c] for c in ("station", "time", "celsius", "hours"))
        for file in fs.find(f"{path}/alerts")
        for line in fs.cat_file(file).splitlines()
    ]
    expected = duckdb.connect()
    expected.execute("SET TimeZone = 'UTC'")
    expected.execute((EXAMPLE / "expected.sql").read_text().replace("${DATA}", data))
    report: dict[str, Any] = {}
    equal = True
    for name, got, query in (
        ("days", days, "SELECT station, day, mean, minimum, maximum, readings FROM days"),
        ("alerts", alerts, "SELECT station, time, celsius, hours FROM alerts"),
    ):
        wanted = sorted(expected.execute(query).fetchall())
        got = sorted(got)
        different = (
            [(w, g) for w, g in zip(wanted, got, strict=False) if not all(map(_same, w, g))]
            if len(wanted) == len(got)
            else [(len(wanted), len(got))]
        )
        report[name] = {"expected": len(wanted), "got": len(got), "different": len(different)}
        if different:
            equal = False
            report[name]["first"] = [str(pair) for pair in different[:3]]
    return equal, report


def _same(wanted: Any, got: Any) -> bool:
    """Return whether two values are equal. Floats may differ in the last bits, because these depend on the order of addition."""
    if isinstance(wanted, float):
        return math.isclose(wanted, got, rel_tol=1e-12, abs_tol=1e-12)
    return bool(wanted == got)


if __name__ == "__main__":
    sys.exit(main())
