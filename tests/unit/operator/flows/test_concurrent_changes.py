"""An actor changes something at every changing call of a flow: the last change wins, and no record is lost.

A user can edit the FlinkJob between any two calls of the operator. A master can die, or another program can write to
the
FlinkJob, which makes the operator's next write fail.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.unit.operator.world import World
from tests.unit.operator.world.scenarios.branches import at_calls, each, some
from tests.unit.operator.world.scenarios.cold_scenarios import SCENARIOS
from tests.unit.operator.world.scenarios.scenario import begin, edit, go_on, gone, running, suspended
from tests.unit.operator.world.world import NAME

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.unit.operator.world.faults import Mode
    from tests.unit.operator.world.scenarios.scenario import Scenario

FLOWS = (
    "deploy",
    "upgrade",
    "warm-upgrade",
    "upgrade-last-state",
    "rescale-up",
    "rescale-down",
    "suspend",
    "suspend-and-resume",
    "rollback-of-a-crashing-image",
    "failed-job",
    "master-deleted",
    "savepoint-nonce",
)
QUICK = (
    ("upgrade", "another-edit"),
    ("warm-upgrade", "revert"),
    ("rescale-up", "revert"),
)
STRIDE = 6
"""The stride of the quick tests, which cover every sixth call only."""


@dataclass(frozen=True)
class LastChange:
    """The last change of the user, and the condition that must hold at the end."""

    name: str
    act: Callable[[World], None]
    ended: Callable[[World], bool]


LAST_CHANGES = (
    LastChange(
        "another-edit",
        edit(image="job:3", job={"parallelism": 3, "state": "running"}),
        lambda w: running(w, image="job:3", parallelism=3),
    ),
    LastChange(
        "revert",
        edit(image="job:1", job={"parallelism": 2, "state": "running", "savepointTriggerNonce": None}),
        lambda w: running(w, image="job:1", parallelism=2),
    ),
    LastChange("suspend", edit(image="job:1", job={"state": "suspended"}), suspended),
    LastChange("delete", lambda w: w.delete(), gone),
)
MOST_SAVEPOINTS = 3
"""The maximum number of savepoints: one of the flow, one of the operation that reverts it, and one of the last change."""


def by_name(name: str) -> Scenario:
    return next(s for s in SCENARIOS if s.name == name)


def disturb(
    scenario: Scenario,
    mode: Mode,
    change: Callable[[World], None],
    then: Callable[[Scenario, World], Awaitable[None]] = go_on,
    *,
    stride: int = 1,
) -> None:
    """Let an actor make a change at every call of the flow, or at every `stride` calls.

    `then` plays the flow and checks the result.
    """
    world = World()
    asyncio.run(begin(scenario, world))
    world.fault.mode, world.fault.change = mode, lambda: change(world)

    def undisturbed(_: int) -> int:
        asyncio.run(go_on(scenario, world))
        return len(world.fault.calls)

    async def disturbed() -> None:
        await then(scenario, world)

    # `go_on` also plays the flow without a fault to its end. Others expect a fault, so they need the number of calls.
    calls = sys.maxsize - 1 if then is go_on else each([0], undisturbed)[0]
    at_calls(range(1, calls + 1, stride) if stride > 1 else some(calls), world.fault, disturbed)


async def end_with_last_change(change: LastChange, scenario: Scenario, world: World) -> None:
    scenario.act(world)
    pending = list(scenario.then)
    for _ in range(900):
        if world.fault.struck:
            break
        if pending and pending[0][0](world):
            pending.pop(0)[1](world)
        await world.run(1)
    assert world.fault.struck, world.describe()
    await world.until(lambda: change.ended(world))
    await world.run(40)
    story = f"{change.name} after {world.fault.struck}\n{world.describe()}"
    assert change.ended(world), story
    assert not world.two_masters, story
    assert not world.sink.lost, story
    assert not world.sink.repeated, story
    assert len(world.sink.empty_starts) <= 1, story
    assert len(world.savepoints) <= MOST_SAVEPOINTS, story


def change_named(name: str) -> LastChange:
    return next(w for w in LAST_CHANGES if w.name == name)


@pytest.mark.parametrize(("flow", "change"), QUICK)
def test_the_last_change_wins_at_some_calls(flow: str, change: str) -> None:
    last_change = change_named(change)
    disturb(by_name(flow), "change-after", last_change.act, partial(end_with_last_change, last_change), stride=STRIDE)


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("change", [c.name for c in LAST_CHANGES])
@pytest.mark.parametrize("flow", FLOWS)
def test_the_last_change_wins_at_every_call(flow: str, change: str) -> None:
    last_change = change_named(change)
    disturb(by_name(flow), "change-after", last_change.act, partial(end_with_last_change, last_change))


def annotate(world: World) -> None:
    """Write to the FlinkJob as another program does."""
    if world.cluster.one("FlinkJob", NAME) is not None:
        world.cluster.edit("FlinkJob", "default", NAME, lambda m: m["metadata"].update(annotations={"by": "another"}))


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", [s.name for s in SCENARIOS])
def test_a_conflict_with_another_writer_may_occur_at_any_call(name: str) -> None:
    """The resourceVersion has changed, so the operator discards its decision and decides again."""
    disturb(by_name(name), "change-before", annotate)


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "name",
    [
        "upgrade",
        "warm-upgrade",
        "upgrade-last-state",
        "rescale-up",
        "suspend",
        "delete-with-savepoint",
        "savepoint-nonce",
    ],
)
def test_the_master_may_crash_at_any_call(name: str) -> None:
    """A crashed process loses the work that it had not completed. A savepoint in progress may be taken again."""
    disturb(by_name(name), "change-after", lambda world: world.crash_master())
