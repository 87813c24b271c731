"""How a job is stopped and which state its successor restores: one test per row of the tables."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from penstock_operator.api.status.snapshots import Restore
from penstock_operator.reconcile.decide.restore.committed_end import Choice, Lost, Unknown, incarnation_restore, origin
from penstock_operator.reconcile.decide.restore.stopping import Blocked, Stop, StopNow, Wait, WithSavepoint, choose_stop
from penstock_operator.reconcile.observation import Observation, Storage
from tests.unit.operator.contexts import (
    CHK,
    NOW,
    SAVEPOINT,
    ago,
    chk,
    deployment,
    engine,
    make_running,
    make_spec,
    pod,
    stored,
    up,
)

PATIENCE = timedelta(minutes=2)
GONE: dict[str, Any] = {"master": None, "worker": None, "pods": (), "engine": engine(None)}


def choose(
    mode: str, seen: Observation, *, waited: float = 0, running: Any = None, ends_in: float = 60, **upgrade: Any
) -> Stop:
    spec = make_spec(job={"upgradeMode": mode}, upgrade=upgrade)
    running = running or make_running(spec)
    limits: dict[str, Any] = {"waited": timedelta(seconds=waited), "patience": PATIENCE, "ends_by": ago(-ends_in)}
    return choose_stop(spec, running, seen, now=NOW, **limits)


@pytest.mark.parametrize("state", ["RUNNING", "RESTARTING", "FAILED", "FINISHED", None])
def test_a_stateless_job_stops_immediately_and_starts_empty(state: str | None) -> None:
    choice = choose("stateless", up(engine=engine(state), storage=Storage(was_read=True, error="away")))
    assert isinstance(choice, StopNow)
    assert choice.restore.kind == "Fresh"


@pytest.mark.parametrize("mode", ["savepoint", "last-state"])
@pytest.mark.parametrize("state", ["FINISHED", "CANCELED", "FAILED"])
def test_an_ended_job_needs_no_stop(mode: str, state: str) -> None:
    choice = choose(mode, up(engine=engine(state)))
    assert isinstance(choice, StopNow)
    assert choice.restore.path == CHK
    assert choice.newest


@pytest.mark.parametrize("mode", ["savepoint", "last-state"])
@pytest.mark.parametrize("state", ["CANCELLING", "FAILING"])
def test_a_job_that_is_ending_is_awaited(mode: str, state: str) -> None:
    choice = choose(mode, up(engine=engine(state)), waited=9999)
    assert isinstance(choice, Wait)
    assert choice.message.startswith(f"the job is {state}; unless it has ended by 12:01:00 UTC, its pods are stopped")


@pytest.mark.parametrize("mode", ["savepoint", "last-state"])
@pytest.mark.parametrize("state", ["CANCELLING", "FAILING"])
def test_an_ending_job_is_awaited_only_for_a_limited_time(mode: str, state: str) -> None:
    choice = choose(mode, up(engine=engine(state)), ends_in=0, checkpointFallback=False)
    assert isinstance(choice, StopNow), "it will not be RUNNING any more, whatever one waits for"
    assert (choice.restore.path, choice.newest) == (CHK, True)
    lost = choose(mode, up(engine=engine(state), storage=stored(None)), ends_in=0)
    assert isinstance(lost, Blocked)
    unknown = choose(mode, up(engine=engine(state), storage=Storage(was_read=True, error="away")), ends_in=0)
    assert isinstance(unknown, Wait)


def test_a_running_job_is_stopped_with_a_savepoint() -> None:
    assert isinstance(choose("savepoint", up()), WithSavepoint)


def test_last_state_uses_the_newest_checkpoint_of_a_running_job() -> None:
    choice = choose("last-state", up())
    assert choice == StopNow(
        Restore(kind="Checkpoint", path=CHK, checkpoint_id=7, time=ago(20), reason="newest complete checkpoint"),
        newest=True,
    )


@pytest.mark.parametrize(
    ("storage", "upgrade"),
    [
        (stored(None), {}),
        (stored(chk(torn="files are missing")), {}),
        (stored(chk(time=ago(300))), {"maxCheckpointAge": "1m"}),
        (stored(chk(time=None)), {"maxCheckpointAge": "1m"}),
    ],
    ids=["none-yet", "torn", "too-old", "of-unknown-age"],
)
def test_last_state_without_a_good_checkpoint_takes_a_savepoint(storage: Storage, upgrade: dict[str, Any]) -> None:
    assert isinstance(choose("last-state", up(storage=storage), **upgrade), WithSavepoint)


@pytest.mark.parametrize("storage", [Storage(), Storage(was_read=True, error="away")], ids=["not-asked", "away"])
@pytest.mark.parametrize("state", ["RUNNING", "FAILED"])
def test_unknown_state_does_not_count_as_absent(storage: Storage, state: str) -> None:
    assert isinstance(choose("last-state", up(storage=storage, engine=engine(state))), Wait)


@pytest.mark.parametrize("state", ["RESTARTING", "CREATED", "INITIALIZING", None])
def test_a_job_that_is_not_running_gets_time_for_a_savepoint(state: str | None) -> None:
    assert isinstance(choose("savepoint", up(engine=engine(state)), waited=30), Wait)


@pytest.mark.parametrize("state", ["RESTARTING", "CREATED", "INITIALIZING", None])
def test_the_newest_checkpoint_is_used_after_that_time(state: str | None) -> None:
    choice = choose("savepoint", up(engine=engine(state)), waited=150)
    assert isinstance(choice, StopNow)
    assert choice.restore.path == CHK


def test_the_checkpoint_is_not_used_if_the_user_forbids_it() -> None:
    choice = choose("savepoint", up(engine=engine("RESTARTING")), waited=9999, checkpointFallback=False)
    assert isinstance(choice, Wait)
    assert "checkpointFallback" in choice.message


def test_last_state_does_not_wait_for_a_job_that_is_not_running() -> None:
    assert isinstance(choose("last-state", up(engine=engine("RESTARTING"))), StopNow)


def test_a_job_that_never_started_loses_nothing() -> None:
    source = Restore(kind="Savepoint", path=SAVEPOINT, reason="savepoint of upgrade op")
    running = make_running(restored_from=source, stable=False, had_checkpoint=False)
    seen = up(engine=engine(None), pods=(pod(started=False, ready=False),), storage=stored(None))
    choice = choose("savepoint", seen, running=running)
    assert isinstance(choice, StopNow)
    assert choice.restore.path == SAVEPOINT


@pytest.mark.parametrize("seen", [up(**GONE), up(pods=(), engine=engine(None), master=deployment(replicas=0))])
def test_a_job_without_pods_needs_no_stop(seen: Observation) -> None:
    choice = choose("savepoint", seen)
    assert isinstance(choice, StopNow)
    assert choice.restore.path == CHK


@pytest.mark.parametrize("storage", [stored(None), stored(chk(torn="gone", older="s3://b/chk-6"))])
def test_lost_state_blocks_the_start(storage: Storage) -> None:
    choice = choose("savepoint", up(**{**GONE, "storage": storage}))
    assert isinstance(choice, Blocked)
    assert choice.reason == "StateLost"
    assert "job.initialSavepointPath" in choice.message


def test_a_torn_newest_checkpoint_is_never_silently_skipped() -> None:
    choice = choose("savepoint", up(**{**GONE, "storage": stored(chk(torn="gone", older="s3://b/chk-6"))}))
    assert isinstance(choice, Blocked)
    assert "s3://b/chk-6" in choice.message


@pytest.mark.parametrize(
    ("had_checkpoint", "storage", "expected"),
    [
        (True, Storage(), Unknown),
        (True, Storage(was_read=True, error="away"), Unknown),
        (True, stored(chk()), Restore),
        (True, stored(None), Lost),
        (False, stored(None), Restore),
        (True, stored(chk(job_id="b" * 32)), Lost),
    ],
    ids=["not-asked", "away", "newest", "lost", "never-had-one", "of-another-job"],
)
def test_restore_points_are_selected(had_checkpoint: bool, storage: Storage, expected: type[Choice]) -> None:
    assert isinstance(incarnation_restore(make_running(had_checkpoint=had_checkpoint), storage), expected)


def test_a_job_that_never_had_a_checkpoint_starts_from_its_own_origin() -> None:
    source = Restore(kind="Savepoint", path=SAVEPOINT, reason="job.initialSavepointPath")
    running = make_running(had_checkpoint=False, restored_from=source)
    point = incarnation_restore(running, stored(None))
    assert isinstance(point, Restore)
    assert point.path == SAVEPOINT


def restore(kind: Any, path: str, number: int | None) -> Restore:
    return Restore(kind=kind, path=path, checkpoint_id=number)


TORN = chk(checkpoint_id=10, torn="files are missing", older="chk-8")


@pytest.mark.parametrize(
    ("pinned", "own", "seen", "expected"),
    [
        (restore("Savepoint", "sp", 9), True, chk(path="chk", checkpoint_id=8), "sp"),
        (restore("Savepoint", "sp", 9), True, chk(path="chk", checkpoint_id=9), "sp"),
        (restore("Savepoint", "sp", 9), True, chk(path="chk", checkpoint_id=10), "chk"),
        (restore("Savepoint", "sp", None), True, chk(path="chk", checkpoint_id=10), "sp"),
        (restore("Savepoint", "foreign", 90), False, chk(path="chk", checkpoint_id=1), "chk"),
        (restore("Checkpoint", "chk-1", 1), False, chk(path="chk-2", checkpoint_id=2), "chk-2"),
        (restore("Savepoint", "sp", 9), True, None, "sp"),
        (restore("Savepoint", "before", 9), False, None, Lost),
        (restore("Checkpoint", "chk-8", 8), False, TORN, Lost),
        (restore("Savepoint", "sp", 9), True, TORN, Lost),
        (restore("Savepoint", "sp", 10), True, TORN, "sp"),
        (None, False, TORN, Lost),
        (None, False, chk(path="chk", checkpoint_id=3), "chk"),
    ],
)
@pytest.mark.parametrize("named", [False, True])
def test_a_start_before_the_committed_end_requires_an_explicit_path(
    pinned: Restore | None, own: bool, seen: Any, expected: Any, named: bool
) -> None:
    found = origin(pinned, named=named, own=own, running=make_running(), storage=stored(seen))
    if named and pinned is not None:
        assert found == pinned
    elif isinstance(expected, str):
        assert isinstance(found, Restore)
        assert found.path == expected
    else:
        assert isinstance(found, expected)


@pytest.mark.parametrize("storage", [Storage(), Storage(was_read=True, error="away")])
@pytest.mark.parametrize("own", [False, True])
def test_a_start_waits_for_storage_that_has_not_answered(storage: Storage, own: bool) -> None:
    pinned = restore("Savepoint", "sp", 9)
    assert isinstance(origin(pinned, named=False, own=own, running=make_running(), storage=storage), Unknown)


def test_an_incarnation_without_a_checkpoint_keeps_the_pinned_snapshot() -> None:
    running = make_running(had_checkpoint=False)
    pinned = restore("Savepoint", "sp", 9)
    assert origin(pinned, named=False, own=False, running=running, storage=stored(None)) == pinned
    assert origin(pinned, named=False, own=False, running=None, storage=Storage()) == pinned
    assert isinstance(origin(None, named=True, own=False, running=None, storage=Storage()), Lost)
