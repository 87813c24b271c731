"""Two masters of one job as real processes: one leads, and the other one takes over. The output is exactly once."""

from __future__ import annotations

import random
import time
import uuid
from pathlib import Path

import pytest

from tests.integration.engine.selfcheck.job import Plan
from tests.integration.engine.selfcheck.masters import latest_checkpoint
from tests.integration.engine.selfcheck.output import verify
from tests.integration.engine.selfcheck.standby import MASTERS, Standbys

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PATIENCE_S = 300.0
FAULTS = ("kill leader", "kill leader", "kill standby", "stop leader", "stop standby")


def wait_for_progress(cluster: Standbys, folder: Path, reached: int) -> float:
    """Wait until a checkpoint after the given one is complete, and restart processes that end. Return the seconds."""
    began = time.monotonic()
    while latest_checkpoint(folder, cluster.job_id) <= reached:
        assert time.monotonic() - began < PATIENCE_S, cluster.describe()
        cluster.restart_ended()
        time.sleep(0.02)
    return time.monotonic() - began


def inflict(cluster: Standbys, fault: str, pause_s: float) -> None:
    leader = cluster.wait_for_leader(PATIENCE_S)
    other = MASTERS[1 - MASTERS.index(leader)]
    victim = leader if fault.endswith("leader") else other
    if fault.startswith("kill"):
        cluster.kill(victim)
        return
    cluster.stop(victim)
    time.sleep(pause_s)
    cluster.go_on(victim)


def run_faults(cluster: Standbys, folder: Path, faults: list[str], seed: int) -> list[float]:
    """Inflict the faults one after the other. Return the seconds until the next checkpoint after each one."""
    chosen = random.Random(seed)
    gaps = []
    for fault in faults:
        reached = latest_checkpoint(folder, cluster.job_id)
        inflict(cluster, fault, chosen.uniform(0.1, 12.0))
        gaps.append(wait_for_progress(cluster, folder, reached))
        time.sleep(chosen.uniform(0.0, 2.0))
    return gaps


def wait_for_end(cluster: Standbys) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while any(cluster.processes[name].poll() is None for name in MASTERS):
        assert time.monotonic() < deadline, cluster.describe()
        cluster.restart_ended()
        time.sleep(0.1)
    assert [cluster.processes[name].returncode for name in MASTERS] == [0, 0], cluster.describe()


@pytest.mark.parametrize("runner", ["pipelined"])
def test_a_standby_takes_over_from_a_killed_and_from_a_frozen_leader(
    settings: dict[str, str], output: str, tmp_path: Path
) -> None:
    plan = Plan(per_key=2_500)
    with Standbys(tmp_path, settings, plan, output, uuid.uuid4().hex) as cluster:
        wait_for_progress(cluster, tmp_path, 0)
        first = cluster.leader()
        standby = MASTERS[1 - MASTERS.index(first)]
        direct = cluster.get(first, "/jobs").json()
        deadline = time.monotonic() + PATIENCE_S
        while (passed := cluster.get(standby, "/jobs")).status_code == 503:
            assert time.monotonic() < deadline, cluster.describe()
            time.sleep(0.2)
        assert passed.json() == direct
        assert cluster.get(standby, "/readyz").status_code == 200

        run_faults(cluster, tmp_path, ["kill leader", "stop leader"], seed=1)
        assert all(code == 75 for name, code in cluster.exits if code > 0 and name in MASTERS), cluster.exits
        wait_for_end(cluster)
    verify(plan, output)


@pytest.mark.chaos
def test_random_kills_and_stops_of_leader_and_standby(
    settings: dict[str, str], output: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    count, seed = 12, 7
    plan = Plan(per_key=15_000)
    chosen = random.Random(seed)
    with Standbys(tmp_path, settings, plan, output, uuid.uuid4().hex) as cluster:
        wait_for_progress(cluster, tmp_path, 0)
        gaps = run_faults(cluster, tmp_path, [chosen.choice(FAULTS) for _ in range(count)], seed)
        print(f"{len(gaps)} faults, seconds to the next checkpoint: {[round(gap, 1) for gap in gaps]}")
        wait_for_end(cluster)
    verify(plan, output)
