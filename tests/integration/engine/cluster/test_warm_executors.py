"""Warm executors of real workers: a standby continues the job on executors that were started before the leader's death."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.engine.cluster.test_standby import PATIENCE_S, stop_job, wait_for_end, wait_for_progress
from tests.integration.engine.selfcheck.job import Plan
from tests.integration.engine.selfcheck.masters import latest_checkpoint
from tests.integration.engine.selfcheck.output import verify
from tests.integration.engine.selfcheck.standby import MASTERS, Standbys

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PLAN = Plan(per_key=10**7)
ALWAYS = {"penstock.worker.warm-executor": "true"}


def wait_for(condition: Callable[[], object], cluster: Standbys) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, cluster.describe()
        cluster.restart_ended()
        time.sleep(0.1)


def pids(cluster: Standbys, of: str) -> set[int]:
    return {process.pid for process in cluster.executors(of)}


def wait_for_executors(cluster: Standbys, of: str, count: int) -> set[int]:
    wait_for(lambda: len(cluster.executors(of)) == count, cluster)
    return pids(cluster, of)


def other(master: str) -> str:
    return MASTERS[1 - MASTERS.index(master)]


def wait_for_warm(cluster: Standbys, standby: str, count: int) -> set[int]:
    """Wait until the standby has prepared this number of warm executors."""
    wait_for(lambda: cluster.warm_executors >= count, cluster)
    return wait_for_executors(cluster, standby, count)


@pytest.mark.parametrize("runner", ["pipelined"])
def test_a_standby_continues_on_warm_executors(settings: dict[str, str], output: str, tmp_path: Path) -> None:
    with Standbys(tmp_path, settings | ALWAYS, PLAN, output, uuid.uuid4().hex, workers=2) as cluster:
        wait_for_progress(cluster, tmp_path, 0)
        leader = cluster.leader()
        standby = other(leader)
        warm = wait_for_warm(cluster, standby, 2)
        reached = latest_checkpoint(tmp_path, cluster.job_id)
        cluster.kill(leader)
        wait_for(lambda: cluster.log(standby).count("with a warm executor") == 2, cluster)
        wait_for(lambda: latest_checkpoint(tmp_path, cluster.job_id) > reached, cluster)
        assert pids(cluster, standby) == warm, "the job must run on the warm executors"
        wait_for_executors(cluster, leader, 2)  # the killed master is the standby now, and has warm executors
        stop_job(cluster, tmp_path)
        wait_for_end(cluster)
    verify(PLAN, output, complete=False)


@pytest.mark.parametrize("runner", ["pipelined"])
def test_the_end_of_a_standby_and_a_late_worker_do_not_affect_the_job(
    settings: dict[str, str], output: str, tmp_path: Path
) -> None:
    with Standbys(tmp_path, settings | ALWAYS, PLAN, output, uuid.uuid4().hex) as cluster:
        wait_for_progress(cluster, tmp_path, 0)
        leader = cluster.leader()
        standby = other(leader)
        running = wait_for_executors(cluster, leader, 1)
        warm = wait_for_warm(cluster, standby, 1)
        cluster.kill(standby)
        wait_for(lambda: not warm & pids(cluster, standby), cluster)
        wait_for_executors(cluster, standby, 1)  # the standby runs again

        cluster.add_worker()
        wait_for_executors(cluster, leader, 2)
        wait_for_executors(cluster, standby, 2)
        wait_for_progress(cluster, tmp_path, latest_checkpoint(tmp_path, cluster.job_id))
        assert running <= pids(cluster, leader)
        assert cluster.log(leader).count("starts with 2 slots") == 1, "the job has not restarted"

        warm = pids(cluster, standby)
        cluster.kill(leader)
        wait_for_progress(cluster, tmp_path, latest_checkpoint(tmp_path, cluster.job_id))
        assert pids(cluster, standby) == warm, "the job runs on the warm executors"
        stop_job(cluster, tmp_path)
        wait_for_end(cluster)
    verify(PLAN, output, complete=False)
