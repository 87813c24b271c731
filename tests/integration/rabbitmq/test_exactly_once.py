"""Messages -> keyed state -> files, each exactly once, under any fault. From queue to queue, no message is lost."""

from __future__ import annotations

import json
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

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.jobmanager.job.requests import Operation
from tests.in_process import environment, started, until
from tests.integration.rabbitmq.queues import Queue
from tools.servers.rabbitmq import RabbitMQServer

pytestmark = pytest.mark.rabbitmq


class Job:
    """The job in a separate process, and the files that it has written."""

    def __init__(self, folder: Path, queue: Queue) -> None:
        self._folder = folder
        self._queue = queue
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, parallelism: int, moment: str = "") -> None:
        arguments = [str(self._folder), self._queue.server.uri, self._queue.name, str(parallelism), moment]
        found = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        with (self._folder / "job.log").open("ab") as log:
            program = [sys.executable, "-m", "tests.integration.rabbitmq.queued_job", *arguments]
            self.process = subprocess.Popen(program, stdout=log, stderr=log, env=found)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def ids(self) -> list[int]:
        paths = [path for path in (self._folder / "out").rglob("*") if path.is_file() and path.name[0] != "."]
        return sorted(json.loads(line)["id"] for path in paths for line in path.read_text().splitlines())

    def until_written(self, count: int, patience: float = 60.0) -> None:
        assert self.process is not None
        deadline = time.monotonic() + patience
        while len(self.ids()) < count:
            assert self.process.poll() is None, (self._folder / "job.log").read_text()[-3000:]
            assert time.monotonic() < deadline, f"{len(self.ids())} of {count} after {patience:.0f} s"
            time.sleep(0.05)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Any]:
    jobs: list[Job] = []

    def make(queue: Queue) -> Job:
        jobs.append(Job(tmp_path, queue))
        return jobs[-1]

    yield make
    for found in jobs:
        found.kill()


def until_empty(queue: Queue) -> None:
    """Wait until the queue has no messages, and no consumer holds unacknowledged ones."""
    deadline = time.monotonic() + 20
    held = "?"
    while held != "0":
        assert time.monotonic() < deadline, f"{held} messages are left"
        listed = queue.server.command("list_queues", "name", "messages")
        held = dict(line.split() for line in listed.splitlines())[queue.name]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_job_killed_between_checkpoint_and_acknowledgement_repeats_nothing(
    rabbitmq: RabbitMQServer, job: Any, moment: str
) -> None:
    queue = Queue(rabbitmq)
    found = job(queue)
    found.start(2, moment)
    number = 0
    while found.process.poll() is None:
        queue.publish(range(number, number + 50))
        number += 50
    assert found.process.returncode == -signal.SIGKILL
    queue.publish(range(number, number + 50))
    found.start(1, moment)
    found.until_written(number + 50)
    until_empty(queue)
    assert found.ids() == list(range(number + 50))


def test_a_randomly_killed_job_and_a_killed_or_paused_broker_lose_and_repeat_nothing(tmp_path: Path, job: Any) -> None:
    chance = random.Random(7)
    with RabbitMQServer(tmp_path / "rabbitmq") as server:
        queue = Queue(server)
        found = job(queue)
        found.start(1)
        number = 0
        for fault in ("job", "kill", "pause", "job and kill"):
            for _ in range(4):
                queue.publish(range(number, number + 250))
                number += 250
            found.until_written(number - chance.randrange(600))
            if "job" in fault:
                found.kill()
            if "kill" in fault:
                server.kill()
                server.restart()
            if fault == "pause":
                server.pause()
                time.sleep(5)  # longer than the heartbeat timeout
                server.resume()
            if "job" in fault:
                found.start(chance.randrange(1, 4))
        found.until_written(number)
        until_empty(queue)
        found.kill()
        assert found.ids() == list(range(number))


class FailsOnce:
    """A map function that raises once, after some records."""

    count = 0

    def __call__(self, record: Any) -> Any:
        FailsOnce.count += 1
        if FailsOnce.count == 150:
            raise RuntimeError("as ordered")
        return record


def test_a_queue_to_queue_job_loses_nothing_across_a_failure_a_rescale_and_a_stop(
    rabbitmq: RabbitMQServer, tmp_path: Path
) -> None:
    reads, writes = Queue(rabbitmq), Queue(rabbitmq)
    FailsOnce.count = 0
    env = environment(tmp_path)
    env.set_parallelism(2)
    env.set_max_parallelism(4)
    stream = env.from_source(reads.source(exact=False), WatermarkStrategy.no_watermarks(), "in").uid("in")
    stream.map(FailsOnce()).uid("map").sink_to(writes.sink()).uid("out")
    master = started(env)
    for number in range(4):
        reads.publish(range(number * 100, number * 100 + 100))
        until(lambda most=number * 100 + 100: writes.left() >= most, master)
        if number == 2:
            master.request(Operation("rescale", {"parallelism": 3}))
    until_empty(reads)
    master.request(Operation("stop"))
    master.wait(30)
    assert FailsOnce.count > 400
    found = [int(body) for _, body in writes.take(writes.left())]
    assert set(found) == set(range(400))
