"""A worker's process does little and runs in every pod, so it must be small."""

from __future__ import annotations

import subprocess
import sys

HEAVY = (
    "numpy",
    "pyarrow",
    "pyspark",
    "pydantic",
    "httpx",
    "rich",
    "typer",
    "fastapi",
    "penstock.jobmanager.job",
    "penstock.checkpoint.coordinator",
    "penstock.datastream",
)


def test_the_process_of_a_worker_imports_no_modules_that_run_jobs() -> None:
    program = (
        "import sys, penstock.jobmanager.process.worker.worker_launch as launch, penstock.cli.start as start\n"
        "launch.run_worker = lambda **asked: print(*sys.modules)\n"
        "sys.argv = ['penstock', 'worker', '--master', 'm.ns.svc:7077', '--slots', '2']\n"
        "start.main()"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert "penstock.jobmanager.process.worker.worker_process" in found
    assert [name for name in found if name.startswith(HEAVY)] == []
