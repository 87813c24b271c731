"""The time without output after the leading master is killed or shuts down, with a second master on standby.

Two masters and a worker are separate processes on this machine. `records` is the number of kills, and of shutdowns after them. The environment
variable `PENSTOCK_FAILOVER_WARM` sets `penstock.worker.warm-executor`. The output of an exactly-once sink becomes
visible with the next checkpoint, so each figure ends with a checkpoint of the new leader. The interval of checkpoints is 500 ms.
"""

from __future__ import annotations

import os
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.integration.engine.selfcheck.standby import Standbys

PATIENCE_S = 300.0
PAUSE_S = 5.0
"""Time in seconds for the killed master to come back as a standby, after it responds."""
GOAL_S = 5.0


def failover(records: int | None, repetitions: int) -> dict[str, Any]:
    """Kill the leader several times, then send SIGTERM. Measure the time until the next one leads, and until output is visible again."""
    from tests.integration.engine.selfcheck.driver import configuration
    from tests.integration.engine.selfcheck.job import Plan
    from tests.integration.engine.selfcheck.output import problems_of
    from tests.integration.engine.selfcheck.standby import Standbys

    kills = records or 5 * repetitions
    plan = Plan(per_key=10**7)
    warm = os.environ.get("PENSTOCK_FAILOVER_WARM", "auto")
    with tempfile.TemporaryDirectory(prefix="penstock-failover-") as name:
        folder = Path(name)
        output = f"file://{folder}/output"
        settings = {**configuration("pipelined", f"file://{folder}"), "penstock.worker.warm-executor": warm}
        with Standbys(folder, settings, plan, output, uuid.uuid4().hex) as cluster:
            _wait_for_checkpoint(cluster, folder, 0)
            killed = [_change_leader(cluster, folder, cluster.kill) for _ in range(kills)]
            ended = [_change_leader(cluster, folder, cluster.terminate) for _ in range(kills)]
        problems = problems_of(plan, output, complete=False)
    return {
        "kills": kills,
        "warm_executor": warm,
        "elected_s": _summary([elected for elected, _ in killed]),
        "output_s": _summary([gap for _, gap in killed]),
        "goal_s": GOAL_S,
        "shutdown_output_s": _summary([gap for _, gap in ended]),
        "problems": problems,
    }


def _change_leader(cluster: Standbys, folder: Path, end: Callable[[str], None]) -> tuple[float, float]:
    """End the leader when its standby is ready. Return the seconds until the next one leads, and the seconds without output.

    Output stops with the last checkpoint of the old leader, which may be the one that it takes at its end.
    """
    from tests.integration.engine.selfcheck.masters import latest_checkpoint

    _wait_for_standby(cluster)
    leader = cluster.leader()
    began = time.monotonic()
    end(leader)
    cluster.wait_for_leader(PATIENCE_S, other_than=leader)
    elected = time.monotonic()
    newest = latest_checkpoint(folder, cluster.job_id)
    [file] = folder.glob(f"checkpoints/{cluster.job_id}/chk-{newest}/_metadata")
    stopped = max(began, time.monotonic() - (time.time() - file.stat().st_mtime))
    _wait_for_checkpoint(cluster, folder, newest)
    return elected - began, time.monotonic() - stopped


def _summary(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    last = len(ordered) - 1
    at = {"min": 0, "median": last // 2, "p99": round(0.99 * last), "max": last}
    return {name: round(ordered[index], 2) for name, index in at.items()}


def _wait_for_standby(cluster: Standbys) -> None:
    """Start the killed master again, and wait until it is a standby and the worker has a warm executor for it."""
    import httpx

    deadline = time.monotonic() + PATIENCE_S
    for name in cluster.ports:
        while True:
            cluster.restart_ended()
            try:
                if cluster.get(name, "/jobs").is_success:
                    break
            except httpx.HTTPError:
                pass
            if time.monotonic() > deadline:
                raise TimeoutError(cluster.describe())
            time.sleep(0.1)
    while cluster.has_warm_executors and cluster.warm_executors < len(cluster.workers):
        if time.monotonic() > deadline:
            raise TimeoutError(cluster.describe())
        time.sleep(0.1)
    time.sleep(PAUSE_S)


def _wait_for_checkpoint(cluster: Standbys, folder: Path, after: int) -> None:
    from tests.integration.engine.selfcheck.masters import latest_checkpoint

    deadline = time.monotonic() + PATIENCE_S
    while latest_checkpoint(folder, cluster.job_id) <= after:
        if time.monotonic() > deadline:
            raise TimeoutError(cluster.describe())
        time.sleep(0.02)
