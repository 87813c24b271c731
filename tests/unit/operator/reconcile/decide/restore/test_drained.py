"""A person drains a job: it emits all results and stops before the end of its input.

The job remains stopped until a person requests otherwise.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.operator.world import World, flinkjob
from tests.unit.operator.world.scenarios.scenario import deployed, operations, played, running, suspended
from tests.unit.operator.world.world import NAME

FOLDER = "s3://bucket/savepoints/by-hand"


def drain(world: World) -> None:
    """Run `penstock stop --drain` without the operator."""
    job = world.leading(NAME)
    assert job is not None
    job.ask("stop", "by-hand", FOLDER, drain=True)


def is_drained(world: World) -> bool:
    """Return whether the open windows have fired once with the last records, and their output is committed."""
    [(path, position)] = world.sink.drained
    return path.startswith(FOLDER) and position == world.sink.ends[NAME] == world.storage.found[path].position


def test_a_drained_job_has_ended_and_is_not_restarted() -> None:
    async def scenario(world: World) -> None:
        manifest = flinkjob()
        manifest["spec"]["deletion"] = {"ttlAfterFinished": "5m"}
        job_id = await deployed(world, manifest)
        drain(world)
        await world.until(lambda: world.status().get("phase") == "Finished")
        await world.run(900, pace=5)
        assert world.condition("Ready")["reason"] == "Finished"
        assert "it was stopped" in world.condition("Ready")["message"]
        assert world.status()["running"]["endOfInput"] is False, "so it is not deleted when its time is over"
        assert (world.status()["jobId"], operations(world)) == (job_id, ["Deploy"])
        assert not world.cluster.select("Pod", None, {})
        assert is_drained(world)

    played(scenario)


@pytest.mark.parametrize("edit", [{"image": "job:2"}, {"job": {"restartNonce": 1}}], ids=["upgraded", "restarted"])
def test_a_drained_job_continues_from_its_end_on_request(edit: dict[str, Any]) -> None:
    async def scenario(world: World) -> None:
        job_id = await deployed(world)
        drain(world)
        await world.until(lambda: world.status().get("phase") == "Finished")
        await world.run(60)
        end = world.storage.of_job(job_id)[-1]
        assert end.position == world.sink.ends[NAME]
        world.edit(**edit)
        await world.until(lambda: running(world))
        assert world.status()["jobId"] != job_id
        assert world.sink.restores == [end.path]
        assert len(world.sink.drained) == 1

    played(scenario)


def test_a_suspension_during_a_drain_ends_with_the_drain() -> None:
    async def scenario(world: World) -> None:
        await deployed(world)
        drain(world)
        world.edit(job={"state": "suspended"})
        await world.until(lambda: suspended(world))
        assert is_drained(world)
        restore = world.storage.found[world.status()["nextRestore"]["path"]]
        assert restore.position == world.sink.ends[NAME]
        world.edit(job={"state": "running"})
        await world.until(lambda: running(world))

    played(scenario)
