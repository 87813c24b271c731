"""Random faults in the life of a job with two masters: no record is lost or repeated, and the job ends once.

The election, the leader epochs, the checkpoints and the record of the end are the real code. Processes, clocks, network and storage are
simulated. `PENSTOCK_LIVES=1000` runs 1,000 lives, starting with the seed `PENSTOCK_FIRST_LIFE` (`make test-lives`).
"""

from __future__ import annotations

import os

import msgspec
import pytest

from penstock.checkpoint.leadership.fencing import Leadership, list_leader_folder
from penstock.jobmanager.job.checkpoints import JobCheckpoints
from penstock.jobmanager.job.ending.job_result import ResultRecord, store_result
from penstock.jobmanager.process.election.claims import Holder
from penstock.jobmanager.process.election.storage_claims import StorageClaims
from tests.unit.jobmanager.process.election.lives.life import (
    FAULTS,
    Life,
    is_wrong,
    on_one_processor,
    run_life,
    use_simulated_clock,
)

FIRST, LIVES = int(os.environ.get("PENSTOCK_FIRST_LIFE", "0")), int(os.environ.get("PENSTOCK_LIVES", "12"))
SEARCHED = 300
"""Number of lives in which a simulation of broken code must find a problem."""


@pytest.mark.parametrize("seed", range(FIRST, FIRST + LIVES))
def test_a_job_with_two_masters_loses_and_repeats_nothing_and_ends_once(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = run_life(seed, monkeypatch)
    assert not life.problems(), f"seed {seed}\n{life.describe()}"


def test_the_lives_have_all_faults_and_changes_of_the_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    lives = [run_life(seed, monkeypatch) for seed in range(12)]
    assert {fault for life in lives for fault in life.faults} == set(FAULTS)
    assert sum(life.record.leaders for life in lives) > 24


@pytest.mark.parametrize("seed", range(8))
def test_safety_does_not_depend_on_the_election(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Masters that do not notice the loss of their leadership run the job at the same time. The leader epochs alone prevent damage."""
    monkeypatch.setattr(StorageClaims, "renew", lambda self, holder: True)
    life = run_life(seed, monkeypatch)
    assert not life.record.violations, life.describe()


def find_problem(monkeypatch: pytest.MonkeyPatch) -> bool:
    return any(is_wrong(seed, monkeypatch) for seed in range(SEARCHED))


@pytest.mark.slow
def test_the_simulation_detects_a_leader_that_does_not_check_its_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Leadership, "check", lambda self, storage=None: None)
    assert find_problem(monkeypatch)


def live_with_a_frozen_leader_without_slots(seed: int, patch: pytest.MonkeyPatch) -> Life:
    """Freeze a leader that waits for slots, until the next leader runs the job. When it continues, its job fails."""
    use_simulated_clock(patch)
    with on_one_processor():
        life = Life(seed)
        life.record.fails_at, life.record.lacks_slots = None, False
        for master in life.masters:
            master.gets_no_slots = True
        life.run(1.0)
        leader, other = sorted(life.masters, key=lambda master: not master.leads)
        other.gets_no_slots = False
        leader.host.freeze(14.0, with_clock=False)
        life.run(60.0)
        life.outlive_the_end()
        life.stop()
    return life


@pytest.mark.parametrize("seed", range(5))
def test_a_frozen_leader_whose_job_fails_without_an_attempt_does_not_end_the_job(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = live_with_a_frozen_leader_without_slots(seed, monkeypatch)
    assert not life.problems(), life.describe()


def test_the_simulation_detects_an_end_that_is_recorded_without_a_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    def store(self: JobCheckpoints, record: ResultRecord) -> None:
        highest_started = max(list_leader_folder(self.storage).bases, default=0)
        store_result(self.storage, msgspec.structs.replace(record, epoch=highest_started))

    monkeypatch.setattr(JobCheckpoints, "store_result", store)
    assert any(live_with_a_frozen_leader_without_slots(seed, monkeypatch).problems() for seed in range(20))


def test_the_simulation_detects_a_master_that_never_takes_over(monkeypatch: pytest.MonkeyPatch) -> None:
    claim = StorageClaims.claim

    def claim_first_term(self: StorageClaims, candidate: Holder, over: Holder | None) -> bool:
        return over is None and claim(self, candidate, over)

    monkeypatch.setattr(StorageClaims, "claim", claim_first_term)
    assert find_problem(monkeypatch)
