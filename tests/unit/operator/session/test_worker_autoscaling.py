"""The workers of a FlinkCluster follow the slots that its jobs need."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from penstock_operator.api.flinkcluster import FlinkClusterSpec, FlinkClusterStatus, WorkerScaling
from penstock_operator.api.validation import parse_cluster_spec
from penstock_operator.engine.client import SessionOverview
from penstock_operator.errors import SpecError
from penstock_operator.resources.flinkcluster import as_job, revision_digest
from penstock_operator.session.context import (
    ApplyRevision,
    ClusterContext,
    JobSeen,
    RevisionSeen,
    ScaleWorkers,
    SessionUse,
    WorkerPod,
)
from penstock_operator.session.decide import decide
from penstock_operator.session.workers import with_workers
from tests.unit.operator.world import World
from tests.unit.operator.world.engine import FakeJob
from tests.unit.operator.world.kubernetes.images import Image
from tests.unit.operator.world.scenarios.scenario import running, suspended
from tests.unit.operator.world.session import (
    CLUSTER_NAME,
    cluster_is_ready,
    cluster_status,
    flinkcluster,
    pods_of,
    session_job,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

NOW = datetime(2026, 3, 1, tzinfo=UTC)
SECOND = "second"


def played(story: Callable[[World], Awaitable[None]]) -> None:
    asyncio.run(story(World()))  # type: ignore[arg-type]


def autoscaled_cluster(**autoscaling: Any) -> dict[str, Any]:
    worker = {"replicas": 1, "slots": 2, "autoscaling": {"max": 4, "scaleDownAfter": "60s", **autoscaling}}
    return flinkcluster(worker=worker)


def workers(world: World) -> int:
    return len(pods_of(world, "shared-1", "worker"))


def test_the_workers_follow_the_jobs_and_the_spec_stays_as_it_is() -> None:
    async def story(world: World) -> None:
        world.apply(autoscaled_cluster())
        await world.until(lambda: cluster_is_ready(world))
        before = (world.cluster.one("FlinkCluster", CLUSTER_NAME) or {})["spec"]
        world.apply(session_job(parallelism=3))
        await world.until(lambda: running(world, parallelism=3))
        assert workers(world) == 2
        world.edit(job={"parallelism": 7})
        await world.until(lambda: running(world, parallelism=7))
        assert workers(world) == 4
        world.edit(job={"parallelism": 2})
        await world.until(lambda: running(world, parallelism=2))
        await world.run(30)
        assert workers(world) == 4, "idle workers stay for scaleDownAfter"
        await world.until(lambda: workers(world) == 1, within=180)
        job = next(iter(world.sessions["shared-1"].values()))
        assert (job.state, job.failovers, world.rescales) == ("RUNNING", 0, [7, 2])
        world.edit(job={"state": "suspended"})
        await world.until(lambda: suspended(world))
        assert (world.cluster.one("FlinkCluster", CLUSTER_NAME) or {})["spec"] == before
        await world.until(lambda: cluster_status(world)["scaling"]["slotsNeeded"] == 0, within=60)

    played(story)


def test_an_autoscaled_job_of_a_cluster_gets_workers_before_it_is_rescaled() -> None:
    async def story(world: World) -> None:
        world.apply(autoscaled_cluster())
        await world.until(lambda: cluster_is_ready(world))
        manifest = session_job()
        manifest["spec"]["autoscaling"] = {"enabled": True, "max": 6}
        world.apply(manifest)
        await world.until(lambda: running(world, parallelism=1))
        await world.run(30)
        world.load = 6
        await world.until(lambda: running(world, parallelism=6), within=120)
        assert workers(world) == 3
        world.load = 2
        await world.until(lambda: running(world, parallelism=2), within=120)
        await world.until(lambda: workers(world) == 1, within=240)
        assert world.rescales == [6, 2]
        job = next(iter(world.sessions["shared-1"].values()))
        assert (job.state, job.failovers) == ("RUNNING", 0)

    played(story)


def test_a_job_that_needs_more_than_the_maximum_waits_and_both_objects_say_so() -> None:
    async def story(world: World) -> None:
        world.apply(autoscaled_cluster(max=2))
        await world.until(lambda: cluster_is_ready(world))
        manifest = session_job()
        manifest["spec"]["autoscaling"] = {"enabled": True}
        world.apply(manifest)
        await world.until(lambda: running(world, parallelism=1))
        await world.run(30)
        world.load = 6
        await world.until(lambda: cluster_status(world)["scaling"]["limited"], within=60)
        assert workers(world) <= 2
        await world.run(60)
        assert running(world, parallelism=1)
        assert [reason for reason, _ in world.events()].count("WorkersLimited") == 1

    played(story)


def test_an_upgrade_of_the_cluster_starts_the_workers_that_the_jobs_need() -> None:
    async def story(world: World) -> None:
        world.apply(autoscaled_cluster())
        await world.until(lambda: cluster_is_ready(world))
        world.apply(session_job(parallelism=4))
        world.apply(session_job(SECOND, parallelism=2))
        await world.until(lambda: running(world, parallelism=4))
        await world.run(60)
        assert workers(world) == 3
        world.cluster.edit("FlinkCluster", "default", CLUSTER_NAME, lambda m: m["spec"].update(image="engine:2"))
        await world.until(lambda: cluster_is_ready(world) and not pods_of(world, "shared-1", "master"))
        assert len(pods_of(world, "shared-2", "worker")) == 3
        assert running(world, parallelism=4)

    played(story)


# --- the decision -----------------------------------------------------------------------------------------------------

SPEC = FlinkClusterSpec.model_validate(autoscaled_cluster(min=1, max=4)["spec"])


def context(
    *jobs: JobSeen,
    workers: int = 3,
    spare: timedelta | None = None,
    used: int = 2,
    busy: tuple[str, ...] | None = ("worker-0",),
    ready: bool = True,
    revisions: int = 1,
    session: bool = True,
    others: int = 0,
) -> ClusterContext:
    scaling = WorkerScaling(workers=workers, spare_since=NOW - spare if spare is not None else None)
    digest = revision_digest(SPEC)
    return ClusterContext(
        "default",
        "shared",
        "uid",
        1,
        SPEC,
        FlinkClusterStatus(revision=1, scaling=scaling),
        NOW,
        digest=digest,
        revisions=tuple(RevisionSeen(n + 1, digest, workers_wanted=workers) for n in range(revisions)),
        jobs=jobs,
        session=SessionOverview(workers, 2 * workers, 2 * workers - used) if session else None,
        use=SessionUse(frozenset(busy), others) if busy is not None else None,
        workers=tuple(WorkerPod(f"worker-{n}", None, ready) for n in range(workers)),
    )


def job(slots: int) -> JobSeen:
    return JobSeen("default/a", 1, 1, slots=slots)


def chosen(ctx: ClusterContext) -> int:
    scaling = with_workers(ctx).status.scaling
    assert scaling is not None
    return scaling.workers


LONG = timedelta(minutes=2)


def test_workers_are_added_at_once_and_removed_after_a_while() -> None:
    assert chosen(context(job(8))) == 4
    assert chosen(context(job(2))) == 3
    assert chosen(context(job(2), spare=timedelta(seconds=59))) == 3
    assert chosen(context(job(2), spare=LONG)) == 1


def test_the_time_begins_again_when_the_workers_were_needed_in_between() -> None:
    scaling = with_workers(context(job(6), spare=LONG, used=6)).status.scaling
    assert scaling is not None
    assert scaling.spare_since is None


@pytest.mark.parametrize(
    "changes",
    [
        {"busy": None},
        {"busy": ()},
        {"busy": ("elsewhere",)},
        {"ready": False},
        {"revisions": 2},
        {"session": False},
        {"busy": ("worker-0", "worker-1", "worker-2")},
    ],
    ids=["busy-unknown", "busy-missing", "busy-elsewhere", "not-ready", "upgrade", "silent", "spread"],
)
def test_no_worker_is_removed(changes: dict[str, Any]) -> None:
    assert chosen(context(job(2), spare=LONG, **changes)) == 3


def test_programs_that_are_no_flinkjobs_keep_their_slots() -> None:
    assert chosen(context(job(2), others=4, spare=LONG)) == 3
    assert chosen(context(job(2), others=5)) == 4


def test_the_jobs_of_a_session_that_no_flinkjob_has_started_add_workers() -> None:
    async def story(world: World) -> None:
        world.apply(autoscaled_cluster())
        await world.until(lambda: cluster_is_ready(world))
        world.apply(session_job())
        await world.until(lambda: running(world, parallelism=1))
        other = FakeJob(world, "other", "f" * 32, Image(), "--fresh", 2, state="RUNNING", parallelism=2)
        world.sessions["shared-1"]["f" * 32] = other
        await world.until(lambda: workers(world) == 2, within=60)
        assert cluster_status(world)["scaling"]["slotsNeeded"] == 3

    played(story)


def test_a_lower_maximum_removes_no_worker_that_is_busy() -> None:
    lower = SPEC.model_copy(update={"worker": SPEC.worker.model_copy(update={"autoscaling": limits(1)})})
    everything = tuple(f"worker-{n}" for n in range(3))
    assert chosen(replace(context(job(6), used=6, spare=LONG, busy=everything), spec=lower)) == 3
    assert chosen(replace(context(job(2), spare=LONG), spec=lower)) == 1


def test_the_section_removes_no_busy_worker_of_a_cluster_that_runs_already() -> None:
    lower = SPEC.model_copy(update={"worker": SPEC.worker.model_copy(update={"autoscaling": limits(1)})})
    everything = tuple(f"worker-{n}" for n in range(3))
    before = context(job(6), used=6, busy=everything)
    ctx = replace(before, spec=lower, status=before.status.model_copy(update={"scaling": None}))
    assert chosen(ctx) == 3


def test_an_apply_of_all_objects_removes_no_worker() -> None:
    due = context(job(2), spare=LONG)
    flawed = replace(due, has_finalizer=True, revisions=tuple(replace(r, flaw="all objects") for r in due.revisions))
    assert decide(flawed).action == ApplyRevision(1, 3)
    ready = replace(flawed, revisions=due.revisions)
    assert decide(ready).action == ScaleWorkers(1, 1, frozenset({"worker-0"}))


def test_a_removal_that_was_not_executed_is_decided_again() -> None:
    """The session may have given a slot of an idle worker to a job since then."""
    before = context(job(2), spare=LONG, busy=None)
    status = before.status.model_copy(update={"scaling": WorkerScaling(workers=1, slots_needed=2)})
    assert decide(replace(before, has_finalizer=True, status=status)).action is None


def limits(most: int) -> Any:
    assert SPEC.worker.autoscaling is not None
    return SPEC.worker.autoscaling.model_copy(update={"max": most})


def test_a_huge_request_is_limited() -> None:
    assert chosen(context(job(10**9))) == 4


def test_without_the_section_the_number_is_that_of_the_spec() -> None:
    off = SPEC.model_copy(update={"worker": SPEC.worker.model_copy(update={"autoscaling": None})})
    assert with_workers(replace(context(job(2)), spec=off)).status.scaling is None


def test_the_section_changes_no_pod() -> None:
    plain = FlinkClusterSpec.model_validate(flinkcluster(worker={"replicas": 1, "slots": 2})["spec"])
    assert revision_digest(SPEC) == revision_digest(plain)
    assert as_job(SPEC) == as_job(plain)


def test_contradictory_limits_are_refused() -> None:
    with pytest.raises(SpecError, match=r"spec\.worker\.autoscaling\.min: 5 is more than the maximum 4"):
        parse_cluster_spec(autoscaled_cluster(min=5)["spec"])
