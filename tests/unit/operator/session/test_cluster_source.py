"""The spec of a job in a FlinkCluster: permissions of namespaces, the revision, and the program that is sent."""

from __future__ import annotations

import asyncio
import io
import zipfile
from typing import Any

import pytest

from penstock_operator.api.flinkcluster import FlinkClusterSpec
from penstock_operator.api.status.flinkjob_status import parse_status
from penstock_operator.api.validation import parse_spec
from penstock_operator.errors import SpecError
from penstock_operator.reconcile.cluster_source import ClusterSource
from penstock_operator.resources.flinkcluster import controller_revision, revision_digest
from penstock_operator.resources.names import Owner
from penstock_operator.resources.submission import bundle
from tests.unit.operator.world import World
from tests.unit.operator.world.session import flinkcluster, session_job


def world_with_cluster(**spec: Any) -> World:
    world = World()
    manifest = flinkcluster(**spec)
    manifest["status"] = {"revision": 1}
    world.cluster.put(manifest)
    revision = controller_revision("default", "shared", "uid", 1, FlinkClusterSpec.model_validate(manifest["spec"]), 1)
    world.cluster.put(revision)
    return world


def resolved(world: World, namespace: str, cluster: str, status: dict[str, Any] | None = None) -> dict[str, Any]:
    source = ClusterSource(world.cluster, namespace, "weather")
    raw = session_job(cluster=cluster)["spec"]
    return dict(asyncio.run(source.with_cluster(raw, parse_status(status or {}))))


def test_a_job_gets_the_fields_of_the_revision_and_overrides_its_configuration() -> None:
    world = world_with_cluster(configuration={"a.b": 1, "execution.checkpointing.interval": "1m"})
    spec = parse_spec(resolved(world, "default", "shared"))
    assert spec.cluster == "default/shared@1"
    assert (spec.image, spec.storage.checkpoints) == ("engine:1", "s3://bucket/checkpoints")
    assert spec.configuration == {"a.b": 1, "execution.checkpointing.interval": "10s"}


def test_another_namespace_needs_the_selector_of_the_cluster() -> None:
    with pytest.raises(SpecError, match="does not allow jobs of the namespace team-a"):
        resolved(world_with_cluster(), "team-a", "default/shared")
    wanted = {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["team-a"]}]}
    world = world_with_cluster(jobs={"namespaceSelector": wanted})
    assert resolved(world, "team-a", "default/shared")["cluster"] == "default/shared@1"
    with pytest.raises(SpecError, match="does not allow jobs of the namespace team-b"):
        resolved(world, "team-b", "default/shared")


def test_labels_of_the_namespace_count() -> None:
    world = world_with_cluster(jobs={"namespaceSelector": {"matchLabels": {"streams": "yes"}}})
    with pytest.raises(SpecError, match="does not allow"):
        resolved(world, "team-a", "default/shared")
    meta = {"name": "team-a", "namespace": "", "labels": {"streams": "yes"}}
    world.cluster.put({"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
    assert resolved(world, "team-a", "default/shared")["image"] == "engine:1"


def test_a_running_job_stays_in_its_revision_until_it_is_its_turn() -> None:
    world = world_with_cluster()
    newer = flinkcluster(image="engine:2")
    world.cluster.put(
        controller_revision("default", "shared", "uid", 2, FlinkClusterSpec.model_validate(newer["spec"]), 2)
    )
    running = {
        "revision": "weather-1",
        "generation": 1,
        "jobId": "a",
        "image": "engine:1",
        "parallelism": 1,
        "startedAt": "2026-01-01T12:00:00Z",
        "restoredFrom": {"kind": "Fresh", "reason": "test"},
        "cluster": "default/shared@1",
    }
    world.cluster.edit("FlinkCluster", "default", "shared", lambda m: m.update(status={"revision": 2}))
    assert resolved(world, "default", "shared", {"running": running})["cluster"] == "default/shared@1"
    assert resolved(world, "default", "shared")["cluster"] == "default/shared@2"
    moving = {"revision": 2, "moving": "default/weather"}
    world.cluster.edit("FlinkCluster", "default", "shared", lambda m: m.update(status=moving))
    assert resolved(world, "default", "shared", {"running": running})["image"] == "engine:2"


@pytest.mark.parametrize(
    ("job", "words"),
    [
        ({"entry": "job.py"}, "a FlinkCluster runs only programs in job.script"),
        ({"entry": "job.py", "source": {"image": f"x/y@sha256:{'a' * 64}"}}, "source.url or source.git"),
    ],
)
def test_a_program_outside_of_the_manifest_is_refused(job: dict[str, Any], words: str) -> None:
    source = ClusterSource(world_with_cluster().cluster, "default", "weather")
    with pytest.raises(SpecError, match=words):
        asyncio.run(source.with_cluster({"cluster": "shared", "job": job}, parse_status({})))


def test_a_key_that_only_the_cluster_can_set_is_refused() -> None:
    raw = {**session_job()["spec"], "configuration": {"taskmanager.memory.process.size": "4g", "a.b": 1}}
    source = ClusterSource(world_with_cluster().cluster, "default", "weather")
    with pytest.raises(SpecError, match="only the FlinkCluster can set this key") as refused:
        asyncio.run(source.with_cluster(raw, parse_status({})))
    assert [problem.field for problem in refused.value.problems] == [
        "spec.configuration['taskmanager.memory.process.size']"
    ]


def test_equal_programs_give_equal_archives() -> None:
    job = {"entry": "main.py", "source": {"files": {"main.py": "print(1)", "other.py": ""}}, "requirements": ["six"]}
    raw = {**session_job()["spec"], "job": {**session_job()["spec"]["job"], "script": None, **job}}
    source = ClusterSource(world_with_cluster().cluster, "default", "weather")
    spec = parse_spec(asyncio.run(source.with_cluster(raw, parse_status({}))))
    name, content = bundle(Owner("default", "weather", ""), spec)
    assert (name, content) == bundle(Owner("default", "weather", ""), spec)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.namelist() == ["main.py", "other.py", "requirements.txt"]
        assert archive.read("requirements.txt") == b"six\n"


def test_only_fields_of_pods_make_another_revision() -> None:
    def digest(**spec: Any) -> str:
        return revision_digest(FlinkClusterSpec.model_validate(flinkcluster(**spec)["spec"]))

    same = digest()
    assert digest(worker={"replicas": 5, "slots": 2}) == same
    assert digest(deletion={"jobs": "Force"}, jobs={"namespaceSelector": {}}) == same
    assert digest(worker={"replicas": 2, "slots": 3}) != same
    assert digest(image="engine:2") != same
