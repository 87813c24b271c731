"""REST over TLS: the operator connects to each master with the settings of that master's start."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from tests.unit.operator.world import World, flinkjob
from tests.unit.operator.world.scenarios.scenario import deployed, played, running

if TYPE_CHECKING:
    from penstock_operator.kube.cluster import Manifest

ON = {"rest.ssl.enabled": "true", "rest.ssl.secret-name": "weather-tls"}


def certificate(**changes: str) -> Manifest:
    values = {"tls.crt": "certificate", "tls.key": "key", "ca.crt": "authority", **changes}
    data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "weather-tls", "namespace": "default"},
        "data": data,
    }


def with_tls() -> dict[str, Any]:
    manifest = flinkjob()
    manifest["spec"].setdefault("configuration", {}).update(ON)
    return manifest


def test_a_job_with_tls_runs_and_its_master_is_verified_with_the_ca() -> None:
    async def story(world: World) -> None:
        world.cluster.put(certificate())
        await deployed(world, with_tls())
        assert world.status()["running"]["restTls"] == "weather-tls"
        assert world.misaddressed == 0

    played(story)


def test_a_change_of_tls_uses_the_protocol_of_each_master() -> None:
    async def story(world: World) -> None:
        world.cluster.put(certificate())
        first = await deployed(world)
        world.edit(configuration=ON)
        await world.until(lambda: running(world) and world.status()["running"]["jobId"] != first)
        assert world.status()["running"]["restTls"] == "weather-tls"
        second = world.status()["running"]["jobId"]
        world.edit(configuration={"rest.ssl.enabled": "false"})
        await world.until(lambda: running(world) and world.status()["running"]["jobId"] != second)
        assert not world.status()["running"].get("restTls")
        assert world.misaddressed == 0

    played(story)


def test_a_missing_certificate_is_reported_before_the_job_is_stopped() -> None:
    async def story(world: World) -> None:
        first = await deployed(world)
        world.edit(configuration=ON)
        await world.run(120)
        assert world.status()["running"]["jobId"] == first
        job = world.leading("weather")
        assert job is not None
        assert job.state == "RUNNING"
        text = str(world.status())
        assert "SecretMissing" in text
        assert "weather-tls" in text
        world.cluster.put(certificate())
        await world.until(lambda: running(world) and world.status()["running"]["jobId"] != first)

    played(story)


def test_an_adopted_master_is_called_with_the_settings_of_its_start() -> None:
    async def story(world: World) -> None:
        world.cluster.put(certificate())
        first = await deployed(world, with_tls())
        world.cluster.edit("FlinkJob", "default", "weather", lambda job: job.pop("status"))
        await world.until(lambda: running(world))
        assert world.status()["running"]["jobId"] == first
        assert world.status()["running"]["restTls"] == "weather-tls"

    played(story)
