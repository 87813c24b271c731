"""A FlinkJob whose job has ended says where its history is, if the job keeps one, and what shows it."""

from __future__ import annotations

import pytest

from tests.unit.operator.world import Image, World, flinkjob
from tests.unit.operator.world.scenario import played


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
        assert shown(world) == f"all of its input is read. Its history: {command}"
        assert command in dict(world.events())["Finished"]
        await world.run(900)
        assert command in shown(world), "a look at rest says the same"

    played(scenario)


def test_without_an_archive_nothing_is_promised() -> None:
    async def scenario(world: World) -> None:
        world.images["job:1"] = Image(ends_at=300)
        world.apply(flinkjob())
        await world.until(lambda: bool(shown(world)))
        await world.run(900)
        assert shown(world) == "all of its input is read"
        assert "history" not in dict(world.events())["Finished"]

    played(scenario)
