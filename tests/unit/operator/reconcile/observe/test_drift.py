"""Changes of the operator's objects by others: additions remain, changes are reverted, and the operator fights no writer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from penstock_operator.reconcile.observe.difference import difference
from tests.unit.operator.world import World, flinkjob
from tests.unit.operator.world.kubernetes.managed_fields import applied
from tests.unit.operator.world.scenarios.scenario import running
from tests.unit.operator.world.world import NAME

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock_operator.kube.cluster import Manifest

ENV = {"name": "INJECTED", "value": "1"}
VOLUME: dict[str, Any] = {"name": "ca", "configMap": {"name": "private-ca"}}


def pod_of(deployment: Manifest) -> dict[str, Any]:
    spec: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return spec


def with_foreign_additions(deployment: Manifest) -> None:
    pod = pod_of(deployment)
    pod["containers"][0]["env"].insert(0, dict(ENV))
    pod["containers"].append({"name": "mesh-proxy", "image": "proxy:1"})
    pod["volumes"].append(dict(VOLUME))


def with_another_image(deployment: Manifest) -> None:
    pod_of(deployment)["containers"][0]["image"] = "mirror.example.org/job:1"


async def writes_in(world: World, seconds: float) -> list[str]:
    before = len(world.cluster.writes)
    await world.run(seconds)
    return world.cluster.writes[before:]


def deployed(world: World, role: str) -> Manifest:
    found = world.cluster.one("Deployment", f"weather-{role}")
    assert found is not None
    return found


@pytest.mark.parametrize("role", ["master", "worker"])
def test_additions_to_a_deployment_remain_and_cost_nothing(role: str) -> None:
    async def scenario() -> None:
        world = World()
        world.apply(flinkjob())
        await world.until(lambda: running(world))
        await world.run(30)
        world.cluster.edit("Deployment", "default", f"weather-{role}", with_foreign_additions)
        await world.until(lambda: running(world))
        written = await writes_in(world, 120)
        assert not [call for call in written if call.startswith("apply")], written
        container = pod_of(deployed(world, role))["containers"][0]
        assert ENV in container["env"]
        assert VOLUME in pod_of(deployed(world, role))["volumes"]
        assert not [e for e in world.events() if e[0] == "Repaired"]

    asyncio.run(scenario())


def test_additions_survive_an_upgrade() -> None:
    async def scenario() -> None:
        world = World()
        world.apply(flinkjob())
        metadata = {"name": VOLUME["configMap"]["name"], "namespace": "default"}
        world.cluster.put({"kind": "ConfigMap", "metadata": metadata, "data": {"ca.crt": "certificate"}})
        await world.until(lambda: running(world))
        world.cluster.edit("Deployment", "default", "weather-worker", with_foreign_additions)
        world.edit(image="job:2")
        await world.until(lambda: running(world, image="job:2"))
        assert VOLUME in pod_of(deployed(world, "worker"))["volumes"]

    asyncio.run(scenario())


def test_changes_by_others_are_reverted_once() -> None:
    async def scenario() -> None:
        world = World()
        world.apply(flinkjob())
        await world.until(lambda: running(world))
        world.cluster.edit("Deployment", "default", "weather-worker", with_another_image)
        await world.until(lambda: pod_of(deployed(world, "worker"))["containers"][0]["image"] == "job:1")
        await world.until(lambda: running(world))
        reported = [text for reason, text in world.events() if reason == "Repaired"]
        assert len(reported) == 1
        assert "spec.template.spec.containers[penstock].image" in reported[0]

    asyncio.run(scenario())


def webhook(kind: str, change: Callable[[Manifest], None]) -> Callable[[Manifest], None]:
    def admit(manifest: Manifest) -> None:
        if manifest["kind"] == kind:
            change(manifest)

    return admit


def annotate(service: Manifest) -> None:
    """Change a field of the operator, as a webhook does."""
    service["metadata"]["labels"]["app.kubernetes.io/managed-by"] = "somebody-else"


@pytest.mark.parametrize(
    ("kind", "change", "where"),
    [
        ("Deployment", with_another_image, "containers[penstock].image"),
        ("Service", annotate, "metadata.labels.app.kubernetes.io/managed-by"),
    ],
)
def test_a_webhook_that_changes_a_field_of_the_operator_is_not_fought(
    kind: str, change: Callable[[Manifest], None], where: str
) -> None:
    async def scenario() -> None:
        world = World()
        world.cluster.admission = webhook(kind, change)
        world.apply(flinkjob())
        await world.until(lambda: running(world))
        await world.run(60)
        written = await writes_in(world, 600)
        repairs = [call for call in written if call.startswith(f"apply {kind}")]
        assert len(repairs) <= 24, f"{len(repairs)} in ten minutes"
        reported = [text for reason, text in world.events() if reason == "RepairReverted"]
        assert any(where in text and "webhook" in text for text in reported), reported
        assert len(reported) <= 2, reported
        world.edit(job={"savepointTriggerNonce": 1})
        await world.until(lambda: bool(world.savepoints), within=60)
        await world.until(lambda: len(world.snapshots(trigger="nonce")) == 1, within=60)

    asyncio.run(scenario())


def test_a_repair_that_finally_succeeds_is_forgotten() -> None:
    async def scenario() -> None:
        world = World()
        world.apply(flinkjob())
        await world.until(lambda: running(world))
        world.cluster.admission = webhook("Service", annotate)
        world.cluster.edit("Service", "default", "weather-rest", annotate)
        world.edit(rollback={"after": "6m"})  # compares all objects again
        await world.until(lambda: any(reason == "RepairReverted" for reason, _ in world.events()))
        world.cluster.admission = lambda manifest: None
        await world.run(400, pace=5)
        service = world.cluster.one("Service", "weather-rest")
        assert service is not None
        assert service["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "penstock-operator"
        assert not world.loops["FlinkJob", "weather"].cache.repairs

    asyncio.run(scenario())


def test_a_second_master_is_removed() -> None:
    async def scenario() -> None:
        world = World()
        world.apply(flinkjob())
        await world.until(lambda: running(world))
        world.cluster.edit("Deployment", "default", "weather-master", lambda m: m["spec"].update(replicas=2))
        await world.until(lambda: deployed(world, "master")["spec"]["replicas"] == 1, within=60)
        assert any("spec.replicas" in text for reason, text in world.events() if reason == "Repaired")

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("wanted", "live", "where"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, None),
        ({"a": {"b": 1}}, {"a": None}, "a"),
        ({"args": ["x"]}, {"args": ["x", "y"]}, "args"),
        ({"args": ["x", "y"]}, {"args": ["y", "x"]}, "args[0]"),
        ({"env": [{"name": "A", "value": "1"}]}, {"env": []}, "env[A]"),
        ({"ports": [{"port": 80, "protocol": "TCP"}]}, {"ports": [{"port": 80}, {"port": 22}]}, "ports"),
        (
            {"ports": [{"port": 80, "targetPort": "rest"}]},
            {"ports": [{"port": 22, "targetPort": 22}, {"port": 80, "protocol": "TCP", "targetPort": "rest"}]},
            None,
        ),
        ({"tolerations": []}, {"tolerations": None}, None),
        ({"initialDelaySeconds": 0}, {}, None),
        ({"replicas": 1}, {"replicas": 0}, "replicas"),
        ({"limits": {"memory": "1Gi"}}, {"limits": {"memory": "1024Mi"}}, None),
    ],
)
def test_differences_are_found(wanted: Any, live: Any, where: str | None) -> None:
    assert difference(wanted, live) == where


@pytest.mark.parametrize(
    ("live", "before", "wanted", "expected"),
    [
        ({"a": 1}, {}, {"b": 2}, {"a": 1, "b": 2}),
        ({"a": 1, "b": 2}, {"b": 2}, {"c": 3}, {"a": 1, "c": 3}),
        ({"a": {"x": 1, "y": 2}}, {"a": {"x": 1}}, {}, {"a": {"y": 2}}),
        (
            {"env": [{"name": "A"}, {"name": "B"}, {"name": "C"}]},
            {"env": [{"name": "A"}, {"name": "B"}]},
            {"env": [{"name": "A", "value": "1"}]},
            {"env": [{"name": "A", "value": "1"}, {"name": "C"}]},
        ),
        ({"args": ["x", "y"]}, {"args": ["x"]}, {"args": ["z"]}, {"args": ["z"]}),
    ],
)
def test_the_simulated_api_server_applies_as_a_real_one(live: Any, before: Any, wanted: Any, expected: Any) -> None:
    assert applied(live, before, wanted) == expected


def test_an_edit_of_the_user_is_applied_and_a_foreign_change_is_repaired() -> None:
    async def scenario() -> None:
        world = World()
        world.apply(flinkjob())
        await world.until(lambda: running(world))
        await world.run(25)
        for ingress in ({"host": "a.example"}, {"host": "b.example"}, None):
            world.edit(ingress=ingress)
            await world.until(lambda: running(world))
            await world.run(30)
        reasons = [reason for reason, _ in world.events()]
        assert (reasons.count("Applied"), reasons.count("Repaired")) == (3, 0), world.events()
        reported = [text for reason, text in world.events() if reason == "Applied"]
        assert all("Ingress weather-rest" in text for text in reported), reported
        world.cluster.remove("NetworkPolicy", "default", NAME)
        world.loops.clear()
        await world.until(lambda: "Repaired" in dict(world.events()))
        assert [reason for reason, _ in world.events()].count("Applied") == 3

    asyncio.run(scenario())


def test_an_edit_that_could_not_be_applied_immediately_is_not_counted_as_a_repair() -> None:
    async def scenario() -> None:
        world = World()
        world.apply(flinkjob())
        await world.until(lambda: running(world))
        await world.run(25)
        world.cluster.denied["Ingress"] = "the webhook does not answer"
        world.edit(ingress={"host": "a.example"})
        await world.run(40)
        world.cluster.denied.clear()
        await world.until(lambda: world.cluster.select("Ingress", None, {}) != [])
        assert "Repaired" not in dict(world.events()), world.events()

    asyncio.run(scenario())
