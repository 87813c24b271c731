"""The description of a flow: its start, the action of the user, its end and the final checks; and the code that plays it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from tests.unit.operator.world.kubernetes.images import Image
from tests.unit.operator.world.storage import Stored
from tests.unit.operator.world.world import NAME, START, World, flinkjob

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

W = TypeVar("W", bound=World)

FOREIGN = "s3://bucket/elsewhere/savepoint-abcdef-0123456789ab"


@dataclass(frozen=True)
class Scenario:
    """A flow. `begin` is applied to a new world, `act` is the user's change, and `ended` says when to stop."""

    name: str
    act: Callable[[World], None]
    ended: Callable[[World], bool]
    manifest: dict[str, Any] = field(default_factory=flinkjob)
    images: dict[str, Image] = field(default_factory=dict)
    prepare: Callable[[World], None] = lambda world: None
    deployed: bool = True
    """Whether the job runs and is stable before `act`."""
    settle_first: float = 25
    """The time in seconds that it runs before `act`."""
    then: tuple[tuple[Callable[[World], bool], Callable[[World], None]], ...] = ()
    """Later actions of the user, each with the condition that triggers it, such as a step of the operation."""
    savepoints: int = 0
    """The exact number of savepoints at the end."""
    exact: bool = True
    """Whether the output must contain each record exactly once."""
    empty_starts: int = 1
    """The number of starts without state."""
    check: Callable[[World], object] = lambda world: None


def running(world: World, **expected: Any) -> bool:
    """Return whether the world is settled and the running job is as expected."""
    if not world.settled() or world.status()["phase"] != "Running":
        return False
    actual = world.status().get("running", {})
    return all(actual.get(key) == value for key, value in expected.items())


def at(step: str, **fields: Any) -> Callable[[World], bool]:
    """Return a condition: the operation has reached this step, or has passed it between two observations."""

    def reached(world: World) -> bool:
        op = world.status().get("operation") if not gone(world) else None
        here = op is not None and op["step"] == step and all(bool(op.get(k)) == v for k, v in fields.items())
        return (
            here or (op is None and world.settled()) or (op is not None and step == "Check" and op["step"] != "Check")
        )

    return reached


def suspended(world: World) -> bool:
    return world.settled() and world.status()["phase"] == "Suspended"


def gone(world: World) -> bool:
    return world.cluster.one("FlinkJob", NAME) is None


def stalled(world: World, reason: str, words: str) -> bool:
    """Return whether `Stalled` has this reason and these words."""
    found = world.condition("Stalled")
    return found.get("status") == "True" and found["reason"] == reason and words in found["message"]


def operations(world: World) -> list[str]:
    """Return the operations of the history, newest first."""
    return [entry["kind"] for entry in world.status().get("history", ())]


def rejected(world: World) -> bool:
    return world.stalled() and "operation" not in world.status() and "rejected" in world.status()


def snapshotted(trigger: str, number: int = 1) -> Callable[[World], bool]:
    """Return a condition: this number of snapshots with this trigger exists, and all are complete."""

    def reached(world: World) -> bool:
        found = world.snapshots(trigger=trigger)
        return len(found) == number and all(s.get("state") == "Completed" for s in found.values())

    return reached


def both(*conditions: Callable[[World], bool]) -> Callable[[World], bool]:
    return lambda world: all(condition(world) for condition in conditions)


def with_foreign_savepoint(world: World) -> None:
    world.storage.put(Stored(FOREIGN, 7, "f" * 32, 70, START))
    world.sink.ends[NAME] = 70


def edit(**changes: Any) -> Callable[[World], None]:
    return lambda world: world.edit(**changes)


def remove(kind: str, name: str) -> Callable[[World], None]:
    return lambda world: world.cluster.remove(kind, "default", name)


def spec(**parts: Any) -> dict[str, Any]:
    manifest = flinkjob()
    for key, value in parts.items():
        if isinstance(value, dict):
            manifest["spec"].setdefault(key, {}).update(value)
        else:
            manifest["spec"][key] = value
    return manifest


def equal(actual: object, expected: object) -> None:
    assert actual == expected, f"{actual!r} instead of {expected!r}"


async def deployed(world: World, manifest: dict[str, Any] | None = None) -> str:
    """Run the job for a while and return its id."""
    world.apply(manifest or flinkjob())
    await world.until(lambda: running(world))
    await world.run(25)
    return str(world.status()["jobId"])


def played(story: Callable[[W], Awaitable[None]], world: W | None = None, *, may_repeat: bool = False) -> W:
    """Run a story in a world, and check that no record was lost, and none repeated unless the story allows it.

    Args:
        story: the events, and the checks during them.
        world: the world, by default a new `World`.
        may_repeat: whether a person in the story restarts the job from an older position.
    """
    place: Any = World() if world is None else world

    async def main() -> None:
        await story(place)

    asyncio.run(main())
    exactly_once(place, may_repeat=may_repeat)
    return place


def exactly_once(world: World, *, may_repeat: bool = False) -> None:
    """Check that no record is missing or repeated, that at most one start was empty, and that two jobs never ran together."""
    assert not world.two_masters, f"{world.two_masters[:3]}\n{world.describe()}"
    assert not world.sink.lost, f"{world.sink.lost}\n{world.describe()}"
    assert may_repeat or not world.sink.repeated, f"{world.sink.repeated}\n{world.describe()}"
    assert may_repeat or len(world.sink.empty_starts) <= 1, f"{world.sink.empty_starts}\n{world.describe()}"


async def play(scenario: Scenario, world: World) -> None:
    """Run a scenario to its end and check the result. Faults count from the user's change."""
    fault_at, world.fault.at = world.fault.at, 0
    await begin(scenario, world)
    world.fault.at = fault_at
    await go_on(scenario, world)


async def begin(scenario: Scenario, world: World) -> None:
    """Run up to the moment before the user's change. This part is the same for all faults after it."""
    world.images.update(scenario.images)
    scenario.prepare(world)
    if scenario.deployed:
        world.apply(scenario.manifest)
        await world.until(lambda: running(world))
        await world.run(scenario.settle_first)
    world.fault.calls.clear()


async def go_on(scenario: Scenario, world: World) -> None:
    """Make the user's change, and run everything that follows."""
    scenario.act(world)
    for when, act in scenario.then:
        await world.until(lambda when=when: when(world))
        act(world)
    await world.until(lambda: scenario.ended(world))
    world.fault.is_over()
    await world.run(40)
    assert scenario.ended(world), f"it did not stay so\n{world.describe()}"
    judge(scenario, world)


def judge(scenario: Scenario, world: World) -> None:
    """Check the conditions that hold at the end of every scenario, with any fault."""
    story = world.describe()
    assert len(world.savepoints) <= scenario.savepoints, f"{world.savepoints}\n{story}"
    assert len(world.sink.empty_starts) <= scenario.empty_starts, f"{world.sink.empty_starts}\n{story}"
    assert not world.two_masters, f"{world.two_masters[:3]}\n{story}"
    if scenario.exact:
        assert not world.sink.lost, f"{world.sink.lost}\n{story}"
        assert not world.sink.repeated, f"{world.sink.repeated}\n{story}"
    if not gone(world) and world.settled() and world.status()["phase"] == "Running":
        folders = {p.split("/")[4] for p in world.storage.found if p.startswith(f"{world.storage.root}/")}
        assert folders <= {world.status()["jobId"]}, f"checkpoints of former incarnations are left: {folders}\n{story}"
        runs = world.leading(NAME)
        assert runs is not None, story
        assert runs.parallelism == world.status()["parallelism"], story
    if gone(world):
        left = [key for key in world.cluster.objects if key[0] not in ("Event", "FlinkSnapshot", "Lease")]
        assert not left, f"{left}\n{story}"
    scenario.check(world)


def pods_fit(world: World) -> None:
    """Check that the number of workers fits the parallelism."""
    workers = world.cluster.select("Pod", None, {"penstock.dev/role": "worker"})
    wanted = world.status()["parallelism"]
    assert len(workers) == wanted, f"{len(workers)} workers for parallelism {wanted}"
