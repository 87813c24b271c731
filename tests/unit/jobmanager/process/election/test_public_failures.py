"""Failures that users of other stream processors have reported about standby masters, and their tests.

| Failure | Test |
|---|---|
| After a lost lease, the process waits for ever, because it takes part in an election only once | here, and `test_elector.py` |
| A failed job runs again if the lease is lost at the same moment | `job/ending/test_recorded_end.py`, `lives/` |
| A stopped or suspended job runs again from the beginning when its master restarts | here |
| An upgrade with a slow master continues from older state | operator: `decide/restore/test_stopping.py` |
| Nobody notices that a node was drained with the master on it | `tests/e2e/failures/test_standby.py`; budget: `test_resources.py` |
| A job is lost, or starts empty, when its master restarts | `tests/e2e/failures/test_failures.py`, `master/test_master_process.py` |
| A takeover takes a minute or longer | here; with processes: `tests/integration/engine/cluster/test_standby.py` |
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from penstock.checkpoint.files.storage import CheckpointStorage
from penstock.common.job_status import JobStatus
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.graph.executor import executing_on
from penstock.jobmanager.job.job_master import JobMaster
from penstock.jobmanager.job.requests import Operation
from penstock.jobmanager.process.election.claims import Holder
from penstock.jobmanager.process.election.member import EXIT_LOST
from penstock.jobmanager.process.election.storage_claims import StorageClaims
from penstock.jobmanager.process.session.session import Session, SubmitOptions
from tests.in_process import InProcess, environment, until
from tests.unit.jobmanager.process.election.simulation import TIMES, World

PATIENCE_S = 60.0
JOB = "3" * 32
MEMBER = """
import sys, time
from penstock.checkpoint.files.storage import CheckpointStorage
from penstock.jobmanager.process.election.elector import ElectionTimes
from penstock.jobmanager.process.election.member import Member
from penstock.jobmanager.process.election.storage_claims import StorageClaims
claims = StorageClaims(CheckpointStorage(f"file://{sys.argv[1]}", "c"))
member = Member(claims, sys.argv[2], "127.0.0.1", ElectionTimes(lease_s=3.0, interval_s=0.2)).start()
assert member.wait(60)
print("leads", flush=True)
time.sleep(600)
"""


def start_member(folder: Path, name: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", MEMBER, str(folder), name],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "leads\n"
    return process


def test_a_process_that_loses_the_leadership_ends_and_its_successor_can_lead_again(tmp_path: Path) -> None:
    """A process that only suspends its jobs would hold their workers, and never lead again."""
    with start_member(tmp_path, "one") as one:
        claims = StorageClaims(CheckpointStorage(f"file://{tmp_path}", "c"))
        over = claims.current()
        assert over is not None
        assert claims.claim(Holder("thief", term=over.term + 1), over)
        assert one.wait(PATIENCE_S) == EXIT_LOST
    with start_member(tmp_path, "two") as two:
        current = StorageClaims(CheckpointStorage(f"file://{tmp_path}", "c")).current()
        assert current is not None
        assert (current.id, current.term) == ("two", over.term + 2)
        two.kill()


def start(folder: Path, sessions: list[Session], *, elected: bool) -> JobMaster:
    """Start a master with the arguments of the job's first start."""
    session = Session(InProcess(), SubmitOptions(job_id=JOB, keep_result=True))
    sessions.append(session)
    if elected:
        session.waits_to_lead = lambda seconds: True
    started = threading.Event()
    session.on_started = lambda master: started.set()
    env = environment(folder)
    env.from_source(DataGeneratorSource(int, None, 100.0), None, "numbers").print()

    def run() -> None:
        with executing_on(session):
            env.execute_async("job")

    threading.Thread(target=run, daemon=True).start()
    assert started.wait(PATIENCE_S)
    return session.dispatcher.jobs()[0]


@pytest.mark.parametrize("elected", [True, False])
def test_a_stopped_job_does_not_run_again_when_its_master_restarts(tmp_path: Path, *, elected: bool) -> None:
    """A job that runs again would write the output again that its savepoint contains."""
    sessions: list[Session] = []
    try:
        first = start(tmp_path, sessions, elected=elected)
        until(lambda: first.history.status is JobStatus.RUNNING, first)
        stop = first.request(Operation("stop", {"directory": f"file://{tmp_path}/savepoints", "drain": False}))
        assert stop.wait(PATIENCE_S)
        assert first.wait(PATIENCE_S) is JobStatus.FINISHED
        again = start(tmp_path, sessions, elected=elected)
        assert again.wait(PATIENCE_S) is JobStatus.FINISHED
        assert again.attempt == 0
    finally:
        for session in sessions:
            session.stop()


def test_a_standby_leads_within_the_lease_and_two_heartbeats_after_the_leader_is_lost() -> None:
    for paused in (True, False):
        world = World()
        world.run(20)
        leader = world.leaders[0]
        place = world.processes.index(leader)
        lost_s = world.now_s
        if paused:
            leader.paused_until_s = world.now_s + 10_000
        else:
            world.replace(place)
        while not [process for process in world.leaders if process is not leader]:
            world.run(0.25)
            assert world.now_s - lost_s <= TIMES.lease_s + 2 * TIMES.interval_s
