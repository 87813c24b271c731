"""Commits that take longer than the checkpoint interval. Checkpoints wait, and everything else continues."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.checkpoint.files.storage import CheckpointStorage
from penstock.common.job_status import JobStatus
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.core.two_phase import TwoPhaseCommitSink, TwoPhaseCommitSinkFunction
from penstock.connectors.simple.datagen import DataGeneratorSource
from penstock.jobmanager.job.requests import Operation
from tests.in_process import environment, started, until

if TYPE_CHECKING:
    from penstock.jobmanager.job.job_master import JobMaster

COMMIT_S = 0.4


class Slow(TwoPhaseCommitSinkFunction):
    """A sink whose transaction is a file. A commit takes some time and adds the file's name to `committed`."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.number = 0

    def begin_transaction(self) -> Any:
        self.number += 1
        return f"{time.time_ns()}-{self.number}"

    def invoke(self, transaction: Any, value: Any, context: Any) -> None:
        with (Path(self.folder) / transaction).open("a") as out:
            out.write(f"{value}\n")

    def pre_commit(self, transaction: Any) -> None:
        pass

    def commit(self, transaction: Any) -> None:
        time.sleep(COMMIT_S)
        with (Path(self.folder) / "committed").open("a") as out:
            out.write(f"{transaction}\n")

    def abort(self, transaction: Any) -> None:
        pass


def job(tmp_path: Path, **settings: str) -> JobMaster:
    (tmp_path / "out").mkdir()
    env = environment(tmp_path, **{"execution.checkpointing.interval": "20 ms", **settings})
    source = DataGeneratorSource(lambda i: i, 10**9, 2_000)
    env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").sink_to(
        TwoPhaseCommitSink(Slow(str(tmp_path / "out")))
    )
    return started(env)


def promised(master: JobMaster, tmp_path: Path) -> int:
    """Return the number of transactions that the newest manifest names."""
    storage = CheckpointStorage(f"file://{tmp_path}/checkpoints", master.job_id)
    newest = storage.read_manifest(storage.checkpoint_ids()[-1])
    return sum(map(len, newest.commits.values()))


def overview(master: JobMaster) -> dict[str, Any]:
    return master.checkpoints.coordinator.history.overview()


def test_checkpoints_wait_until_the_commits_are_done(tmp_path: Path) -> None:
    master = job(tmp_path)
    most = 0
    states = set()
    deadline = time.monotonic() + 3
    until(lambda: master.history.status is JobStatus.RUNNING, master)
    until(lambda: overview(master)["counts"]["completed"] > 0, master)
    while time.monotonic() < deadline:
        try:
            most = max(most, promised(master, tmp_path))
        except Exception:  # subsumed during the read
            continue
        states.add(overview(master)["trigger"]["state"])
        time.sleep(0.01)
    assert 1 <= most <= 4, "those of three complete checkpoints, and its own"
    assert "WAITING_FOR_COMMITS" in states
    completed = overview(master)["counts"]["completed"]
    assert 3 <= completed <= 3 / COMMIT_S + 5
    master.request(Operation("cancel"))
    assert master.wait(30) is JobStatus.CANCELED


def test_the_commits_that_delay_checkpoints_are_reported_and_measured(tmp_path: Path) -> None:
    master = job(tmp_path, **{"execution.checkpointing.max-uncommitted-checkpoints": "1"})
    until(lambda: overview(master).get("trigger", {}).get("state") == "WAITING_FOR_COMMITS", master)
    trigger = overview(master)["trigger"]
    assert "execution.checkpointing.max-uncommitted-checkpoints" in trigger["description"]
    assert (trigger["uncommitted_checkpoints"], trigger["pending_commits"]) == (1, 1)
    master.request(Operation("cancel"))
    assert master.wait(30) is JobStatus.CANCELED


def test_savepoints_and_stops_do_not_wait_for_the_backlog(tmp_path: Path) -> None:
    master = job(tmp_path, **{"execution.checkpointing.max-uncommitted-checkpoints": "1"})
    until(lambda: overview(master).get("trigger", {}).get("state") == "WAITING_FOR_COMMITS", master)
    savepoint = master.request(Operation("savepoint"))
    until(lambda: savepoint.is_done, master)
    assert savepoint.failure is None
    stop = master.request(Operation("stop", {"directory": "", "drain": False}))
    assert master.wait(30) is JobStatus.FINISHED
    assert stop.failure is None
    out = tmp_path / "out"
    committed = (out / "committed").read_text().split()
    visible = [int(line) for name in dict.fromkeys(committed) for line in (out / name).read_text().split()]
    assert visible == list(range(len(visible))), "in order, each once, none missing"
    assert visible
