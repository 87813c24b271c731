"""Jobs that read and write collections and are killed, on servers that crash or pause."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.mongodb.counting_job import DATABASE, KEYS
from tools.servers.mongodb import MongoServer

pytestmark = pytest.mark.mongodb
PAUSE_S = 1.0


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MongoServer]:
    """Start a separate server that the test kills and pauses."""
    with MongoServer(tmp_path_factory.mktemp("killed")) as server:
        yield server


@pytest.fixture
def written() -> str:
    return f"c{uuid.uuid4().hex[:10]}"


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Any]:
    """Yield a function that (re)starts the job. The job is killed at the end."""
    running: list[subprocess.Popen[bytes]] = []
    found = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    def start(server: MongoServer, read: str, written: str, parallelism: int) -> subprocess.Popen[bytes]:
        arguments = [str(tmp_path), server.url, read, written, str(parallelism)]
        with (tmp_path / "job.log").open("ab") as log:
            program = [sys.executable, "-m", "tests.integration.mongodb.counting_job", *arguments]
            process = subprocess.Popen(program, stdout=log, stderr=log, env=found)
        running.append(process)
        return process

    yield start
    for process in running:
        if process.poll() is None:
            process.kill()
        process.wait()


def counts(server: MongoServer, written: str) -> dict[str, int]:
    with server.client() as client:
        return {found["_id"]: found["count"] for found in client[DATABASE][written].find()}


def wait_for_progress(process: subprocess.Popen[bytes], server: MongoServer, written: str, beyond: int) -> int:
    while (reached := sum(counts(server, written).values())) <= beyond:
        assert process.poll() is None, "the job ended before the fault"
        time.sleep(0.1)
    return reached


def expected(count: int) -> dict[str, int]:
    return {f"k{key}": count // KEYS for key in range(KEYS)}


def fill(server: MongoServer, read: str, count: int) -> None:
    with server.client() as client:
        client[DATABASE][read].insert_many([{"_id": f"d{n:05}", "n": n} for n in range(count)])


def test_every_document_is_read_once_however_often_the_job_is_killed(own: MongoServer, job: Any, written: str) -> None:
    count, reached, read = 1_500, 0, f"{written}-in"
    fill(own, read, count)
    for parallelism in (2, 1, 2):
        process = job(own, read, written, parallelism)
        reached = wait_for_progress(process, own, written, reached)
        process.kill()
        process.wait()
    assert job(own, read, written, 1).wait(120) == 0
    assert counts(own, written) == expected(count)


def test_a_server_that_is_killed_or_paused_during_a_job_loses_nothing(own: MongoServer, job: Any, written: str) -> None:
    count, read = 1_500, f"{written}-in"
    fill(own, read, count)
    process = job(own, read, written, 2)
    reached = wait_for_progress(process, own, written, 0)
    own.kill()
    own.restart()
    wait_for_progress(process, own, written, reached)
    own.pause()
    time.sleep(PAUSE_S)  # the duration of the pause
    own.resume()
    assert process.wait(120) == 0
    assert counts(own, written) == expected(count)
