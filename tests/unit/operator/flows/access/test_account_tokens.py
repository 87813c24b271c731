"""A job gets no ServiceAccount token, for any name of the Secret and any field of the spec that names it."""

from __future__ import annotations

from typing import Any

import pytest

from penstock_operator.api.pod_template import MAIN_CONTAINER
from penstock_operator.resources.named_secrets import ACCOUNT_TOKEN, named_secrets
from tests.unit.operator.world import World
from tests.unit.operator.world.scenarios.scenario import deployed, played, running, spec

NAME = "innocent"


def _main(**fields: Any) -> dict[str, Any]:
    return {"containers": [{"name": MAIN_CONTAINER, **fields}]}


TEMPLATES = [
    {"volumes": [{"name": "v", "secret": {"secretName": NAME}}]},
    {"volumes": [{"name": "v", "secret": {"secretName": NAME, "optional": True}}]},
    {"volumes": [{"name": "v", "projected": {"sources": [{"secret": {"name": NAME}}]}}]},
    {"volumes": [{"name": "v", "csi": {"driver": "d", "nodePublishSecretRef": {"name": NAME}}}]},
    _main(envFrom=[{"secretRef": {"name": NAME}}]),
    _main(env=[{"name": "T", "valueFrom": {"secretKeyRef": {"name": NAME, "key": "token"}}}]),
    {"initContainers": [{"name": "i", "image": "i", "envFrom": [{"secretRef": {"name": NAME}}]}]},
]


def _secret(world: World, kind: str) -> None:
    world.secret(NAME)
    world.cluster.edit("Secret", "default", NAME, lambda m: m.update(type=kind))


@pytest.mark.parametrize("role", ["master", "worker"])
@pytest.mark.parametrize("template", TEMPLATES, ids=range(len(TEMPLATES)))
def test_a_secret_with_an_account_token_is_refused_before_the_job_stops(template: dict[str, Any], role: str) -> None:
    async def story(world: World) -> None:
        _secret(world, ACCOUNT_TOKEN)
        await deployed(world)
        before = world.status()["jobId"]
        world.edit(**{role: {"podTemplate": {"spec": template}}})  # type: ignore[arg-type]
        await world.until(world.stalled)
        assert world.condition("Stalled")["reason"] == "InvalidObject"
        assert f"Secret {NAME} has the type {ACCOUNT_TOKEN}" in world.condition("Stalled")["message"]
        assert world.status()["jobId"] == before
        assert not world.savepoints

    played(story)


@pytest.mark.parametrize("field", ["secretRef", "secretKeyRef", "secret", "nodePublishSecretRef"])
def test_a_second_name_in_a_reference_cannot_hide_a_secret(field: str) -> None:
    """The API server drops unknown fields when it creates a Pod."""
    source = {field: {"secretName": "fine", "name": NAME}}
    pod = {"kind": "Pod", "spec": {"volumes": [{"name": "v", "projected": {"sources": [source]}}]}}
    assert named_secrets(pod) == {"fine", NAME}


def test_a_secret_with_keys_is_accepted() -> None:
    async def story(world: World) -> None:
        _secret(world, "Opaque")
        await deployed(world)
        before = world.status()["jobId"]
        world.edit(worker={"podTemplate": {"spec": TEMPLATES[0]}})
        await world.until(lambda: running(world) and world.status()["jobId"] != before)

    played(story)


def test_a_secret_whose_type_the_operator_cannot_read_is_refused_until_it_can() -> None:
    async def story(world: World) -> None:
        _secret(world, ACCOUNT_TOKEN)
        await deployed(world)
        before = world.status()["jobId"]
        world.cluster.unreadable.add("Secret")
        world.edit(worker={"podTemplate": {"spec": TEMPLATES[0]}})
        await world.run(120)
        assert world.status()["jobId"] == before
        assert not world.savepoints
        world.cluster.unreadable.clear()
        await world.until(lambda: world.condition("Stalled").get("reason") == "InvalidObject")

    played(story)


@pytest.mark.parametrize("template", TEMPLATES, ids=range(len(TEMPLATES)))
def test_pods_with_a_missing_secret_are_not_created_so_that_its_type_can_be_checked(
    template: dict[str, Any],
) -> None:
    async def story(world: World) -> None:
        await deployed(world)
        before = world.status()["jobId"]
        world.edit(worker={"podTemplate": {"spec": template}})
        await world.until(lambda: world.condition("Stalled").get("reason") == "SecretMissing")
        assert f"the Secret {NAME} does not exist" in world.condition("Stalled")["message"]
        assert world.status()["jobId"] == before
        _secret(world, ACCOUNT_TOKEN)
        await world.until(lambda: world.condition("Stalled")["reason"] == "InvalidObject")
        assert world.status()["jobId"] == before
        assert not world.savepoints

    played(story)


@pytest.mark.parametrize("kind", [ACCOUNT_TOKEN, "Opaque"])
def test_the_first_pods_also_wait_for_a_missing_secret(kind: str) -> None:
    async def story(world: World) -> None:
        world.apply(spec(worker={"podTemplate": {"spec": TEMPLATES[1]}}))
        await world.until(lambda: world.condition("Stalled").get("reason") == "SecretMissing")
        assert not world.cluster.select("Pod", None, {"penstock.dev/role": "worker"})
        _secret(world, kind)
        if kind == ACCOUNT_TOKEN:
            await world.until(lambda: world.condition("Stalled")["reason"] == "InvalidObject")
            assert not world.cluster.select("Pod", None, {"penstock.dev/role": "worker"})
        else:
            await world.until(lambda: running(world))

    played(story)
