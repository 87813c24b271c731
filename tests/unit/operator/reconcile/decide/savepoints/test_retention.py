"""The savepoints that retention removes: properties over arbitrary sets of snapshots."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_operator.api.flinkjob import Retention
from penstock_operator.api.status.flinkjob_status import FlinkJobStatus
from penstock_operator.api.status.operation import Nonces
from penstock_operator.api.status.snapshots import Checkpoint, Restore, Superseded
from penstock_operator.reconcile.decide.savepoints.retention import (
    AUTOMATIC,
    awaited_paths,
    expired,
    protected_paths,
    removed_checkpoints,
)
from penstock_operator.reconcile.observation import SnapshotObject
from tests.unit.operator.contexts import NOW, ago, make_op, make_running

snapshots = st.lists(
    st.builds(
        SnapshotObject,
        name=st.uuids().map(str),
        trigger=st.sampled_from(["manual", "periodic", "upgrade", "nonce"]),
        kind=st.sampled_from(["savepoint", "checkpoint"]),
        state=st.sampled_from(["Pending", "InProgress", "Completed", "Failed", "Abandoned"]),
        created=st.integers(0, 100_000).map(ago),
        path=st.uuids().map(lambda u: f"s3://b/{u}"),
        completed_at=st.none() | st.integers(0, 100_000).map(ago),
    ),
    max_size=20,
)
retentions = st.builds(
    Retention,
    count=st.integers(1, 10),
    checkpoints=st.integers(1, 10),
    failed=st.integers(0, 10),
    age=st.none() | st.integers(1, 100_000).map(lambda s: timedelta(seconds=s)),
)


def _complete(found: list[SnapshotObject], kind: str) -> list[SnapshotObject]:
    mine = [s for s in found if s.trigger in AUTOMATIC and s.state == "Completed" and s.completed_at and s.kind == kind]
    return sorted(mine, key=lambda s: (s.completed_at or NOW, s.name))


@given(snapshots, retentions, st.data())
def test_retention_has_a_limit_for_each_kind(found: list[SnapshotObject], retention: Retention, data: Any) -> None:
    some = st.sampled_from([s.path for s in found] or ["none"])
    protected = set(data.draw(st.lists(some, max_size=3)))
    gone = set(expired(found, retention, protected, NOW))
    by_name = {s.name: s for s in found}
    for name in gone:
        assert by_name[name].trigger in AUTOMATIC
        assert by_name[name].state in ("Completed", "Failed", "Abandoned")
        assert by_name[name].state != "Completed" or by_name[name].path not in protected
    for kind, limit in (("savepoint", retention.count), ("checkpoint", retention.checkpoints)):
        mine = _complete(found, kind)
        left = [s for s in mine if s.name not in gone]
        free = [s for s in left if s.path not in protected]
        assert len(free) <= limit
        assert not mine or mine[-1].name not in gone
        young = retention.age is None or kind == "checkpoint"
        assert len(left) >= min(len(mine), limit) or not young, "the other kinds count for nothing"
        if retention.age is not None and kind == "savepoint":
            late = [s for s in free if s.completed_at and NOW - s.completed_at > retention.age]
            assert all(s is mine[-1] for s in late)
    failed = [s for s in found if s.trigger in AUTOMATIC and s.state in ("Failed", "Abandoned")]
    assert len([s for s in failed if s.name not in gone]) == min(len(failed), retention.failed)


@pytest.mark.parametrize(
    ("made_by", "number", "removed"),
    [("a" * 32, 7, False), ("a" * 32, 6, False), ("a" * 32, 5, True), ("b" * 32, 3, False), ("c" * 32, 9, True)],
    ids=["newest", "retained", "behind", "of-one-that-is-kept", "of-one-that-is-gone"],
)
def test_a_snapshot_whose_checkpoint_the_engine_has_removed_is_deleted(
    made_by: str, number: int, removed: bool
) -> None:
    def made(name: str, seconds: float, **fields: Any) -> SnapshotObject:
        return SnapshotObject(
            name, "periodic", "checkpoint", "Completed", f"s3://b/{name}", completed_at=ago(seconds), **fields
        )

    found = [made("old", 60, made_by=made_by, checkpoint_id=number), made("new", 1, made_by="a" * 32, checkpoint_id=7)]
    status = FlinkJobStatus(running=make_running(), superseded=(Superseded(job_id="b" * 32),))
    gone = removed_checkpoints(found, status, latest=7, retained=2)
    assert (expired(found, Retention(), (), NOW, removed=gone) == ("old",)) is removed


def test_snapshots_that_a_restore_may_need_are_kept() -> None:
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
def test_a_snapshot_named_by_another_job_is_kept_until_that_job_has_started(
    status: dict[str, Any], nonce: int | None, kept: bool
) -> None:
    assert ("s3://b/x" in awaited_paths(FlinkJobStatus(**status), "s3://b/x", nonce)) is kept
