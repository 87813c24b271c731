"""Entries -> keyed state -> entries, each exactly once, under any fault at any time."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.redis.streams import Stream
from tools.servers.redis import RedisServer

pytestmark = pytest.mark.redis


class Job:
    """The job in a separate process, and the stream that it writes."""

    def __init__(self, folder: Path, reads: Stream) -> None:
        self._folder = folder
        self.reads = reads
        self.writes = Stream(reads.server)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, parallelism: int, moment: str = "") -> None:
        arguments = [
            str(self._folder),
            self.reads.server.url,
            self.reads.name,
            self.writes.name,
            str(parallelism),
            moment,
        ]
        found = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        with (self._folder / "job.log").open("ab") as log:
            program = [sys.executable, "-m", "tests.integration.redis.streamed_job", *arguments]
            self.process = subprocess.Popen(program, stdout=log, stderr=log, env=found)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def until_written(self, count: int, patience: float = 90.0) -> None:
        assert self.process is not None
        deadline = time.monotonic() + patience
        while len(self.writes.entries()) < count:
            assert self.process.poll() is None, (self._folder / "job.log").read_text()[-3000:]
            assert time.monotonic() < deadline, f"{len(self.writes.entries())} of {count} after {patience:.0f} s"
            time.sleep(0.05)

    def seen(self) -> dict[int, int]:
        """Return the last number of each key."""
        with self.writes.client as client:
            return {int(key): int(number) for key, number in client.hgetall(f"{self.writes.name}:seen").items()}


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Any]:
    jobs: list[Job] = []

    def make(reads: Stream) -> Job:
        jobs.append(Job(tmp_path, reads))
        return jobs[-1]

    yield make
    for found in jobs:
        found.kill()


@pytest.mark.parametrize("moment", ["before", "within", "after"])
def test_a_job_killed_at_any_moment_of_a_commit_is_committed_once_by_its_successor(
    redis_server: RedisServer, job: Any, moment: str
) -> None:
    reads = Stream(redis_server)
    with reads.client as client:
        client.flushdb()  # the job has the same id in each test
    reads.add(range(100))
    found = job(reads)
    found.start(2, moment)
    number = 100
    deadline = time.monotonic() + 60
    while found.process.poll() is None and time.monotonic() < deadline:
        reads.add(range(number, number + 100))
        number += 100
        time.sleep(0.05)
    assert found.process.returncode == -signal.SIGKILL
    found.start(1, moment)
    found.until_written(number)
    time.sleep(0.5)
    assert found.writes.ids() == list(range(number))


def test_a_randomly_killed_job_and_a_killed_or_paused_server_lose_and_repeat_nothing(tmp_path: Path, job: Any) -> None:
    chance = random.Random(7)
    with RedisServer(tmp_path / "redis") as server:
        reads = Stream(server)
        reads.add(range(100))
        found = job(reads)
        found.start(2)
        number = 100
        for fault in ("job", "kill", "pause", "job and kill", "kill"):
            for _ in range(4):
                reads.add(range(number, number + 250))
                number += 250
            found.until_written(number - chance.randrange(600))
            if "job" in fault:
                found.kill()
            if "kill" in fault:
                server.kill()
                server.restart()
            if fault == "pause":
                server.pause()
                time.sleep(3)
                server.resume()
            if "job" in fault:
                found.start(chance.randrange(1, 4))
        found.until_written(number)
        time.sleep(0.5)
        assert found.writes.ids() == list(range(number))
        assert found.seen() == {key: number - 10 + key for key in range(10)}
