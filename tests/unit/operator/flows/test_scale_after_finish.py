"""A rescale of a finished job has no effect, and the job reports that."""

from __future__ import annotations

from tests.unit.operator.world import Image, World
from tests.unit.operator.world.scenarios.scenario import deployed, played, running


def test_a_rescale_of_a_finished_job_is_reported_once() -> None:
    async def story(world: World) -> None:
        world.images["job:1"] = Image(ends_at=400)
        await deployed(world)
        await world.until(lambda: world.status()["phase"] == "Finished")
        world.edit(job={"parallelism": 4})
        await world.run(300)
        assert world.status()["phase"] == "Finished"
        assert "the job has finished, so nothing is rescaled" in world.condition("Ready")["message"]
        events = [message for reason, message in world.events() if reason == "NotRescaled"]
        assert len(events) == 1, events
        assert "change job.restartNonce" in events[0]
        world.edit(job={"restartNonce": 1})
        await world.until(lambda: running(world, parallelism=4) or world.status()["phase"] == "Finished")
        await world.run(60)
        assert world.status()["running"]["parallelism"] == 4
        assert "rescaled" not in world.condition("Ready").get("message", "")

    played(story, may_repeat=True)
