"""The operator's wall clock jumps by an hour, or a node with a wrong clock takes over, at any call of a flow."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from penstock_operator.api.status.flinkjob_status import FlinkJobStatus
from penstock_operator.api.status.operation import Operation
from penstock_operator.reconcile.clock import APPROACH, SteadyClock, taken_over
from tests.unit.operator.flows.test_concurrent_changes import by_name, disturb
from tests.unit.operator.world.kubernetes.images import Image
from tests.unit.operator.world.scenarios.scenario import exactly_once, go_on, gone, played, running, stalled
from tests.unit.operator.world.world import NAME, World, flinkjob

if TYPE_CHECKING:
    from tests.unit.operator.world.scenarios.scenario import Scenario

HOUR = timedelta(hours=1)
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
PAUSE = timedelta(minutes=5)
QUICK = ("upgrade",)
FLOWS = (
    "suspend-and-resume",
    "deploy",
    "warm-upgrade",
    "upgrade-last-state",
    "rescale-up",
    "rescale-down",
    "failed-job",
)


def _jump(name: str, skew: timedelta, *, restart: bool, stride: int) -> None:
    async def on_another_node(scenario: Scenario, world: World) -> None:
        world.next_skew = skew
        await go_on(scenario, world)

    if restart:
        disturb(by_name(name), "die-after", lambda world: None, on_another_node, stride=stride)
    else:
        disturb(by_name(name), "change-after", lambda world: world.jump(skew), stride=stride)


@pytest.mark.parametrize(
    ("skew", "restart"), [(HOUR, True), (-HOUR, False)], ids=["forward-another-process", "back-the-same-process"]
)
@pytest.mark.parametrize("name", QUICK)
def test_a_flow_ends_as_with_a_right_clock(name: str, skew: timedelta, restart: bool) -> None:
    _jump(name, skew, restart=restart, stride=9)


@pytest.mark.slow
@pytest.mark.parametrize("restart", [False, True], ids=["the-same-process", "another-process"])
@pytest.mark.parametrize("skew", [HOUR, -HOUR], ids=["forward", "back"])
@pytest.mark.parametrize("name", [*QUICK, *FLOWS])
def test_every_flow_ends_as_with_a_right_clock_for_a_jump_at_every_call(
    name: str, skew: timedelta, restart: bool
) -> None:
    _jump(name, skew, restart=restart, stride=1)


@pytest.mark.parametrize("restart", [False, True], ids=["the-same-process", "another-process"])
@pytest.mark.parametrize("skew", [HOUR, -HOUR], ids=["forward", "back"])
def test_a_jump_does_not_reject_a_healthy_revision_on_trial(skew: timedelta, restart: bool) -> None:
    async def live() -> None:
        world = World()
        world.apply(flinkjob())
        await world.until(lambda: running(world))
        world.images["job:2"] = Image()
        world.node_capacity = 1
        world.edit(image="job:2")
        await world.until(lambda: world.status().get("operation", {}).get("step") == "Watch")
        await world.run(20)
        world.jump(skew)
        if restart:
            world.restart_operator()
        await world.run(20)
        assert world.status()["operation"]["kind"] == "Upgrade", world.describe()
        world.node_capacity = 100
        await world.until(lambda: "UpgradeSucceeded" in dict(world.events()))
        world.jump(timedelta(0))
        world.restart_operator()
        await world.until(lambda: running(world, image="job:2"))
        assert "rejected" not in world.status()
        exactly_once(world)

    asyncio.run(live())


@pytest.mark.parametrize("skew", [HOUR, -HOUR])
def test_a_revision_that_does_not_start_is_abandoned_after_its_time_despite_clock_jumps(skew: timedelta) -> None:
    async def live() -> None:
        world = World()
        manifest = flinkjob()
        manifest["spec"]["rollback"] = {"enabled": True, "after": "2m"}
        world.apply(manifest)
        await world.until(lambda: running(world))
        world.images["job:2"] = Image(checkpoints=False)
        world.edit(image="job:2")
        await world.until(lambda: world.status().get("operation", {}).get("step") == "Watch")
        start = world.time
        world.jump(skew)
        await world.until(lambda: "rejected" in world.status())
        assert timedelta(seconds=100) < world.time - start < timedelta(seconds=150)

    asyncio.run(live())


@pytest.mark.parametrize("restart", [False, True], ids=["the-same-process", "another-process"])
@pytest.mark.parametrize("skew", [HOUR, -HOUR], ids=["forward", "back"])
def test_a_permanently_wrong_clock_does_not_change_the_health_of_a_job(skew: timedelta, restart: bool) -> None:
    async def story(world: World) -> None:
        world.next_skew = skew
        world.restart_operator()
        manifest = flinkjob()
        manifest["spec"]["health"] = {"checkpointIntervals": 30, "restart": False}
        world.apply(manifest)
        await world.until(lambda: running(world))
        for _ in range(4):
            await world.run(200)
            if restart:
                world.restart_operator()
            assert world.condition("CheckpointHealthy")["status"] == "True"
        assert "NoCheckpoint" not in dict(world.events())
        leading = world.leading(NAME)
        assert leading is not None
        leading.image = Image(checkpoints=False)
        stopped = world.time
        await world.until(lambda: stalled(world, "NoCheckpoint", ""), within=400)
        assert timedelta(seconds=290) < world.time - stopped < timedelta(seconds=320)
        world.restart_operator()
        await world.run(60)
        assert stalled(world, "NoCheckpoint", ""), "another process goes on with what is known"
        assert world.condition("CheckpointHealthy")["status"] == "False"
        leading.image = Image()
        await world.until(lambda: running(world), within=60)
        assert [reason for reason, _ in world.events()].count("NoCheckpoint") == 1

    played(story)


def test_a_deletion_that_fails_first_keeps_its_timeout_under_a_fast_clock() -> None:
    async def live() -> None:
        world = World()
        world.has_defects = True
        world.next_skew = HOUR
        world.restart_operator()
        manifest = flinkjob()
        manifest["spec"]["deletion"] = {"savepoint": True, "timeout": "10m"}
        world.apply(manifest)
        await world.until(lambda: running(world))
        world.cluster.unreadable.add("Deployment")
        world.delete()
        await world.run(30)
        world.cluster.unreadable.clear()
        await world.until(lambda: gone(world))
        assert world.savepoints
        assert "DeletedUnseen" not in dict(world.events())

    asyncio.run(live())


def test_the_clock_advances_evenly_and_approaches_a_wall_clock_that_jumps() -> None:
    elapsed, skew = 0.0, timedelta(0)
    clock = SteadyClock(lambda: NOW + timedelta(seconds=elapsed) + skew, lambda: elapsed)
    elapsed = 10.0
    assert clock() == NOW + timedelta(seconds=10)
    skew = HOUR
    assert clock() == NOW + timedelta(seconds=10)
    elapsed = 110.0
    assert clock() == NOW + timedelta(seconds=110 + 100 * APPROACH)
    elapsed = 50_000.0
    assert clock() == NOW + timedelta(seconds=50_000) + HOUR


def _watched(start: timedelta, length: timedelta | None) -> Operation:
    return Operation(
        id="a",
        kind="Upgrade",
        step="Watch",
        started_at=NOW + start,
        step_since=NOW + start,
        deadline=NOW + start + length if length else None,
    )


@pytest.mark.parametrize(
    ("start", "length", "deadline"),
    [
        (-timedelta(minutes=1), PAUSE, timedelta(minutes=4)),  # half of its time is left
        (-timedelta(minutes=6), PAUSE, -timedelta(minutes=1)),  # it has just passed
        (-HOUR, PAUSE, PAUSE),  # no process has observed it
        (HOUR, PAUSE, PAUSE),  # the former clock was ahead
    ],
)
def test_a_deadline_that_no_process_has_observed_starts_again(
    start: timedelta, length: timedelta, deadline: timedelta
) -> None:
    taken = taken_over(FlinkJobStatus(operation=_watched(start, length)), NOW, PAUSE).operation
    assert taken is not None
    assert taken.deadline == NOW + deadline
    assert taken.step_since <= NOW


def test_a_pause_set_by_another_clock_is_limited_to_the_longest_pause() -> None:
    op = _watched(-timedelta(minutes=1), None).model_copy(update={"retry_at": NOW + HOUR})
    taken = taken_over(FlinkJobStatus(operation=op), NOW, PAUSE).operation
    assert taken is not None
    assert taken.retry_at == NOW
