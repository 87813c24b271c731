"""The status of a FlinkJob whose job has ended names the job's history archive, if it exists, and the command that shows it."""

from __future__ import annotations

import pytest

from tests.unit.operator.world import Image, World, flinkjob
from tests.unit.operator.world.scenarios.scenario import played


def shown(world: World) -> str:
    found = world.condition("Ready")
    return found["message"] if found and found["reason"] == "Finished" else ""


@pytest.mark.parametrize(
    ("folder", "written"), [("s3://bucket/history", "s3://bucket/history"), ("/mnt/old jobs", "'/mnt/old jobs'")]
)
def test_status_and_event_name_the_command(folder: str, written: str) -> None:
    async def scenario(world: World) -> None:
        world.images["job:1"] = Image(ends_at=300)
        manifest = flinkjob()
        manifest["spec"]["configuration"]["jobmanager.archive.fs.dir"] = folder
        world.apply(manifest)
        await world.until(lambda: bool(shown(world)))
        command = f"penstock history show {written} {world.status()['running']['jobId']}"
        assert shown(world) == f"it has read all input. Its history: {command}"
        assert command in dict(world.events())["Finished"]
        await world.run(900, pace=5)
        assert command in shown(world), "a look at rest says the same"

    played(scenario)


def test_a_job_without_an_archive_names_no_command() -> None:
    async def scenario(world: World) -> None:
        world.images["job:1"] = Image(ends_at=300)
        world.apply(flinkjob())
        await world.until(lambda: bool(shown(world)))
        await world.run(900, pace=5)
        assert shown(world) == "it has read all input"
        assert "history" not in dict(world.events())["Finished"]

    played(scenario)
