"""Two masters of one job as real processes: one leads, and the other one takes over. The output is exactly once."""

from __future__ import annotations

import os
import random
import time
import uuid
from pathlib import Path

import httpx
import pytest

from tests.chaos.faults.clock import SettableClock
from tests.integration.engine.selfcheck.job import Plan
from tests.integration.engine.selfcheck.masters import latest_checkpoint
from tests.integration.engine.selfcheck.output import read, verify
from tests.integration.engine.selfcheck.standby import MASTERS, Standbys

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PATIENCE_S = 300.0
FAULTS = (
    *("kill leader", "kill leader", "kill standby", "stop leader", "stop standby"),
    *("cut leader off the election", "cut leader off storage", "cut standby off storage"),
    "jump of the clock",
)
MAX_JUMP_S = 2 * 3600


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
    victim = leader if "leader" in fault else other
    if fault.startswith("cut"):
        cluster.cut(victim, "ha", *(("checkpoints",) if fault.endswith("storage") else ()))
        time.sleep(pause_s)
        cluster.heal(victim)
        return
    if fault.startswith("kill"):
        cluster.kill(victim)
        return
    cluster.stop(victim)
    time.sleep(pause_s)
    cluster.go_on(victim)


def run_faults(
    cluster: Standbys, folder: Path, faults: list[str], seed: int, clock: SettableClock | None = None
) -> list[float]:
    """Inflict the faults one after the other. Return the seconds until the next checkpoint after each one."""
    chosen = random.Random(seed)
    gaps = []
    for fault in faults:
        reached = latest_checkpoint(folder, cluster.job_id)
        if fault == "jump of the clock":
            assert clock is not None
            clock.set(chosen.randrange(-MAX_JUMP_S, MAX_JUMP_S))
        else:
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


@pytest.mark.parametrize("runner", ["pipelined", "batched"])
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


def stop_job(cluster: Standbys, folder: Path) -> None:
    """Stop the job with a savepoint, through any master. Repeat the request until a master answers."""
    deadline = time.monotonic() + PATIENCE_S
    request = {"targetDirectory": f"file://{folder}/savepoints", "drain": False, "triggerId": uuid.uuid4().hex}
    while True:
        assert time.monotonic() < deadline, cluster.describe()
        cluster.restart_ended()
        for name in MASTERS:
            try:
                answer = httpx.post(f"{cluster.url(name)}/jobs/{cluster.job_id}/stop", json=request, timeout=30)
            except httpx.HTTPError:
                continue
            if answer.is_success:
                return
        time.sleep(0.2)


@pytest.mark.chaos
@pytest.mark.timeout(0)
def test_random_faults_of_leader_and_standby(settings: dict[str, str], output: str, tmp_path: Path) -> None:
    """Inflict faults until their number or the time is reached. The environment may set both."""
    count = int(os.environ.get("PENSTOCK_STANDBY_FAULTS", "12"))
    minutes = float(os.environ.get("PENSTOCK_STANDBY_MINUTES", "8"))
    seed = int(os.environ.get("PENSTOCK_STANDBY_SEED", str(random.randrange(10**6))))
    print(f"PENSTOCK_STANDBY_SEED={seed}")
    chosen, plan = random.Random(seed), Plan(per_key=10**7)
    gaps: list[float] = []
    clock = SettableClock(tmp_path)
    environment = clock.environment
    with Standbys(tmp_path, settings, plan, output, uuid.uuid4().hex, environment=environment) as cluster:
        wait_for_progress(cluster, tmp_path, 0)
        end = time.monotonic() + 60 * minutes
        while len(gaps) < count and time.monotonic() < end:
            fault = chosen.choice(FAULTS)
            gaps += run_faults(cluster, tmp_path, [fault], chosen.randrange(10**6), clock)
            print(f"{len(gaps)} {fault}: {gaps[-1]:.1f} s to the next checkpoint", flush=True)
        stop_job(cluster, tmp_path)
        wait_for_end(cluster)
    verify(plan, output, complete=False)
    assert read(f"{output}/numbers"), "the job has written nothing"
