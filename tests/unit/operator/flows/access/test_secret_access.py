"""The operator reads Secrets by name: its own Secret of each job, and those that a FlinkJob names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock_operator.kube.access import REQUIRED
from penstock_operator.kube.cluster import SECRET
from penstock_operator.kube.watched import WATCHED
from penstock_operator.process.watches import build_settings
from tests.unit.operator.flows.access.test_rest_tls import certificate, with_tls
from tests.unit.operator.world import World
from tests.unit.operator.world.scenarios.scenario import deployed, gone, played, running, snapshotted, suspended

if TYPE_CHECKING:
    from penstock_operator.kube.cluster import Manifest

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "a2V5", "AWS_SECRET_ACCESS_KEY": "c2VjcmV0"}
NAMED = {"weather-secrets", "weather-s3", "weather-tls"}
RIGHTS = {"get": "get", "create": "create", "patch": "patch", "apply": "patch", "dry-run": "patch"}
"""The right that each request needs. An apply, dry or not, is a patch."""


def secret(name: str, namespace: str = "default") -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace, "labels": {"penstock.dev/job": "weather"}},
        "data": CREDENTIALS,
    }


def test_the_operator_reads_only_the_secrets_that_the_job_names() -> None:
    async def story(world: World) -> None:
        for manifest in (
            certificate(),
            secret("weather-s3"),
            secret("somebody-elses"),
            secret("weather-s3", "other"),
            secret("weather-secrets", "other"),
        ):
            world.cluster.put(manifest)
        job = with_tls()
        job["spec"]["storage"]["secretName"] = "weather-s3"
        job["spec"]["deletion"] = {"savepoint": True}
        await deployed(world, job)
        world.edit(job={"savepointTriggerNonce": 1})
        await world.until(lambda: running(world) and snapshotted("nonce")(world))
        world.edit(image="job:2")
        await world.until(lambda: running(world, image="job:2"))
        world.edit(job={"parallelism": 4})
        await world.until(lambda: running(world, parallelism=4))
        world.edit(job={"state": "suspended"})
        await world.until(lambda: suspended(world))
        world.edit(job={"state": "running"})
        await world.until(lambda: running(world))
        world.cluster.remove("FlinkJob", "default", "weather")
        await world.until(lambda: gone(world))
        await world.run(60)

    requests = played(story).cluster.secrets
    allowed = REQUIRED["", "secrets"]
    assert {RIGHTS[verb] for verb, _, _ in requests} <= allowed
    assert not allowed & {"list", "watch", "delete", "update"}
    assert {(namespace, name) for _, namespace, name in requests} == {("default", name) for name in NAMED}
    assert {name for verb, _, name in requests if verb != "get"} == {"weather-secrets"}


def test_no_watch_includes_secrets() -> None:
    assert SECRET not in WATCHED
    watched = str(list(build_settings("a=b").watching.label_selectors))
    assert "flinkjobs" in watched
    assert SECRET.plural not in watched
