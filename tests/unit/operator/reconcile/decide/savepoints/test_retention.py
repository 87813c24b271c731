"""Which savepoints go: properties over arbitrary sets of snapshots."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_operator.api.flinkjob import Retention
from penstock_operator.api.status import Checkpoint, FlinkJobStatus, Nonces, Restore
from penstock_operator.reconcile.decide.savepoints.retention import AUTOMATIC, awaited_paths, expired, protected_paths
from penstock_operator.reconcile.observation import SnapshotObject
from tests.unit.operator.contexts import NOW, ago, make_op, make_running

snapshots = st.lists(
    st.builds(
        SnapshotObject,
        name=st.uuids().map(str),
        trigger=st.sampled_from(["manual", "periodic", "upgrade", "nonce"]),
        kind=st.just("savepoint"),
        state=st.sampled_from(["Pending", "InProgress", "Completed", "Failed"]),
        path=st.uuids().map(lambda u: f"s3://b/{u}"),
        completed_at=st.none() | st.integers(0, 100_000).map(ago),
    ),
    max_size=20,
)
retentions = st.builds(
    Retention, count=st.integers(1, 10), age=st.none() | st.integers(1, 100_000).map(lambda s: timedelta(seconds=s))
)


@given(snapshots, retentions, st.data())
def test_retention(found: list[SnapshotObject], retention: Retention, data: Any) -> None:
    some = st.sampled_from([s.path for s in found] or ["none"])
    protected = set(data.draw(st.lists(some, max_size=3)))
    gone = set(expired(found, retention, protected, NOW))
    by_name = {s.name: s for s in found}
    for name in gone:
        assert by_name[name].trigger in AUTOMATIC
        assert by_name[name].state == "Completed"
        assert by_name[name].path not in protected
    mine = [s for s in found if s.trigger in AUTOMATIC and s.state == "Completed" and s.completed_at]
    left = [s for s in mine if s.name not in gone and s.path not in protected]
    assert len(left) <= retention.count
    if mine:
        newest = max(mine, key=lambda s: (s.completed_at, s.name))
        assert newest.name not in gone
    if retention.age is not None:
        late = [s for s in left if s.completed_at and NOW - s.completed_at > retention.age]
        assert all(s is max(mine, key=lambda m: (m.completed_at, m.name)) for s in late)


def test_what_a_restore_may_need() -> None:
    def sp(name: str) -> Restore:
        return Restore(kind="Savepoint", path=name)

    status = FlinkJobStatus(
        next_restore=sp("next"),
        running=make_running(restored_from=sp("from"), stable=False),
        operation=make_op("Upgrade", "Watch", restore=sp("restore"), fallback_restore=sp("fallback")),
        last_savepoint=Checkpoint(path="made"),
    )
    assert protected_paths(status, "initial") == {"next", "from", "restore", "fallback", "made", "initial"}
    settled = status.model_copy(update={"operation": None, "running": make_running(restored_from=sp("from"))})
    assert protected_paths(settled) == {"next"}


@pytest.mark.parametrize(
    ("status", "nonce", "kept"),
    [
        ({}, None, True),
        ({"next_restore": Restore(kind="Fresh")}, None, False),
        ({"running": make_running()}, None, False),
        ({"running": make_running()}, 1, True),
        ({"running": make_running(), "nonces": Nonces(savepoint_redeploy=1)}, 1, False),
        ({"running": make_running(stable=False, restored_from=Restore(kind="Savepoint", path="s3://b/x"))}, None, True),
        ({"operation": make_op("Deploy", "Verify", restore=Restore(kind="Savepoint", path="s3://b/x"))}, None, True),
    ],
    ids=["never-started", "suspended", "started", "redeploy", "redeployed", "not-stable", "being-started"],
)
def test_what_another_job_named_counts_until_it_has_started(
    status: dict[str, Any], nonce: int | None, kept: bool
) -> None:
    assert ("s3://b/x" in awaited_paths(FlinkJobStatus(**status), "s3://b/x", nonce)) is kept
