"""A table of each format, and a job that writes to it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.lakehouse.lakes import COUNT, IN_PROCESS, LAKES, Lake


@pytest.fixture(params=IN_PROCESS)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return LAKES[request.param](tmp_path)


@pytest.fixture
def job(lake: Lake) -> Iterator[Any]:
    """Yield a function that (re)starts the job with a parallelism. The job is killed at the end."""
    running: list[subprocess.Popen[bytes]] = []
    name = next(name for name, kind in LAKES.items() if type(lake) is kind)
    found = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    def start(parallelism: int, moment: str = "", *, keyed: bool = False) -> subprocess.Popen[bytes]:
        program = ["-m", "tests.integration.lakehouse.tabled_job", str(lake.folder), name, str(COUNT), str(parallelism)]
        with (lake.folder / "job.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *program, moment, "keyed" if keyed else ""], stdout=log, stderr=log, env=found
            )
        running.append(process)
        return process

    yield start
    for process in running:
        if process.poll() is None:
            process.kill()
        process.wait()
