"""A storage outage of the master delays a rollback only while the outage lasts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from penstock_operator.api.status.snapshots import Restore
from penstock_operator.reconcile.core import decide
from penstock_operator.reconcile.observation import Engine, Pod
from penstock_operator.reconcile.observe.manifests import pod as read_pod
from tests.unit.operator.contexts import (
    JOB_ID,
    NOW,
    ago,
    engine,
    make_context,
    make_op,
    make_running,
    make_spec,
    pod,
    stored,
    up,
)

STABLE = Restore(kind="Savepoint", path="s3://b/savepoint-1")


def ended(code: int) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": "Error", "finishedAt": "2026-01-01T11:50:00Z"}}


def since(seconds: float) -> dict[str, Any]:
    return {"running": {"startedAt": (NOW - timedelta(seconds=seconds)).isoformat()}}


def master(state: dict[str, Any], last: int, restarts: int = 1, **meta: Any) -> Pod:
    """Return the pod of a master whose container has this state and whose last exit code was `last`."""
    container = {"name": "penstock", "restartCount": restarts, "state": state, "lastState": ended(last)}
    labels = {"penstock.dev/role": "master", "penstock.dev/incarnation": JOB_ID}
    return read_pod(
        {
            "metadata": {"name": "weather-master-1", "labels": labels, **meta},
            "spec": {"containers": [{"name": "penstock"}]},
            "status": {"phase": "Running", "containerStatuses": [container]},
        }
    )


def step_after(*masters: Pod, answer: Engine | None = None, left: float = -1) -> tuple[str, str | None]:
    """Return kind and obstacle of the operation after one decision about an upgrade with this many seconds left."""
    op = make_op(
        "Upgrade",
        "Watch",
        deadline=ago(-left),
        step_since=ago(600),
        fallback_revision="weather-before",
        fallback_restore=STABLE,
    )
    running = make_running(stable=False, had_checkpoint=False)
    seen = up(engine=answer or engine(None), pods=masters, storage=stored(None))
    ctx = make_context(make_spec(), seen=seen, running=running, operation=op, stable_revision="weather-before")
    found = decide(ctx).status.operation
    assert found is not None
    return found.kind, found.blocked


WAITING: dict[str, Any] = {"waiting": {"reason": "CrashLoopBackOff"}}


@pytest.mark.parametrize(
    "pods",
    [
        (master(since(600), 74),),
        (master(ended(1), 74),),
        (master(WAITING, 1),),
        (master(WAITING, 74, deletionTimestamp="2026-01-01T12:00:00Z"), pod(name="weather-master-2", ready=False)),
    ],
    ids=["it-runs-again", "it-ended-otherwise-since", "it-ended-otherwise-last", "its-pod-goes"],
)
def test_an_outage_that_is_over_does_not_delay_the_rollback(pods: tuple[Pod, ...]) -> None:
    assert step_after(*pods)[0] == "Rollback"


@pytest.mark.parametrize(
    "master_pod",
    [master(WAITING, 74), master(ended(74), 1), master(since(20), 74)],
    ids=["it-waits-for-its-next-start", "it-has-just-ended", "it-has-just-started"],
)
def test_the_rollback_waits_while_the_outage_lasts(master_pod: Pod) -> None:
    assert step_after(master_pod) == ("Upgrade", "StorageUnavailable")


def test_an_outage_lasts_while_the_master_reports_it() -> None:
    answer = engine("RESTARTING", exception="[STORAGE] cannot put s3://b/x: 503 SlowDown")
    assert step_after(master(since(600), 74), answer=answer) == ("Upgrade", "StorageUnavailable")
    answer = engine("RESTARTING", exception="ValueError: no such field")
    assert step_after(master(since(600), 74), answer=answer)[0] == "Rollback"


def test_restarts_during_an_outage_are_no_crash_loop() -> None:
    """The revision has time to become stable, although the outage has restarted its master five times."""
    assert step_after(master(since(150), 74, restarts=5), left=60) == ("Upgrade", None)
    assert step_after(master(since(150), 1, restarts=5), left=60)[0] == "Rollback"
