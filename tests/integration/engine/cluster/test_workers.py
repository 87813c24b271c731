"""A deployed master and worker: the worker runs executors for one master after the other."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
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

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PLAN = Plan(per_key=1_500)
PATIENCE_S = 240.0


def wait_for(condition: Callable[[], object], cluster: Deployed) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, cluster.describe()
        assert cluster.processes["worker"].poll() is None, cluster.describe()
        time.sleep(0.1)


def executors(cluster: Deployed) -> dict[str, int]:
    """Return the process ids of the executors below the worker, by number."""
    below = processes.descendants([cluster.processes["worker"].pid])
    found = [p for p in below if "CoarseGrainedExecutorBackend" in p.command]
    return {process.command.partition("--executor-id ")[2].split()[0]: process.pid for process in found}


def is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def test_a_worker_replaces_its_executor_and_moves_from_one_master_to_the_next(
    settings: dict[str, str], output: str, tmp_path: Path
) -> None:
    job_id = uuid.uuid4().hex
    (tmp_path / "secret").write_text("s" * 64)
    health = free_port()
    settings |= {
        "jobmanager.rpc.address": "127.0.0.1",
        "jobmanager.rpc.port": str(free_port()),
        "spark.driver.port": str(free_port()),
        "spark.blockManager.port": str(free_port()),
        "security.spark.secret-file": str(tmp_path / "secret"),
        "penstock.worker.health-port": str(health),
        "io.tmp.dirs": str(tmp_path / "work"),
    }

    def another_checkpoint(cluster: Deployed) -> None:
        reached = latest_checkpoint(tmp_path, job_id)
        wait_for(lambda: latest_checkpoint(tmp_path, job_id) > reached, cluster)

    with Deployed(tmp_path, settings, PLAN, output, job_id) as cluster:
        another_checkpoint(cluster)
        assert is_ready(health)
        [(first, pid)] = executors(cluster).items()
        assert processes.kill(pid)
        wait_for(lambda: set(executors(cluster)) - {first}, cluster)
        another_checkpoint(cluster)
        [(second, pid)] = executors(cluster).items()
        assert second != first

        cluster.another_master()
        wait_for(lambda: pid not in executors(cluster).values(), cluster)
        another_checkpoint(cluster)
        wait_for(lambda: is_ready(health), cluster)
        assert cluster.processes["master"].wait(PATIENCE_S) == 0, cluster.describe()
        wait_for(lambda: not executors(cluster), cluster)
        assert not is_ready(health)
        assert not list((tmp_path / "work" / "executors").glob("executor-*")), "an executor's folder was not removed"
        cluster.processes["worker"].terminate()
        assert cluster.processes["worker"].wait(30) == 0, cluster.describe()
    verify(PLAN, output)
