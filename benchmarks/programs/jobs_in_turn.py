"""Many small jobs in one session, then many restarts of one job: memory and live objects after each hundred.

    python jobs_in_turn.py --jobs 500 --restarts 200

Everything runs in this process, so it shows all memory that a JobManager and its tasks keep. The session keeps ten ended jobs.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.process_tree import memory
from penstock.common.configuration import Configuration
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.graph.executor import executing_on
from penstock.graph.program import Program
from penstock.jobmanager.cluster.task_managers import Worker
from penstock.jobmanager.job.job_master import JobMaster
from penstock.jobmanager.job.settings import JobSettings
from penstock.jobmanager.process.session.session import Session
from penstock.jobmanager.runners.in_process import InProcessRunner
from penstock.taskmanager.worker import ManualClock

RECORDS = 100
RETAINED_JOBS = 10
READ_EVERY = 100
INTERVAL_MS = 10_000


class InProcess:
    """A provider that gives each job a runner, without a cluster."""

    def runner_for(self, slots: int, levels: int, settings: JobSettings, *, dataframes: bool) -> InProcessRunner:
        return InProcessRunner(slots)

    def task_managers(self) -> list[Worker]:
        return []

    def stop(self) -> None: ...


def environment(folder: Path) -> StreamExecutionEnvironment:
    """Return an environment with a program of two levels and keyed state."""
    env = StreamExecutionEnvironment(
        Configuration(
            {
                "rest.port": "-1",
                "jobstore.max-capacity": str(RETAINED_JOBS),
                "execution.checkpointing.interval": f"{INTERVAL_MS} ms",
                "execution.checkpointing.dir": folder.as_uri(),
            }
        )
    )
    numbers = env.from_collection(list(range(RECORDS))).uid("numbers")
    numbers.key_by(lambda value: value % 8).reduce(lambda one, other: one + other).uid("sums").add_sink(_discard)
    return env


def _discard(value: Any) -> None: ...


def run_jobs(count: int, folder: Path) -> list[dict[str, float]]:
    session = Session(InProcess())  # type: ignore[arg-type]

    def run_job() -> None:
        with executing_on(session):
            environment(folder).execute("one of many")

    try:
        return readings(count, run_job)
    finally:
        session.stop()


def restart_job(count: int, folder: Path) -> list[dict[str, float]]:
    clock = ManualClock(1_000_000)
    program: Program = environment(folder).get_program()
    settings = JobSettings.from_configuration(program.configuration)
    master = JobMaster(program, uuid.uuid4().hex, settings, clock).attach(InProcessRunner(1, clock))
    master.open()

    def restart() -> None:
        master.step(master.begin_attempt())
        master.discard_attempt("to be restarted")

    return readings(count, restart)


def readings(count: int, work: Callable[[], None]) -> list[dict[str, float]]:
    """Repeat the work, and take readings. The first one is after a tenth, when modules are loaded and caches are full."""
    found = []
    for done in range(1, count + 1):
        work()
        if done == max(1, count // 10) or done % READ_EVERY == 0 or done == count:
            gc.collect()
            found.append({"after": done, "mb": memory(os.getpid()) / 2**20, "objects": len(gc.get_objects())})
    return found


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--jobs", type=int, required=True)
    arguments.add_argument("--restarts", type=int, required=True)
    options = arguments.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="penstock-benchmark-heap-"))
    begin = time.time()
    try:
        found = {
            "jobs": run_jobs(options.jobs, folder / "jobs"),
            "restarts": restart_job(options.restarts, folder / "restarts"),
        }
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print("RESULT " + json.dumps({"begin": begin, "end": time.time(), **found}), flush=True)


if __name__ == "__main__":
    main()
