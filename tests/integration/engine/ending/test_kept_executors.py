"""A deployed JobManager is killed, and the executors of its workers keep running (`penstock.jobmanager.keep-executors`)."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.jobmanager.cluster.spark_cluster import free_port
from tests.integration.engine.attacker.deployed import Deployed
from tests.integration.engine.selfcheck import processes
from tests.integration.engine.selfcheck.job import Plan
from tests.integration.engine.selfcheck.masters import latest_checkpoint
from tests.integration.engine.selfcheck.output import verify
from tests.integration.engine.state.test_local_recovery import damage_storage

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PATIENCE_S = 240.0
KILLS = 2
ENDLESS = Plan(per_key=1_000_000, rate=500.0)


class Job:
    """The self-verifying job with RocksDB state, on a deployed master and worker."""

    def __init__(self, folder: Path, settings: dict[str, str], output: str) -> None:
        self.folder, self.job_id = folder, uuid.uuid4().hex
        (folder / "secret").write_text("s" * 64)
        settings = settings | {
            "jobmanager.rpc.address": "127.0.0.1",
            "jobmanager.rpc.port": str(free_port()),
            "spark.driver.port": str(free_port()),
            "spark.blockManager.port": str(free_port()),
            "security.spark.secret-file": str(folder / "secret"),
            "io.tmp.dirs": str(folder / "work"),
            "state.backend.type": "rocksdb",
            "execution.checkpointing.file-merging.enabled": "false",
            "penstock.jobmanager.keep-executors": "true",
        }
        self.cluster = Deployed(folder, settings, ENDLESS, output, self.job_id)

    @property
    def jobmanager(self) -> int:
        """Process id of the JobManager."""
        below = processes.descendants([self.cluster.processes["master"].pid])
        found = [p.pid for p in below if " master --entry " in p.command and p.parent == self.parent]
        return found[0] if found else 0

    @property
    def parent(self) -> int:
        return self.cluster.processes["master"].pid

    def executors(self) -> list[int]:
        below = processes.descendants([self.cluster.processes["worker"].pid])
        return sorted(p.pid for p in below if "CoarseGrainedExecutorBackend" in p.command)

    def wait_for(self, condition: Callable[[], object]) -> float:
        """Wait for a condition, and return the seconds."""
        began = time.monotonic()
        while not condition():
            assert time.monotonic() - began < PATIENCE_S, self.cluster.describe()
            assert all(process.poll() is None for process in self.cluster.processes.values()), self.cluster.describe()
            time.sleep(0.02)
        return time.monotonic() - began

    def checkpoints(self, count: int) -> float:
        """Wait for that many further checkpoints, and return the seconds."""
        reached = latest_checkpoint(self.folder, self.job_id)
        return self.wait_for(lambda: latest_checkpoint(self.folder, self.job_id) >= reached + count)


def test_executors_and_local_state_survive_killed_jobmanagers(
    settings: dict[str, str], output: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    job = Job(tmp_path, settings, output)
    with job.cluster as cluster:
        job.checkpoints(3)
        executors = job.executors()
        assert len(executors) == 1
        for number in range(KILLS):
            killed = job.jobmanager
            assert damage_storage(tmp_path), "storage has no table to damage"
            assert processes.kill(killed)
            seconds = job.checkpoints(1)
            record_property(f"output_again_{number}_s", round(seconds, 2))
            print(f"{settings['penstock.runner']}: a checkpoint {seconds:.1f} s after the JobManager was killed")
            assert job.jobmanager not in (0, killed)
            assert job.executors() == executors
            job.checkpoints(2)
        master = cluster.processes["master"]
        below = processes.descendants([master.pid])
        master.terminate()
        master.wait(PATIENCE_S)
        assert "job is SUSPENDED" in cluster.describe(), "the signal did not reach the JobManager"
        assert not [process for process in below if processes.is_alive(process)]
    verify(ENDLESS, output, complete=False)


@pytest.mark.parametrize("runner", ["pipelined"])
def test_a_jobmanager_ends_with_its_parent(settings: dict[str, str], output: str, tmp_path: Path) -> None:
    job = Job(tmp_path, settings, output)
    with job.cluster as cluster:
        job.checkpoints(1)
        below = processes.descendants([job.parent])
        cluster.processes["master"].kill()
        deadline = time.monotonic() + PATIENCE_S
        while left := [process for process in below if processes.is_alive(process)]:
            assert time.monotonic() < deadline, left
            time.sleep(0.1)
