"""Foreign objects: objects under the operator's names, changed Secrets, storage of other users."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from typing import TYPE_CHECKING, Any

import pytest

from penstock_operator.api.limits.own_identity import OwnIdentity
from penstock_operator.api.validation import check_own_identity
from penstock_operator.errors import StorageError
from penstock_operator.settings import Settings
from penstock_operator.storage.penstock import PenstockStorages
from tests.unit.operator.contexts import make_spec
from tests.unit.operator.world import World, flinkjob
from tests.unit.operator.world.scenarios.scenario import gone, running

if TYPE_CHECKING:
    from pathlib import Path

    from penstock_operator.kube.cluster import Manifest


def stranger(kind: str, name: str, **labels: str) -> Manifest:
    versions = {"Deployment": "apps/v1", "NetworkPolicy": "networking.k8s.io/v1", "PodDisruptionBudget": "policy/v1"}
    return {
        "apiVersion": versions.get(kind, "v1"),
        "kind": kind,
        "metadata": {"name": name, "namespace": "default", "labels": {"team": "b", **labels}},
        "data": {"theirs": "eA=="},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "b"}}, "template": {"spec": {"containers": []}}},
    }


NAMES = [
    ("Service", "weather-rest"),
    ("Service", "weather-master-1"),
    ("ConfigMap", "weather-parallelism"),
    ("Secret", "weather-secrets"),
    ("ServiceAccount", "weather-worker"),
    ("NetworkPolicy", "weather"),
    ("PodDisruptionBudget", "weather-worker"),
    ("Deployment", "weather-master"),
    ("Deployment", "weather-worker"),
]


@pytest.mark.parametrize("check", [True, False], ids=["with-check", "without"])
@pytest.mark.parametrize(("kind", "name"), NAMES)
def test_a_foreign_object_is_never_changed(kind: str, name: str, check: bool) -> None:
    async def scenario() -> None:
        world = World()
        world.cluster.put(stranger(kind, name))
        before = dict(world.cluster.one(kind, name) or {})
        manifest = flinkjob()
        manifest["spec"]["upgrade"] = {"check": check}
        world.apply(manifest)
        await world.until(world.stalled)
        stalled = world.condition("Stalled")
        assert stalled["reason"] == "NameTaken"
        assert f"{kind} {name}" in stalled["message"]
        assert "give the FlinkJob another name" in stalled["message"]
        await world.run(60)
        assert world.cluster.one(kind, name) == before
        pods = [p for p in world.cluster.select("Pod", None, {}) if p["metadata"]["labels"].get("penstock.dev/role")]
        assert not [p for p in pods if p["metadata"]["labels"]["penstock.dev/role"] != "check"]
        world.cluster.drop(kind, "default", name)
        await world.until(lambda: running(world))

    asyncio.run(scenario())


@pytest.mark.parametrize(("kind", "name"), NAMES)
def test_a_foreign_object_outlives_the_flinkjob(kind: str, name: str) -> None:
    async def scenario() -> None:
        world = World()
        world.cluster.put(stranger(kind, name))
        before = dict(world.cluster.one(kind, name) or {})
        world.apply(flinkjob())
        await world.until(world.stalled)
        world.delete()
        await world.until(lambda: gone(world))
        assert world.cluster.one(kind, name) == before

    asyncio.run(scenario())


@pytest.mark.parametrize("named", ["weather-worker", "cloud"])
def test_an_account_that_the_spec_names_is_used_and_neither_changed_nor_deleted(named: str) -> None:
    async def scenario() -> None:
        world = World()
        world.cluster.put(stranger("ServiceAccount", named))
        before = dict(world.cluster.one("ServiceAccount", named) or {})
        manifest = flinkjob()
        manifest["spec"]["serviceAccount"] = {"name": named}
        world.apply(manifest)
        await world.until(lambda: running(world))
        pods = world.cluster.select("Pod", None, {"penstock.dev/job": "weather"})
        assert {pod["spec"]["serviceAccountName"] for pod in pods} == {named}
        assert world.cluster.one("ServiceAccount", "weather-master") is None
        await world.run(60)
        assert world.cluster.one("ServiceAccount", named) == before
        world.delete()
        await world.until(lambda: gone(world))
        assert world.cluster.one("ServiceAccount", named) == before

    asyncio.run(scenario())


def test_a_name_conflict_of_a_running_job_is_reported_and_the_job_keeps_running() -> None:
    async def scenario() -> None:
        world = World()
        world.apply(flinkjob())
        await world.until(lambda: running(world))
        world.cluster.drop("Service", "default", "weather-rest")
        world.cluster.put(stranger("Service", "weather-rest"))
        before = dict(world.cluster.one("Service", "weather-rest") or {})
        world.edit(rollback={"after": "6m"})
        await world.until(world.stalled)
        assert world.condition("Stalled")["reason"] == "NameTaken"
        assert world.condition("Running")["status"] == "True"
        assert world.cluster.one("Service", "weather-rest") == before
        world.cluster.drop("Service", "default", "weather-rest")
        await world.until(lambda: running(world) and not world.stalled())

    asyncio.run(scenario())


def test_an_upgrade_detects_the_conflict_before_the_job_is_stopped() -> None:
    async def scenario() -> None:
        world = World()
        world.apply(flinkjob())
        await world.until(lambda: running(world))
        before = world.status()["jobId"]
        world.cluster.drop("ServiceAccount", "default", "weather-master")
        world.cluster.put(stranger("ServiceAccount", "weather-master"))
        world.edit(image="job:2")
        await world.until(world.stalled)
        await world.run(60)
        assert world.status()["jobId"] == before
        assert not world.savepoints

    asyncio.run(scenario())


def test_a_revision_of_an_earlier_flinkjob_is_awaited() -> None:
    """The FlinkJob was deleted and applied again.

    The garbage collector removes the old revision of the same name a moment later.
    """

    async def scenario() -> None:
        world = World()
        world.apply(flinkjob())
        await world.until(lambda: running(world))
        old = next(iter(world.cluster.select("ControllerRevision", None, {})))
        world.delete()
        await world.until(lambda: gone(world))
        again = {**old, "metadata": {**old["metadata"], "ownerReferences": []}}
        world.cluster.put(again)
        world.apply(flinkjob())
        await world.run(30)
        assert not world.status().get("running")
        assert "belongs to an earlier FlinkJob" in world.status()["error"]["message"]
        world.cluster.drop("ControllerRevision", "default", old["metadata"]["name"])
        await world.until(lambda: running(world))
        revision = world.cluster.one("ControllerRevision", world.status()["running"]["revision"])
        assert revision is not None
        assert revision["metadata"]["labels"]["penstock.dev/job-uid"] == world.job()["metadata"]["uid"]

    asyncio.run(scenario())


@pytest.mark.parametrize("key", ["rest-token", "spark-secret"])
def test_a_secret_of_the_operator_with_a_missing_key_is_repaired(key: str) -> None:
    async def scenario() -> None:
        world = World()
        world.apply(flinkjob())
        await world.until(lambda: running(world))
        before = dict((world.cluster.one("Secret", "weather-secrets") or {})["data"])
        world.cluster.edit("Secret", "default", "weather-secrets", lambda m: m["data"].pop(key))
        world.edit(rollback={"after": "6m"})
        await world.run(60)
        after = (world.cluster.one("Secret", "weather-secrets") or {})["data"]
        assert after[key]
        assert after[key] != before[key]
        assert {k: v for k, v in after.items() if k != key} == {k: v for k, v in before.items() if k != key}
        assert any(f"data.{key}" in text for reason, text in world.events() if reason in ("Repaired", "Applied"))

    asyncio.run(scenario())


# --- storage ----------------------------------------------------------------------------------------------------------

MEANT = OwnIdentity(locations=("s3://shared/streams", "file:///data"), endpoints=("https://minio.example.org:9000",))


@pytest.mark.parametrize(
    ("location", "endpoint", "refused"),
    [
        ("s3://shared/streams", None, ""),
        ("s3a://shared/streams/job/chk-1", None, ""),
        ("s3://shared/streams-of-others", None, "locations"),
        ("s3://shared", None, "locations"),
        ("s3://shared/streams/../secrets", None, "locations"),
        ("s3://other/streams", None, "locations"),
        ("file:///data/x", None, ""),
        ("file:///var/run/secrets/kubernetes.io", None, "locations"),
        ("s3://shared/streams/x", "https://minio.example.org:9000/", ""),
        ("s3://shared/streams/x", "http://169.254.169.254", "endpoints"),
    ],
)
def test_jobs_without_keys_may_access_only_the_configured_locations(
    location: str, endpoint: str | None, refused: str
) -> None:
    assert {p.setting for p in MEANT.problems(endpoint, location)} == ({refused} if refused else set())
    if refused:
        with pytest.raises(StorageError, match=rf"storage\.ownIdentity\.{refused}"):
            MEANT.check(location, endpoint)
    else:
        MEANT.check(location, endpoint)


def storage_of(tmp_path: Path, secret: dict[str, str]) -> Any:
    spec = make_spec(storage={"checkpoints": f"file://{tmp_path}", "savepoints": f"file://{tmp_path}"})
    return PenstockStorages(own_identity=MEANT)(spec, secret)


@pytest.mark.parametrize("call", ["newest_complete", "verify", "savepoints", "fence", "dispose", "dispose_job"])
def test_the_operator_is_no_confused_deputy(call: str, tmp_path: Path) -> None:
    """Every call that names a location is refused without keys of the job, for any other content of the Secret."""
    more = ("a" * 32,) if call in ("newest_complete", "fence", "dispose_job") else ()
    (tmp_path / "theirs").write_text("x")

    async def ask(secret: dict[str, str]) -> None:
        await getattr(storage_of(tmp_path, secret), call)(f"file://{tmp_path}", *more)

    keys = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}
    for secret in ({}, {"AWS_REGION": "eu-1"}, {"AWS_SECRET_ACCESS_KEY": "x"}, keys):
        with pytest.raises(StorageError, match="not allowed for jobs without their own keys"):
            asyncio.run(ask(secret))
    assert [p.name for p in tmp_path.iterdir()] == ["theirs"]


def test_keys_open_object_stores_and_never_the_operators_own_files() -> None:
    local = make_spec(storage={"checkpoints": "file:///x", "savepoints": "s3://any/x", "secretName": "keys"})
    assert [p.message.split()[0] for p in check_own_identity(local, MEANT)] == ["file:///x"]
    remote = make_spec(storage={"checkpoints": "s3://any/x", "savepoints": "s3://any/y", "secretName": "keys"})
    assert check_own_identity(remote, OwnIdentity()) == ()


def test_a_job_without_keys_is_reported_before_any_pod_runs() -> None:
    async def scenario() -> None:
        world = World(settings=Settings())
        world.apply(flinkjob())
        await world.until(world.stalled)
        stalled = world.condition("Stalled")
        assert stalled["reason"] == "InvalidSpec"
        assert "spec.storage.secretName: s3://bucket/checkpoints is not allowed" in stalled["message"]
        assert "storage.ownIdentity.locations" in stalled["message"]
        assert not world.cluster.select("Pod", None, {})
        data = {"AWS_ACCESS_KEY_ID": b64encode(b"k").decode()}
        meta = {"name": "keys", "namespace": "default"}
        world.cluster.put({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": data})
        world.edit(storage={"secretName": "keys"})
        await world.until(lambda: running(world))

    asyncio.run(scenario())
