"""A cache that is late, behind the operator's own writes, or wrong.

It delays actions, but never causes one or loses state.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from penstock_operator.errors import Conflict
from penstock_operator.kube.cluster import DEPLOYMENT, FLINKJOB, POD, Kind, Manifest
from penstock_operator.kube.watched import WATCHED, WatchedObjects
from penstock_operator.resources.names import JOB, ROLE
from tests.unit.operator.flows.test_crashes import FLOWS, by_name
from tests.unit.operator.world import World, flinkjob
from tests.unit.operator.world.scenarios.scenario import begin, deployed, go_on, gone, judge, played, running
from tests.unit.operator.world.world import NAME

LAG = timedelta(seconds=5)


# --- the cost of an idle job
# -------------------------------------------------------------------------------------------


def test_an_idle_job_is_read_from_the_cache() -> None:
    async def story(world: World) -> None:
        await deployed(world)
        await world.run(60)
        reads, writes, polls = world.cluster.reads, len(world.cluster.writes), world.polls
        await world.run(1200, pace=5)
        minutes = 1200 / 60
        assert (world.cluster.reads - reads) / minutes <= 4
        assert (len(world.cluster.writes) - writes) / minutes <= 1
        assert 3 <= (world.polls - polls) / minutes <= 5, "one poll for an interval of 15 s, and one for our own write"
        newest = world.storage.of_job(world.status()["jobId"])[-1]
        assert newest.id - 8 <= world.status()["lastCheckpoint"]["id"] <= newest.id, "of the last 75 s"

    played(story)


def test_a_suspended_job_is_read_from_the_cache() -> None:
    async def story(world: World) -> None:
        await deployed(world)
        world.edit(job={"state": "suspended"})
        await world.until(lambda: world.settled() and world.status()["phase"] == "Suspended")
        await world.run(120)
        reads = world.cluster.reads
        await world.run(1200, pace=5)
        assert (world.cluster.reads - reads) / 20 <= 1

    played(story)


async def copied(world: World) -> set[str]:
    listed = [await world.ports.watched.list(kind, "default", {JOB: NAME}) for kind in WATCHED]
    return {manifest["metadata"]["uid"] for found in listed for manifest in found}


def there(world: World) -> set[str]:
    found = [m for kind in WATCHED[1:] for m in world.cluster.select(kind.name, None, {JOB: NAME})]
    jobs = [m for m in world.cluster.select("FlinkJob", None, {}) if m["metadata"]["name"] == NAME]
    return {manifest["metadata"]["uid"] for manifest in (*found, *jobs)}


# --- late, behind, broken ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FLOWS)
def test_every_flow_works_with_a_cache_that_is_late_and_behind(name: str) -> None:
    scenario = by_name(name)

    async def story(world: World) -> None:
        await begin(scenario, world)
        world.watching.lag, world.watching.behind = LAG, 1
        await go_on(scenario, world)

    asyncio.run(story(World()))


@pytest.mark.parametrize("name", FLOWS)
def test_every_flow_works_with_a_watch_that_breaks_and_restarts(name: str) -> None:
    scenario = by_name(name)

    async def story(world: World) -> None:
        await begin(scenario, world)
        world.watching.break_off()
        since = world.time

        async def mend() -> None:
            if world.watching.broken and world.time - since >= timedelta(seconds=40):
                await world.watching.restart()
                empty = gone(world)  # an empty list does not show that it is one
                assert empty or await copied(world) == there(world), "what went meanwhile stays in the copy"

        scenario.act(world)
        for when, act in scenario.then:
            await world.until(lambda when=when: when(world), also=mend)
            act(world)
        await world.until(lambda: scenario.ended(world), also=mend)
        await world.run(60, also=mend)
        judge(scenario, world)

    asyncio.run(story(World()))


def test_a_flinkjob_that_was_deleted_and_recreated_between_two_passes_is_another_one() -> None:
    async def story(world: World) -> None:
        await deployed(world)
        first = world.job()["metadata"]["uid"]
        world.watching.break_off()
        world.cluster.edit("FlinkJob", "default", "weather", lambda m: m["metadata"].update(finalizers=[]))
        world.cluster.drop("FlinkJob", "default", "weather")
        world.tick(5)
        world.jobs.clear()
        again = flinkjob()
        again["metadata"]["uid"] = "another"
        world.apply(again)
        await world.run(90)
        if world.job().get("status") is None:
            await world.watching.restart()
        await world.until(lambda: running(world))
        owners = {m["metadata"]["ownerReferences"][0]["uid"] for m in world.cluster.select("Deployment", None, {})}
        assert owners == {"another"} != {first}

    played(story, may_repeat=True)


def test_a_master_that_disappeared_unobserved_is_detected_by_a_poll() -> None:
    async def story(world: World) -> None:
        await deployed(world)
        world.watching.break_off()
        world.cluster.remove("Deployment", "default", "weather-master")
        world.kill_pod("master")
        await world.until(lambda: world.cluster.one("Deployment", "weather-master") is not None, within=60)
        await world.until(lambda: running(world), within=120)

    played(story)


def test_the_cache_alone_causes_no_change() -> None:
    """The cache claims that the master's Deployment is gone, although it exists."""

    async def story(world: World) -> None:
        await deployed(world)
        master = world.cluster.one("Deployment", "weather-master")
        assert master is not None
        world.watching.break_off()
        world.ports.watched.handle_event(DEPLOYMENT, master, deleted=True)
        writes = len(world.cluster.writes)
        await world.run(50)
        assert [w for w in world.cluster.writes[writes:] if not w.startswith("replace status")] == []
        assert ("Repaired") not in {reason for reason, _ in world.events()}

    played(story)


def test_the_newest_checkpoint_does_not_overwrite_a_concurrent_write() -> None:
    async def story(world: World) -> None:
        await deployed(world)
        world.watching.break_off()
        world.watching.listed_at = world.time + timedelta(days=1)
        refused = 0
        real = world.cluster.replace

        async def replace(manifest: Manifest, *, subresource: str = "") -> Manifest:
            nonlocal refused
            try:
                return await real(manifest, subresource=subresource)
            except Conflict:
                refused += 1
                raise

        world.cluster.replace = replace  # type: ignore[method-assign]
        world.cluster.edit(
            "FlinkJob", "default", "weather", lambda m: m["status"].update(nonces={"checkpointTrigger": 7})
        )
        await world.run(120)
        assert refused >= 1
        assert world.status()["nonces"] == {"checkpointTrigger": 7}

    played(story)


# --- the cache itself
# ---------------------------------------------------------------------------------------------------


def thing(kind: Kind = POD, *, uid: str = "u", name: str = "p", version: int = 1, job: str | None = "j") -> Manifest:
    labels = {JOB: job, ROLE: "worker"} if job else {}
    meta = {"name": name, "namespace": "ns", "uid": uid, "resourceVersion": str(version), "labels": labels}
    return {"kind": kind.name, "metadata": meta | {"managedFields": [{"manager": "x"}]}}


def names(watched: WatchedObjects, job: str = "j", kind: Kind = POD) -> list[tuple[str, str]]:
    found = asyncio.run(watched.list(kind, "ns", {JOB: job}))
    return [(m["metadata"]["uid"], m["metadata"]["resourceVersion"]) for m in found]


def test_events_are_stored_by_uid_in_any_order() -> None:
    watched = WatchedObjects()
    assert watched.handle_event(POD, thing(uid="old"))
    assert not watched.handle_event(POD, thing(uid="old")), "nothing new"
    assert watched.handle_event(POD, thing(uid="new", version=7))
    assert names(watched) == [("old", "1"), ("new", "7")]
    assert watched.handle_event(POD, thing(uid="old", version=8), deleted=True)
    assert names(watched) == [("new", "7")]
    assert not watched.handle_event(POD, thing(uid="old", version=8), deleted=True)


def test_readers_get_copies_without_managed_fields() -> None:
    watched = WatchedObjects()
    watched.handle_event(POD, thing())
    (first,) = asyncio.run(watched.list(POD, "ns", {JOB: "j"}))
    assert "managedFields" not in first["metadata"]
    assert first["apiVersion"] == "v1"
    first["metadata"]["name"] = "changed"
    (second,) = asyncio.run(watched.list(POD, "ns", {JOB: "j"}))
    assert second["metadata"]["name"] == "p"


def test_an_object_whose_label_changes_moves() -> None:
    watched = WatchedObjects()
    watched.handle_event(POD, thing(version=1))
    watched.handle_event(POD, thing(version=2, job="other"))
    assert (names(watched), names(watched, "other")) == ([], [("u", "2")])
    watched.handle_event(POD, thing(version=3, job=None))
    assert names(watched, "other") == []
    assert watched.size == 0


def test_two_flinkjobs_of_one_name_are_not_returned() -> None:
    watched = WatchedObjects()
    watched.handle_event(FLINKJOB, thing(FLINKJOB, name="j", uid="a"))
    assert asyncio.run(watched.get(FLINKJOB, "ns", "j")) is not None
    watched.handle_event(FLINKJOB, thing(FLINKJOB, name="j", uid="b"))
    assert asyncio.run(watched.get(FLINKJOB, "ns", "j")) is None


def test_a_list_corrects_only_older_entries() -> None:
    watched = WatchedObjects()
    for uid in ("vanished", "changed", "same"):
        watched.handle_event(POD, thing(uid=uid))
    listed_at = watched.clock
    watched.handle_event(POD, thing(uid="later", version=9))
    watched.handle_event(POD, thing(uid="gone-later", version=9))
    watched.handle_event(POD, thing(uid="gone-later", version=9), deleted=True)
    watched.handle_event(POD, thing(uid="changed", version=5))
    listed = [
        thing(uid="same"),
        thing(uid="changed", version=4),
        thing(uid="gone-later"),
        thing(uid="missed", version=3),
    ]
    assert watched.correct_copy(POD, None, listed_at, listed) == {("ns", "j")}
    assert sorted(names(watched)) == [("changed", "5"), ("later", "9"), ("missed", "3"), ("same", "1")]
    assert watched.correct_copy(POD, "other-namespace", watched.clock, []) == set()
    assert watched.correct_copy(DEPLOYMENT, None, watched.clock, []) == set()
    assert len(names(watched)) == 4
