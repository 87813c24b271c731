"""Several operators, each with a label selector. Two operators never act on a job that moves between them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from penstock_operator.api.status.flinkjob_status import Ownership
from penstock_operator.kube.cluster import DEPLOYMENT, FLINKJOB, POD, REVISION
from penstock_operator.kube.selector import parse_selector
from penstock_operator.kube.watched import WatchedObjects, list_again
from penstock_operator.process.controller import PASS_TIMEOUT
from penstock_operator.reconcile.job_loop import JobLoop
from penstock_operator.reconcile.observe.manifests import labels_of
from penstock_operator.reconcile.ownership import (
    QUIET_BEFORE_RELEASE,
    RELEASE_TIMEOUT,
    TAKE_OVER_AFTER,
    Claim,
    Shard,
    claim,
)
from penstock_operator.resources.names import JOB
from penstock_operator.storage.penstock import CALL_TIMEOUT
from tests.unit.operator.world import World, flinkjob, flinksnapshot
from tests.unit.operator.world.scenarios.cold_scenarios import SCENARIOS
from tests.unit.operator.world.scenarios.scenario import begin, go_on, played, running

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock_operator.kube.cluster import Kind, Manifest
    from penstock_operator.reconcile.ports import Ports
    from penstock_operator.session.loop import ClusterLoop
    from penstock_operator.snapshot.loop import SnapshotLoop

SHARD = "penstock.dev/shard"
A = Shard("ops/a", parse_selector(f"{SHARD}=a"))
B = Shard("ops/b", parse_selector(f"{SHARD}=b"))


# --- the table ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "owner", "waited", "lost", "expected"),
    [
        ("a", None, 0, False, Claim.TAKE),
        ("a", Ownership(name="ops/a"), 0, False, Claim.OURS),
        ("a", Ownership(name="ops/a", taken_from="ops/b"), 239, False, Claim.WAIT),
        ("a", Ownership(name="ops/a", taken_from="ops/b"), 240, False, Claim.SETTLE),
        ("a", Ownership(name="ops/b"), 29, False, Claim.WAIT),
        ("a", Ownership(name="ops/b"), 30, False, Claim.TAKE_FROM),
        ("a", Ownership(name="ops/b"), 3000, True, Claim.WAIT),
        ("a", Ownership(name="ops/b", taken_from="ops/a"), 30, False, Claim.TAKE_FROM),
        ("b", Ownership(name="ops/a"), 0, False, Claim.RELEASE),
        ("b", Ownership(name="ops/a", taken_from="ops/c"), 239, False, Claim.WAIT),
        ("b", Ownership(name="ops/a", taken_from="ops/c"), 240, False, Claim.RELEASE),
        ("b", Ownership(name="ops/b"), 0, False, Claim.LEAVE),
        ("b", None, 0, False, Claim.LEAVE),
    ],
)
def test_the_label_decides_which_operator_manages_a_job(
    labels: str, owner: Ownership | None, waited: int, lost: bool, expected: Claim
) -> None:
    found = claim(A, {SHARD: labels}, owner, waited=timedelta(seconds=waited), quiet=QUIET_BEFORE_RELEASE, lost=lost)
    assert found is expected


def test_a_job_is_not_released_immediately_after_a_change() -> None:
    quiet = QUIET_BEFORE_RELEASE - timedelta(seconds=1)
    mine = Ownership(name="ops/a")
    assert claim(A, {}, mine, waited=timedelta(0), quiet=quiet, lost=False) is Claim.WAIT


def test_nothing_is_written_without_other_operators() -> None:
    nothing = timedelta(0)
    assert claim(Shard(), {}, None, waited=nothing, quiet=nothing, lost=False) is Claim.OURS
    assert claim(replace(A, operator=""), {}, None, waited=nothing, quiet=nothing, lost=False) is Claim.LEAVE


def test_a_takeover_waits_for_the_longest_pass_and_its_changes() -> None:
    assert TAKE_OVER_AFTER.total_seconds() > PASS_TIMEOUT + CALL_TIMEOUT


# --- two operators in one world -----------------------------------------------------------------------------------------


class Witness:
    """One operator's client of the cluster.

    It compares every change of a job with the operator that manages the job then.
    """

    def __init__(self, world: Shards, shard: Shard) -> None:
        self._world, self._shard = world, shard

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._world.cluster, name)
        if name not in ("create", "apply", "merge", "delete", "replace"):
            return real

        async def judged(*args: Any, **more: Any) -> Any:
            self._world.judge(self._shard, name, args, more)
            return await real(*args, **more)

        return judged


@dataclass
class Side:
    ports: Ports
    loops: dict[tuple[str, str], JobLoop | SnapshotLoop | ClusterLoop] = field(default_factory=dict)
    alive: bool = True
    changes: list[str] = field(default_factory=list)


class Shards(World):
    """A world with two operators. Each live operator reconciles everything all the time."""

    def __init__(self) -> None:
        super().__init__()
        self.sides = {
            shard.operator: Side(
                replace(self.ports, shard=shard, cluster=Witness(self, shard), watched=WatchedObjects(shared=True))
            )
            for shard in (A, B)
        }
        self.wrong: list[str] = []

    def deliver_event(self, kind: Kind, manifest: Manifest, *, deleted: bool = False, listed: bool = False) -> None:
        """Deliver an event as an operator's watch does: only its own FlinkJobs, and the objects of all."""
        for side in self.sides.values():
            selected = kind is not FLINKJOB or side.ports.shard.selects(labels_of(manifest))
            side.ports.watched.handle_event(kind, manifest, deleted=deleted or not selected)

    def judge(self, shard: Shard, verb: str, args: tuple[Any, ...], more: dict[str, Any]) -> None:
        manifest: Manifest = (
            args[0] if isinstance(args[0], dict) else {"kind": args[0].name, "metadata": {"name": args[2]}}
        )
        change = f"{verb} {manifest['kind']} {manifest['metadata']['name']} at {self.time:%H:%M:%S}"
        job = self.cluster.one("FlinkJob", "weather")
        owner = ((job or {}).get("status") or {}).get("operator") or {}
        about_owner = manifest["kind"] == "FlinkJob" and verb == "replace"
        live = (job or {}).get("metadata", {}).get("resourceVersion")
        if about_owner and (manifest["metadata"]["resourceVersion"] != live or more.get("subresource") != "status"):
            return  # refused
        if about_owner and (manifest["status"].get("operator") or {}) != owner:
            return  # the change of the manager changes nothing else
        self.sides[shard.operator].changes.append(change)
        if owner.get("name") != shard.operator or "takenFrom" in owner:
            self.wrong.append(f"{shard.operator}: {change}, while the job is {owner}'s")

    async def operate(self, name: str = "weather", kind: str = "FlinkJob") -> None:
        for side in self.sides.values():
            if side.alive:
                self.ports, self.loops = side.ports, side.loops
                await super().operate(name, kind)
        self.due.clear()

    def label(self, value: str) -> None:
        self.cluster.edit("FlinkJob", "default", "weather", lambda m: m["metadata"].update(labels={SHARD: value}))

    def owner(self) -> dict[str, str]:
        return dict(self.status().get("operator") or {})


def labelled(manifest: Manifest, value: str = "a") -> Manifest:
    return {**manifest, "metadata": {**manifest["metadata"], "labels": {SHARD: value}}}


def play(story: Callable[[Shards], Awaitable[None]]) -> None:
    world = played(story, Shards())
    assert not world.wrong, "\n".join(world.wrong[:5])


async def deployed(world: Shards, shard: str = "a") -> None:
    world.apply(labelled(flinkjob(), shard))
    await world.until(lambda: running(world))
    await world.run(30)


def test_each_operator_manages_its_own_jobs() -> None:
    async def story(world: Shards) -> None:
        await deployed(world)
        assert world.owner() == {"name": "ops/a"}
        assert world.sides["ops/b"].changes == []

    play(story)


def test_a_job_with_a_changed_label_is_handed_over_between_two_passes() -> None:
    async def story(world: Shards) -> None:
        await deployed(world)
        world.label("b")
        await world.until(lambda: world.owner() == {"name": "ops/b"}, within=20)
        before = list(world.sides["ops/a"].changes)
        world.edit(image="job:2")
        await world.until(lambda: running(world, image="job:2"))
        assert world.sides["ops/a"].changes == before
        assert len(world.savepoints) == 1

    play(story)


@pytest.mark.parametrize("name", ["upgrade", "rescale-up", "suspend-and-resume", "delete-with-savepoint"])
@pytest.mark.parametrize(
    "after",
    [1, 9, 25, *(pytest.param(n, marks=[pytest.mark.slow, pytest.mark.faults]) for n in (4, 16, 36))],
)
def test_a_job_may_move_during_any_operation(name: str, after: int) -> None:
    """It moves at the n-th change that is made for it, and back again a little later."""
    scenario = next(s for s in SCENARIOS if s.name == name)
    scenario = replace(scenario, manifest=labelled(scenario.manifest))

    async def story(world: Shards) -> None:
        await begin(scenario, world)
        turns = iter(["b", "a"])

        def move() -> None:
            if world.cluster.one("FlinkJob", "weather") is not None and (turn := next(turns, None)):
                world.label(turn)
                world.fault.struck, world.fault.at = "", len(world.fault.calls) + after

        world.fault.at, world.fault.mode, world.fault.change = after, "change-after", move
        await go_on(scenario, world)

    play(story)


def test_a_job_of_a_dead_operator_is_taken_over_when_that_operator_can_no_longer_act() -> None:
    async def story(world: Shards) -> None:
        await deployed(world)
        world.sides["ops/a"].alive = False
        world.label("b")
        await world.run(RELEASE_TIMEOUT.total_seconds() + 5)
        assert world.owner() == {"name": "ops/b", "takenFrom": "ops/a"}
        world.edit(image="job:2")
        await world.run(TAKE_OVER_AFTER.total_seconds() - 15)
        assert world.sides["ops/b"].changes == []
        await world.until(lambda: running(world, image="job:2"))

    play(story)


def test_an_operator_that_restarts_during_a_takeover_waits_again() -> None:
    async def story(world: Shards) -> None:
        await deployed(world)
        world.sides["ops/a"].alive = False
        world.label("b")
        await world.run(RELEASE_TIMEOUT.total_seconds() + TAKE_OVER_AFTER.total_seconds() - 20)
        world.sides["ops/b"].loops.clear()
        await world.run(TAKE_OVER_AFTER.total_seconds() - 10)
        assert world.owner() == {"name": "ops/b", "takenFrom": "ops/a"}
        await world.until(lambda: world.owner() == {"name": "ops/b"}, within=30)

    play(story)


def test_two_operators_that_select_the_same_job_do_not_alternate_forever() -> None:
    async def story(world: Shards) -> None:
        side = world.sides["ops/b"]
        side.ports = replace(side.ports, shard=replace(B, selector=parse_selector("")))
        await deployed(world)
        await world.until(lambda: world.owner() == {"name": "ops/b"}, within=400)
        await world.run(900, pace=5)
        assert world.owner() == {"name": "ops/b"}

    play(story)


def test_a_pass_that_hangs_in_a_change_ends_before_another_operator_acts() -> None:
    """The former operator has read that it manages the job, and makes its changes up to three minutes later."""

    async def story(world: Shards) -> None:
        await deployed(world)
        side = world.sides["ops/a"]
        late = world.time + timedelta(seconds=180)
        real = side.ports.cluster.apply
        released = asyncio.Event()

        async def slow(manifest: Manifest, *, dry_run: bool = False) -> Manifest:
            await released.wait()
            return await world.cluster.apply(manifest, dry_run=dry_run)

        world.cluster.remove("Service", "default", "weather-rest")
        world.cluster.drop("Deployment", "default", "weather-worker")
        side.ports.cluster.apply = slow  # type: ignore[method-assign]
        loop = JobLoop("default", "weather", side.ports)
        hanging = asyncio.create_task(loop.reconcile())
        await asyncio.sleep(0.05)
        side.alive = False
        world.label("b")
        await world.until(lambda: world.time >= late)
        assert world.sides["ops/b"].changes == []
        side.ports.cluster.apply = real  # type: ignore[method-assign]
        hanging.cancel()
        await asyncio.gather(hanging, return_exceptions=True)
        await world.until(lambda: running(world) and world.owner() == {"name": "ops/b"})

    play(story)


def test_snapshots_are_managed_with_their_job() -> None:
    async def story(world: Shards) -> None:
        await deployed(world)
        world.apply(flinksnapshot("s"))
        await world.until(lambda: world.snapshots()["s"].get("state") == "Completed")
        assert world.sides["ops/b"].changes == []
        assert len(world.savepoints) == 1
        world.label("b")
        await world.until(lambda: world.owner() == {"name": "ops/b"}, within=30)
        world.apply(flinksnapshot("t"))
        before = list(world.sides["ops/a"].changes)
        await world.until(lambda: world.snapshots()["t"].get("state") == "Completed")
        assert world.sides["ops/a"].changes == before
        assert len(world.savepoints) == 2

    play(story)


def kept(world: Shards, operator: str) -> list[str]:
    """Return the kinds in an operator's copy, with their counts."""
    places = world.sides[operator].ports.watched._places
    return sorted(f"{len(found)} {kind}" for (kind, _, _), found in places.items())


async def list_jobs(world: Shards) -> None:
    """List the jobs as each operator does every minute."""
    for side in world.sides.values():
        await list_again(world.cluster, side.ports.watched, FLINKJOB, None, side.ports.shard.selector.text)


def test_an_operator_keeps_no_copy_of_objects_of_other_operators_jobs() -> None:
    async def story(world: Shards) -> None:
        await deployed(world)
        own = ["1 ControllerRevision", "1 FlinkJob", "2 Deployment", "3 Pod"]
        assert kept(world, "ops/a") == own
        assert kept(world, "ops/b") == own[:1] + own[2:], "as long as it does not know what there is"
        await list_jobs(world)
        assert (kept(world, "ops/a"), kept(world, "ops/b")) == (own, [])
        world.kill_pod("worker")
        await world.run(30)
        assert kept(world, "ops/b") == []
        world.label("b")
        await world.until(lambda: world.owner() == {"name": "ops/b"}, within=20)
        await list_jobs(world)
        assert kept(world, "ops/a") == []
        assert kept(world, "ops/b") == ["1 FlinkJob"]
        world.edit(image="job:2")
        await world.until(lambda: running(world, image="job:2"))
        await world.run(60)
        assert kept(world, "ops/b") == [*own[:2], "1 FlinkSnapshot", *own[2:]], "objects of later events must be kept"

    play(story)


def test_missing_objects_of_a_new_job_are_listed() -> None:
    async def story(world: Shards) -> None:
        await deployed(world)
        await list_jobs(world)
        world.label("b")
        await world.until(lambda: world.owner() == {"name": "ops/b"}, within=20)
        watched = world.sides["ops/b"].ports.watched
        for kind in (DEPLOYMENT, POD, REVISION):
            await list_again(world.cluster, watched, kind, None, JOB)
        assert kept(world, "ops/b") == ["1 ControllerRevision", "1 FlinkJob", "2 Deployment", "3 Pod"]

    play(story)


# --- selectors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "selected", "others"),
    [
        ("", [{}, {"a": "b"}], []),
        ("a=b", [{"a": "b"}], [{}, {"a": "c"}]),
        ("a == b , c", [{"a": "b", "c": ""}], [{"a": "b"}]),
        ("a!=b", [{}, {"a": "c"}], [{"a": "b"}]),
        ("a in (b, c),!d", [{"a": "c"}], [{"a": "c", "d": "e"}, {"a": "d"}]),
        ("x.io/a notin (b)", [{}, {"x.io/a": "c"}], [{"x.io/a": "b"}]),
        ("a=", [{"a": ""}], [{}]),
    ],
)
def test_selectors_select_the_same_as_the_api_server(text: str, selected: list[dict[str, str]], others: Any) -> None:
    selector = parse_selector(text)
    assert [labels for labels in selected if not selector.matches(labels)] == []
    assert [labels for labels in others if selector.matches(labels)] == []


@pytest.mark.parametrize("text", ["a b", "a=b,", "a in b", "a in ()x", "=b", "a=b c=d", "a>3"])
def test_invalid_selectors_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="label selector"):
        parse_selector(text)
