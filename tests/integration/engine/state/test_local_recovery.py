"""RocksDB's files come from the TaskManager's disk after a kill, if they are still intact. The output is exactly once in any case.

The test has a whole JobMaster, and tasks in a separate process that is killed like a Python worker, without Spark.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.common.errors import EpochFailed
from penstock.common.job_status import JobStatus
from penstock.graph.executor import executing_on
from penstock.jobmanager.job.job_master import JobMaster
from penstock.jobmanager.job.requests import Operation
from penstock.jobmanager.process.session.session import Session
from penstock.jobmanager.runners.in_process import InProcessRunner
from penstock.jobmanager.runners.runner import Attempt, Watch, unwatched
from penstock.taskmanager.exchange.rows import ACK, COMMAND
from penstock.taskmanager.local_state.folders import LOCAL_DIR
from penstock.taskmanager.protocol import EpochCommand, LevelAck, decode_ack, encode_command
from penstock.taskmanager.worker import run_level
from tests.in_process import OneRunner, environment
from tests.integration.engine.selfcheck.job import Plan, build
from tests.integration.engine.selfcheck.output import read, verify

if TYPE_CHECKING:
    from collections.abc import Callable

ENDLESS = Plan(per_key=1_000_000, rate=500.0)
PATIENCE_S = 240.0
SST = bytes.fromhex("f7cff485b741e288")
"""The last bytes of RocksDB's tables."""


def damage_storage(folder: Path) -> int:
    """Damage every table in it, and return their number. The job deletes tables that it no longer needs at the same time."""
    count = 0
    for path in folder.glob("checkpoints/*/shared/*"):
        with contextlib.suppress(FileNotFoundError), path.open("r+b") as file:
            content = file.read()
            if content.endswith(SST):
                file.seek(0)
                file.write(bytes(len(content)))
                count += 1
    return count


class OneProcess(InProcessRunner):
    """A runner with all slots in another process. If the process is gone, the next attempt starts a new one.

    Args:
        disk: folder that is the disk of each process.
    """

    def __init__(self, disk: Path) -> None:
        super().__init__(2)
        self.disk = disk
        self._process: Any = None
        self._connection: Any = None

    def start(self, attempt: Attempt) -> None:
        super().start(attempt)
        self.kill()
        context = multiprocessing.get_context("spawn")
        self._connection, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other, str(self.disk)), daemon=True)
        self._process.start()
        other.close()
        self._connection.send((attempt.payload, attempt.job_id, attempt.number, attempt.levels))

    def run_epoch(self, commands: list[EpochCommand], watch: Watch = unwatched) -> list[LevelAck]:
        try:
            self._connection.send([encode_command(command) for command in commands])
            return [decode_ack(ack) for ack in self._connection.recv()]
        except (OSError, EOFError) as error:
            raise EpochFailed("a worker was killed") from error

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.join()

    def close(self) -> None:
        super().close()
        self.kill()


def _serve(connection: Connection, disk: str) -> None:
    os.environ[LOCAL_DIR] = disk
    payload, job_id, number, levels = connection.recv()
    while True:
        rows: dict[int, list[bytes]] = {
            slot: [bytes((COMMAND,)) + command] for slot, command in enumerate(connection.recv())
        }
        slots = list(rows)
        for level in range(levels):
            following: dict[int, list[bytes]] = defaultdict(list)
            for slot in slots:
                for target, row in run_level(lambda: payload, job_id, number, level, slot, rows.get(slot, [])):
                    following[target].append(row)
            rows = following
        connection.send([row[1:] for of_slot in rows.values() for row in of_slot if row[0] == ACK])


class Job:
    """The self-verifying job on such a process."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder = folder
        self.disk = folder / "disk"
        self.output = (folder / "output").as_uri()
        self.runner = OneProcess(self.disk)
        env = environment(
            folder,
            **{
                "parallelism.default": "2",
                "state.backend.type": "rocksdb",
                "execution.checkpointing.interval": "300 ms",
                "execution.checkpointing.file-merging.enabled": "false",
                "restart-strategy.type": "fixed-delay",
                "restart-strategy.fixed-delay.attempts": "100",
                "restart-strategy.fixed-delay.delay": "10 ms",
                **settings,
            },
        )
        build(env, ENDLESS, self.output)
        session = Session(OneRunner(self.runner))
        with executing_on(session):
            env.execute_async("self-verifying")
        self.master: JobMaster = session.dispatcher.jobs()[0]

    def _until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert not self.master.is_done, f"the job ended as {self.master.history.status.value}: {self.master.error}"
            assert time.monotonic() < deadline, f"the condition was not met within {PATIENCE_S:.0f} s"
            time.sleep(0.02)

    @property
    def completed(self) -> int:
        return int(self.master.checkpoints.coordinator.history.overview()["counts"]["completed"])

    def checkpoints(self, count: int) -> None:
        wanted = self.completed + count
        self._until(lambda: self.completed >= wanted)

    def copies(self) -> list[Path]:
        return [path for path in self.disk.glob("penstock-local-*/*/*") if path.name != "owner"]

    def damage_storage(self) -> int:
        return damage_storage(self.folder)

    def killed(self) -> None:
        """Kill the process, and wait until the job has recovered."""
        attempt = self.master.attempt
        self.runner.kill()
        self._until(lambda: self.master.attempt > attempt and self.master.history.status is JobStatus.RUNNING)

    def await_progress(self) -> None:
        """Wait for more output, and check that all of it is exactly once."""
        before = len(read(f"{self.output}/numbers"))
        self._until(lambda: len(read(f"{self.output}/numbers")) > before)
        self.master.request(Operation("cancel"))
        assert self.master.wait(PATIENCE_S) is JobStatus.CANCELED
        verify(ENDLESS, self.output, complete=False)

    def close(self) -> None:
        self.runner.close()


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Any]:
    made: list[Job] = []

    def start(**settings: str) -> Job:
        made.append(Job(tmp_path, **settings))
        return made[-1]

    yield start
    for job in made:
        job.close()


def test_the_state_of_a_killed_process_comes_from_its_disk(jobs: Any) -> None:
    job = jobs()
    for _ in range(2):
        job.checkpoints(2)
        assert job.damage_storage(), "storage has no table to damage"
        job.killed()
        assert job.copies()
    job.await_progress()


def test_the_same_job_without_local_copies_needs_its_storage(jobs: Any) -> None:
    job = jobs(**{"execution.state-recovery.from-local": "false"})
    job.checkpoints(2)
    assert not job.copies()
    assert job.damage_storage()
    job.runner.kill()
    job.master.wait(PATIENCE_S)
    assert job.master.history.status is JobStatus.FAILED
    assert "is damaged" in str(job.master.error)


def test_copies_that_were_modified_are_not_used(jobs: Any) -> None:
    job = jobs()
    job.checkpoints(2)
    for index, path in enumerate(job.copies()):
        size = path.stat().st_size
        path.unlink()  # the live database has the same file under another name
        if index % 3:
            path.write_bytes(bytes(size))
    job.killed()
    job.await_progress()


def test_a_rescale_uses_the_copies_on_the_disk(jobs: Any) -> None:
    job = jobs()
    job.checkpoints(2)
    assert job.damage_storage()
    operation = job.master.request(Operation("rescale", {"parallelism": 1}))
    assert operation.wait(PATIENCE_S)
    assert operation.failure is None, operation.failure
    job.checkpoints(1)
    job.await_progress()
