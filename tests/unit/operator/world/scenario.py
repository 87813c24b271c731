"""What a flow is told in: how it begins, what the user does, when it has ended, what must hold then; and how it is played."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from tests.unit.operator.world.images import Image
from tests.unit.operator.world.storage import Stored
from tests.unit.operator.world.world import NAME, START, World, flinkjob

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

W = TypeVar("W", bound=World)

FOREIGN = "s3://bucket/elsewhere/savepoint-abcdef-0123456789ab"


@dataclass(frozen=True)
class Scenario:
    """`begin` is applied to a new world and waited for; `act` is the user's change; `ended` says when to stop."""

    name: str
    act: Callable[[World], None]
    ended: Callable[[World], bool]
    manifest: dict[str, Any] = field(default_factory=flinkjob)
    images: dict[str, Image] = field(default_factory=dict)
    prepare: Callable[[World], None] = lambda world: None
    deployed: bool = True
    """The job runs and is stable before `act`."""
    settle_first: float = 25
    """Seconds that it runs before `act`."""
    then: tuple[tuple[Callable[[World], bool], Callable[[World], None]], ...] = ()
    """What the user does next, each as soon as something is so (an operation has come to a step, say)."""
    savepoints: int = 0
    """How many savepoints there are at the end: never more."""
    exact: bool = True
    """No record is lost or repeated in the output."""
    empty_starts: int = 1
    """How often the job was started without state."""
    check: Callable[[World], None] = lambda world: None


def running(world: World, **expected: Any) -> bool:
    """Settled, and what runs is as expected."""
    if not world.settled() or world.status()["phase"] != "Running":
        return False
    actual = world.status().get("running", {})
    return all(actual.get(key) == value for key, value in expected.items())


def at(step: str, **fields: Any) -> Callable[[World], bool]:
    """The operation has come to this step (or went past it without being seen there)."""

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
    """A person is told this, in these words among others."""
    found = world.condition("Stalled")
    return found.get("status") == "True" and found["reason"] == reason and words in found["message"]


def operations(world: World) -> list[str]:
    """What has been done, newest first."""
    return [entry["kind"] for entry in world.status().get("history", ())]


def rejected(world: World) -> bool:
    return world.stalled() and "operation" not in world.status() and "rejected" in world.status()


def snapshotted(trigger: str, number: int = 1) -> Callable[[World], bool]:
    """So many snapshots of this trigger exist, all complete."""

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
    """The job has run for a while. Its id."""
    world.apply(manifest or flinkjob())
    await world.until(lambda: running(world))
    await world.run(25)
    return str(world.status()["jobId"])


def played(story: Callable[[W], Awaitable[None]], world: W | None = None, *, begun_anew: bool = False) -> W:
    """Tell a story in a world (a new one); however it went, nothing was lost, and nothing came again unless the story says so.

    Args:
        story: what happens, and what must hold meanwhile.
        world: where; the default is a new `World`.
        begun_anew: somebody in the story has begun again from further back.
    """
    place: Any = World() if world is None else world

    async def told() -> None:
        await story(place)

    asyncio.run(told())
    exactly_once(place, begun_anew=begun_anew)
    return place


def exactly_once(world: World, *, begun_anew: bool = False) -> None:
    """No record is missing or comes again, the job was started empty once at the most, and never two of it ran."""
    assert not world.two_masters, f"{world.two_masters[:3]}\n{world.describe()}"
    assert not world.sink.lost, f"{world.sink.lost}\n{world.describe()}"
    assert begun_anew or not world.sink.repeated, f"{world.sink.repeated}\n{world.describe()}"
    assert begun_anew or len(world.sink.empty_starts) <= 1, f"{world.sink.empty_starts}\n{world.describe()}"


async def play(scenario: Scenario, world: World) -> None:
    """Run a scenario to its end and check what must hold. Faults count from the user's change on."""
    fault_at, world.fault.at = world.fault.at, 0
    await begin(scenario, world)
    world.fault.at = fault_at
    await go_on(scenario, world)


async def begin(scenario: Scenario, world: World) -> None:
    """Up to the moment before the user's change; what comes until then is the same whatever goes wrong after it."""
    world.images.update(scenario.images)
    scenario.prepare(world)
    if scenario.deployed:
        world.apply(scenario.manifest)
        await world.until(lambda: running(world))
        await world.run(scenario.settle_first)
    world.fault.calls.clear()


async def go_on(scenario: Scenario, world: World) -> None:
    """The user's change, and everything that follows."""
    scenario.act(world)
    for when, act in scenario.then:
        await world.until(lambda when=when: when(world))  # type: ignore[misc]
        act(world)
    await world.until(lambda: scenario.ended(world))
    world.fault.is_over()
    await world.run(40)
    assert scenario.ended(world), f"it did not stay so\n{world.describe()}"
    judge(scenario, world)


def judge(scenario: Scenario, world: World) -> None:
    """What must hold at the end of every scenario, whatever went wrong on the way."""
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
    """As many workers as the parallelism asks for."""
    workers = world.cluster.select("Pod", None, {"penstock.dev/role": "worker"})
    wanted = world.status()["parallelism"]
    assert len(workers) == wanted, f"{len(workers)} workers for parallelism {wanted}"
