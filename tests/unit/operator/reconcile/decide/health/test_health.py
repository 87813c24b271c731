"""Health of a job without progress: reported once, and its pods are restarted if configured, but never in a loop."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from penstock_operator.api.status.incarnation import HealthStatus
from penstock_operator.reconcile.decide.health.rules import LONGEST_PAUSE, restart_due, with_health
from penstock_operator.reconcile.observation import Engine
from tests.unit.operator.contexts import JOB_ID, NOW, ago, engine, make_context, make_running, make_spec, up
from tests.unit.operator.world import Image, World, flinkjob
from tests.unit.operator.world.scenarios.scenario import deployed, operations, played, running, stalled
from tests.unit.operator.world.world import NAME

if TYPE_CHECKING:
    from penstock_operator.kube.cluster import Manifest
    from penstock_operator.reconcile.decide.context import Context


def job(**health: Any) -> Manifest:
    manifest = flinkjob()
    manifest["spec"]["health"] = health
    return manifest


def behaves(world: World, **image: Any) -> None:
    """Set the behavior of existing and future pods."""
    leading = world.leading(NAME)
    assert leading is not None
    leading.image = replace(leading.image, **image)
    world.images["job:1"] = leading.image


def reported(world: World) -> list[str]:
    rules = ("RestartLoop", "NoCheckpoint", "MasterSilent", "HealthRecovered")
    return [reason for reason, _ in world.events() if reason in rules]


def test_a_job_that_keeps_restarting_is_reported_once_and_its_recovery_once() -> None:
    async def scenario(world: World) -> None:
        await deployed(world, job(restarts=5, window="5m"))
        behaves(world, restarts_every=2)
        await world.until(lambda: stalled(world, "RestartLoop", "5 times within 5m"), within=120)
        message = world.condition("Stalled")["message"]
        assert "the database is away" in message
        for kind in ("Ready", "Progressing"):
            assert (world.condition(kind)["status"], world.condition(kind)["reason"]) == ("False", "RestartLoop")
        await world.run(1200, pace=5)
        assert reported(world) == ["RestartLoop"]
        assert world.condition("Stalled")["message"] == message
        assert operations(world) == ["Deploy"]
        behaves(world, restarts_every=0)
        await world.until(lambda: running(world), within=600)
        assert reported(world) == ["RestartLoop", "HealthRecovered"]
        assert world.condition("Stalled")["status"] == "False"
        await world.run(600, pace=5)
        assert reported(world) == ["RestartLoop", "HealthRecovered"]

    played(scenario)


def test_the_cause_of_a_failover_that_ended_between_two_polls_is_queried() -> None:
    async def scenario(world: World) -> None:
        await deployed(world, job(restarts=1))
        leading = world.leading(NAME)
        assert leading is not None
        leading.failovers, leading.failure = 1, "ConnectionError: the database is away"
        await world.until(lambda: stalled(world, "RestartLoop", "the database is away"), within=60)

    played(scenario)


def test_endless_restarts_that_the_engine_does_not_count_are_detected_by_checkpoints() -> None:
    async def scenario(world: World) -> None:
        await deployed(world, job(checkpointIntervals=30))
        behaves(world, restarts_every=1e9)
        leading = world.leading(NAME)
        assert leading is not None
        await world.run(2)
        leading.state, leading.wanted = "RESTARTING", 10**6
        await world.until(lambda: stalled(world, "NoCheckpoint", "no checkpoint has completed for 5m"), within=400)
        await world.run(600, pace=5)
        assert reported(world) == ["NoCheckpoint"]
        leading.wanted = 2
        behaves(world, restarts_every=0)
        await world.until(lambda: running(world), within=120)
        assert reported(world) == ["NoCheckpoint", "HealthRecovered"]

    played(scenario)


def test_a_running_job_without_complete_checkpoints_is_stalled() -> None:
    async def scenario(world: World) -> None:
        await deployed(world, job())
        behaves(world, checkpoints=False)
        await world.until(lambda: stalled(world, "NoCheckpoint", "the job is RUNNING"), within=600)
        assert world.condition("Running")["status"] == "True"
        assert world.condition("CheckpointHealthy")["status"] == "False"
        behaves(world, checkpoints=True)
        await world.until(lambda: running(world), within=120)

    played(scenario)


def test_a_master_that_does_not_answer_is_reported() -> None:
    async def scenario(world: World) -> None:
        await deployed(world, job(silence="2m"))
        world.rest_down = True
        await world.run(100)
        assert not reported(world)
        await world.until(lambda: stalled(world, "MasterSilent", "has not responded for 2m"), within=60)
        await world.run(600, pace=5)
        world.rest_down = False
        await world.until(lambda: running(world), within=60)
        assert reported(world) == ["MasterSilent", "HealthRecovered"]

    played(scenario)


def test_a_health_rule_can_be_disabled_while_it_is_violated() -> None:
    async def scenario(world: World) -> None:
        await deployed(world, job(enabled=False))
        behaves(world, checkpoints=False)
        await world.run(900, pace=5)
        assert reported(world) == []
        assert "health" not in world.status()
        world.edit(health={"enabled": True})
        await world.until(lambda: stalled(world, "NoCheckpoint", ""), within=60)
        world.edit(health={"enabled": False})
        await world.until(lambda: running(world), within=60)

    played(scenario)


def test_pods_are_restarted_from_the_newest_checkpoint_if_configured() -> None:
    async def scenario(world: World) -> None:
        before = await deployed(world, job(silence="2m", restart=True))
        world.rest_down = True
        await world.until(lambda: world.status()["jobId"] != before, within=300)
        world.rest_down = False
        await world.until(lambda: running(world))
        assert operations(world) == ["Recover", "Deploy"]
        (reason,) = [text for description, text in world.events() if description == "RecoverStarted"]
        assert "health.restart" in reason
        assert "MasterSilent" in reason
        assert world.status()["running"]["restoredFrom"]["kind"] == "Checkpoint"

    played(scenario)


def test_pauses_between_unsuccessful_restarts_of_pods_double() -> None:
    """The cause is outside of the pods: each incarnation completes one checkpoint, and then none for longer than allowed."""
    start_times: list[float] = []

    async def scenario(world: World) -> None:
        await deployed(world, job(checkpointIntervals=30, window="10m", restart=True))
        start = world.time

        def seen(transition: Any) -> None:
            op, was = transition.after.operation, transition.before.operation
            if op is not None and was is None and op.kind == "Recover":
                start_times.append((transition.now - start).total_seconds())

        world.watch = seen

        async def only_the_first_one() -> None:
            leading = world.leading(NAME)
            if leading is not None and leading.completed >= 1 and running(world):
                leading.image = replace(leading.image, checkpoints=False)

        await world.run(5000, also=only_the_first_one, pace=5)
        pauses = [after - before for before, after in itertools.pairwise(start_times)]
        assert len(start_times) == 4, start_times
        assert all(p >= 600 * 2**i for i, p in enumerate(pauses)), pauses
        assert reported(world).count("NoCheckpoint") in (len(start_times), len(start_times) + 1)

    played(scenario)


def test_an_image_whose_jobs_are_healthy_for_long_resets_the_pause() -> None:
    async def scenario(world: World) -> None:
        first = await deployed(world, job(silence="2m", restart=True))
        for _ in range(2):
            world.rest_down = True
            await world.until(lambda before=first: world.status()["jobId"] != before, within=300)
            world.rest_down = False
            await world.until(lambda: running(world))
            assert world.status()["health"]["podRestarts"] == 1
            first = world.status()["jobId"]
            await world.run(3700, pace=20)

    played(scenario)


def test_pods_are_not_restarted_without_storage() -> None:
    async def scenario(world: World) -> None:
        before = await deployed(world, job(restart=True))
        world.storage.down = "503"
        behaves(world, checkpoints=False)
        await world.until(lambda: stalled(world, "NoCheckpoint", ""), within=600)
        await world.run(600, pace=5)
        assert world.status()["jobId"] == before
        world.storage.down = ""
        await world.until(lambda: world.status()["jobId"] != before, within=60)
        behaves_again = Image()
        world.images["job:1"] = behaves_again
        await world.until(lambda: (j := world.leading(NAME)) is not None and j.job_id != before)
        leading = world.leading(NAME)
        assert leading is not None
        leading.image = behaves_again
        await world.until(lambda: running(world))

    played(scenario)


def test_counting_costs_no_writes() -> None:
    """The next necessary status update writes the counts. A restarted operator counts unwritten events again."""

    async def scenario(world: World) -> None:
        await deployed(world, job(restarts=100, window="1h"))
        leading = world.leading(NAME)
        assert leading is not None
        assert leading.restored == 0, "it has not come to a checkpoint either"
        world.cluster.writes.clear()
        for _ in range(10):
            leading.failovers += 1
            await world.run(60)
        assert len(world.cluster.writes) <= 11
        assert len(world.status()["health"]["restartsAt"]) >= 8

    played(scenario)


# --- the rules, one by one ------------------------------------------------------------------------------------------


def judged(
    seen: Engine, health: HealthStatus | None = None, rules: dict[str, Any] | None = None, **status: Any
) -> Context:
    spec = make_spec(health=rules or {})
    return with_health(make_context(spec, seen=up(engine=seen), health=health, **status))


def known(**changes: Any) -> HealthStatus:
    return HealthStatus(**{"job_id": JOB_ID, "since": ago(600), **changes})


def test_only_restarts_within_the_window_are_counted() -> None:
    old = known(restarts=9, restarts_at=tuple(ago(s) for s in (700, 650, 601, 599, 30)))
    found = judged(engine(restarts=10), old).status.health
    assert found is not None
    assert found.restarts_at == (ago(599), ago(30), NOW)


def test_a_master_whose_count_starts_again_has_not_restarted_less() -> None:
    found = judged(engine(restarts=2), known(restarts=9)).status.health
    assert found is not None
    assert (found.restarts, found.restarts_at) == (2, (NOW, NOW))


def test_counts_of_another_incarnation_are_ignored() -> None:
    other = known(
        job_id="b" * 32, restarts=3, restarts_at=(NOW,) * 9, broken="RestartLoop", pod_restarts=2, restarted_at=NOW
    )
    found = judged(engine(restarts=50), other).status.health
    assert found is not None
    assert (found.restarts, found.restarts_at, found.broken) == (50, (), None)
    assert (found.pod_restarts, found.restarted_at) == (2, NOW)


@pytest.mark.parametrize(
    ("seen", "broken"),
    [
        (Engine(error="no response", silent_for=timedelta(hours=2)), "MasterSilent"),
        (Engine(error="no response", silent_for=timedelta(minutes=4)), None),
        (Engine(error="the job has no master", absent=True, no_checkpoint_for=timedelta(hours=2)), "NoCheckpoint"),
        (engine("RESTARTING", no_checkpoint_for=timedelta(hours=2)), "NoCheckpoint"),
        (engine("RESTARTING"), None),
    ],
    ids=["silent", "silent-for-a-moment", "absent", "nothing-completes", "completed-just-now"],
)
def test_a_master_that_does_not_answer_may_complete_checkpoints(seen: Engine, broken: str | None) -> None:
    found = judged(seen, known(), running=make_running(started_at=ago(7200))).status.health
    assert found is not None
    assert found.broken == broken


def test_a_job_without_periodic_checkpoints_misses_none() -> None:
    spec = make_spec(configuration={"execution.checkpointing.interval": 0})
    seen = up(engine=engine(no_checkpoint_for=timedelta(hours=20)))
    ctx = with_health(make_context(spec, seen=seen, running=make_running(started_at=ago(72000))))
    assert ctx.status.health is not None
    assert ctx.status.health.broken is None


def test_the_checkpoint_rule_never_applies_before_checkpoint_healthy_is_false() -> None:
    slow = {"execution.checkpointing.interval": "1s", "execution.checkpointing.tolerable-failed-checkpoints": 50}
    late = engine(no_checkpoint_for=timedelta(minutes=5))
    ctx = with_health(make_context(make_spec(configuration=slow), seen=up(engine=late)))
    assert ctx.status.health is not None
    assert ctx.status.health.broken is None


def test_the_pause_between_two_restarts_of_pods_is_limited() -> None:
    spec = make_spec(health={"restart": True})
    for number, pause in ((1, timedelta(minutes=10)), (3, timedelta(minutes=40)), (60, LONGEST_PAUSE)):
        for at, due in ((NOW - pause, True), (NOW - pause + timedelta(seconds=1), False)):
            health = known(broken="NoCheckpoint", pod_restarts=number, restarted_at=at)
            assert restart_due(make_context(spec, health=health)) is due
