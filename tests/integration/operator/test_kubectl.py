"""The behaviour of a real API server for people: `kubectl explain`, columns, refusals, `apply --server-side`, `wait`, `scale`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock_operator.kube.cluster import FLINKSNAPSHOT
from tests.integration.operator.sim import NAME
from tools.devcluster.cluster import KubectlFailed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from tests.integration.operator.sim import Site
    from tools.devcluster import Cluster

    Play = Callable[[Callable[[Site], Awaitable[None]]], None]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

SPACE = "kubectl"


@pytest.fixture(scope="module")
def control(control_plane: Cluster) -> Iterator[Cluster]:
    control_plane.kubectl("create", "namespace", SPACE)
    yield control_plane
    control_plane.kubectl("delete", "namespace", SPACE, "--wait=false")


def flinkjob(name: str = NAME, **parts: Any) -> dict[str, Any]:
    """Return a FlinkJob. `parts` are merged into sections of its spec."""
    spec: dict[str, Any] = {
        "image": "job:1",
        "job": {"entry": "job.py", "parallelism": 2},
        "storage": {"checkpoints": "s3://bucket/checkpoints", "savepoints": "s3://bucket/savepoints"},
    }
    for key, value in parts.items():
        spec[key] = {**spec.get(key, {}), **value} if isinstance(value, dict) else value
    return {"apiVersion": "penstock.dev/v1beta1", "kind": "FlinkJob", "metadata": {"name": name}, "spec": spec}


def flinksnapshot(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "penstock.dev/v1beta1",
        "kind": "FlinkSnapshot",
        "metadata": {"name": name},
        "spec": {"jobRef": {"name": NAME}, **spec},
    }


def flinkcluster(name: str, **worker: Any) -> dict[str, Any]:
    return {
        "apiVersion": "penstock.dev/v1beta1",
        "kind": "FlinkCluster",
        "metadata": {"name": name},
        "spec": {
            "image": "job:1",
            "storage": {"checkpoints": "s3://bucket/checkpoints", "savepoints": "s3://bucket/savepoints"},
            "worker": worker,
        },
    }


def apply(control: Cluster, manifest: dict[str, Any], *options: str) -> str:
    return control.kubectl("-n", SPACE, "apply", "--server-side", "-f", "-", *options, stdin=json.dumps(manifest))


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("flinkjob", "stateful streaming job in Python that runs on Spark"),
        ("fj.spec.job.upgradeMode", "uses the newest complete checkpoint"),
        ("flinkjob.spec.job.parallelism", "`kubectl scale` sets this field"),
        ("flinkjob.spec.storage.secretName", "AWS_ACCESS_KEY_ID"),
        ("flinkjob.spec.rollback.after", "Time within which a new revision must become stable"),
        ("flinkjob.status.operation.step", "FIELD: step"),
        ("flinkjob.status.conditions", "reason"),
        ("fsnap.spec.savepoint.disposeOnDelete", "FIELD: disposeOnDelete"),
    ],
)
def test_explain_reads_like_documentation(control: Cluster, path: str, words: str) -> None:
    text = control.kubectl("explain", path)
    assert words in " ".join(text.split())
    assert "<empty>" not in text, "a field has no description"


def test_every_field_is_explained(control: Cluster) -> None:
    for kind in ("flinkjob", "flinksnapshot"):
        for part in ("spec", "status"):
            assert "<empty>" not in control.kubectl("explain", f"{kind}.{part}")


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "unknown-field": (flinkjob(job={"paralellism": 3}), "paralellism"),
    "parallelism": (flinkjob(job={"parallelism": 200}), "parallelism must not be greater than maxParallelism"),
    "parallelism-zero": (flinkjob(job={"parallelism": 0}), "spec.job.parallelism"),
    "no-savepoint": (flinkjob(job={"savepointRedeployNonce": 1}), "set initialSavepointPath"),
    "upgrade-mode": (
        flinkjob(job={"upgradeMode": "magic"}),
        'supported values: "savepoint", "last-state", "stateless"',
    ),
    "duration": (flinkjob(rollback={"after": "soon"}), "spec.rollback.after"),
    "overflowing-duration": (flinkjob(rollback={"after": "99999999999h"}), "spec.rollback.after"),
    "storage": (flinkjob(storage={"checkpoints": "/tmp/here"}), "spec.storage.checkpoints"),
    "storage-of-hadoop": (flinkjob(storage={"checkpoints": "hdfs://name/checkpoints"}), "spec.storage.checkpoints"),
    "both-clocks": (
        flinkjob(snapshots={"periodic": {"interval": "1h", "cron": "0 3 * * *"}}),
        "exactly one of interval and cron",
    ),
    "no-clock": (flinkjob(snapshots={"periodic": {"type": "savepoint"}}), "exactly one of interval and cron"),
    "name": (flinkjob("1st-job"), "must start with a letter"),
    "long-name": (flinkjob("a" * 46), "at most 45"),
    "image": (flinkjob(image=""), "spec.image"),
    "standbys": (flinkjob(master={"replicas": 3}), "spec.master.replicas"),
    "autoscaling-limits": (flinkjob(autoscaling={"min": 3, "max": 2}), "min must not be greater than max"),
    "autoscaling-max": (flinkjob(autoscaling={"max": 200}), "must not be greater than job.maxParallelism"),
    "autoscaling-memory": (flinkjob(autoscaling={"memory": {"mode": "apply"}}), "mode apply needs max"),
    "autoscaling-memory-text": (
        flinkjob(autoscaling={"memory": {"mode": "apply", "max": "much"}}),
        "spec.autoscaling.memory.max",
    ),
    "worker-limits": (flinkcluster("limits", autoscaling={"min": 3, "max": 2}), "min must not be greater than max"),
    "worker-max": (flinkcluster("limits", autoscaling={"min": 3}), "spec.worker.autoscaling.max"),
    "both-kinds": (flinksnapshot("a", savepoint={}, checkpoint={}), "exactly one of savepoint and checkpoint"),
    "no-kind": (flinksnapshot("a"), "exactly one of savepoint and checkpoint"),
}


@pytest.mark.parametrize("case", BAD)
def test_the_api_server_refuses_invalid_specs(control: Cluster, case: str) -> None:
    manifest, words = BAD[case]
    with pytest.raises(KubectlFailed) as refused:
        apply(control, manifest)
    assert words.lower() in refused.value.stderr.lower()


def test_immutable_fields_cannot_be_changed(control: Cluster) -> None:
    apply(control, flinkjob("fixed"))
    for changed, words in (
        (flinkjob("fixed", job={"maxParallelism": 256}), "cannot be changed"),
        (flinkjob("fixed", storage={"checkpoints": "s3://bucket/elsewhere"}), "cannot be changed"),
    ):
        with pytest.raises(KubectlFailed, match=words):
            apply(control, changed)
    apply(control, flinksnapshot("once", savepoint={}))
    with pytest.raises(KubectlFailed, match="cannot be changed"):
        apply(control, flinksnapshot("once", checkpoint={}), "--force-conflicts")
    with pytest.raises(KubectlFailed, match="maxParallelism"):
        control.kubectl("-n", SPACE, "scale", "fj/fixed", "--replicas=129")


def test_only_the_autoscaler_changes_what_it_sets(control: Cluster) -> None:
    sized = flinkcluster("sized", replicas=2, autoscaling={"max": 4})
    apply(control, sized)
    apply(
        control, flinkjob("loaded", autoscaling={"enabled": True, "max": 4, "memory": {"mode": "apply", "max": "2Gi"}})
    )
    for name, words in (("fc/sized", "worker.autoscaling sets"), ("fj/loaded", "the autoscaler sets the parallelism")):
        with pytest.raises(KubectlFailed, match=words):
            control.kubectl("-n", SPACE, "scale", name, "--replicas=3")
    with pytest.raises(KubectlFailed, match=r"worker\.autoscaling sets"):
        apply(control, flinkcluster("sized", replicas=3, autoscaling={"max": 4}), "--force-conflicts")
    apply(control, flinkcluster("sized", replicas=2, autoscaling={"max": 8}), "--force-conflicts")
    apply(
        control, flinkjob("loaded", autoscaling={"enabled": True, "max": 4, "mode": "recommend"}), "--force-conflicts"
    )
    control.kubectl("-n", SPACE, "scale", "fj/loaded", "--replicas=3")
    apply(control, flinkcluster("sized", replicas=3), "--force-conflicts")
    control.kubectl("-n", SPACE, "scale", "fc/sized", "--replicas=4")


def test_defaults_are_stored(control: Cluster) -> None:
    apply(control, flinkjob("plain"))
    spec = json.loads(control.kubectl("-n", SPACE, "get", "fj", "plain", "-o", "json"))["spec"]
    assert spec["job"]["maxParallelism"] == 128
    assert spec["job"]["upgradeMode"] == "savepoint"
    assert spec["rollback"] == {"enabled": True, "after": "5m"}
    assert spec["imagePullPolicy"] == "IfNotPresent"


def test_kubectl_shows_names_and_columns(control: Cluster) -> None:
    apply(control, flinkjob("columns"))
    header = control.kubectl("-n", SPACE, "get", "fj").splitlines()[0].split()
    assert header == ["NAME", "STATE", "READY", "PARALLELISM", "CHECKPOINT", "RESTARTS", "AGE"]
    wide = control.kubectl("-n", SPACE, "get", "flinkjobs", "-o", "wide").splitlines()[0].split()
    assert wide == [*header, "WANTED", "RESTORED-FROM", "IMAGE", "MESSAGE"]
    apply(control, flinksnapshot("columns", savepoint={}))
    snapshots = control.kubectl("-n", SPACE, "get", "fsnap").splitlines()[0].split()
    assert snapshots == ["NAME", "JOB", "STATE", "COMPLETED", "PATH", "AGE"]
    everything = control.kubectl("-n", SPACE, "get", "streaming", "-o", "name")
    assert "flinkjob.penstock.dev/columns" in everything
    assert "flinksnapshot.penstock.dev/columns" in everything


def test_a_job_is_applied_awaited_scaled_and_applied_again(play: Play) -> None:
    async def scenario(site: Site) -> None:
        site.start_operator()
        manifest = json.dumps(site.manifest())
        site.kubectl("apply", "--server-side", "-f", "-", stdin=manifest)
        await asyncio.to_thread(site.kubectl, "wait", "fj/weather", "--for=condition=Ready", "--timeout=240s")
        row = site.kubectl("get", "fj", NAME).splitlines()[1].split()
        assert row[:4] == [NAME, "Running", "True", "2"]

        before = await site.job() or {}
        site.kubectl("apply", "--server-side", "-f", "-", stdin=manifest)
        after = await site.job() or {}
        assert after["metadata"]["generation"] == before["metadata"]["generation"], "no drift"
        owners = {m["manager"] for m in after["metadata"]["managedFields"] if "f:spec" in m.get("fieldsV1", {})}
        assert owners == {"kubectl"}, "the operator must own no field of the spec"

        site.kubectl("scale", "fj/weather", "--replicas=3")
        await site.until(lambda: site.running(parallelism=3), "the job is scaled")
        scale = json.loads(site.kubectl("get", "--raw", scale_path(site)))
        assert (scale["spec"]["replicas"], scale["status"]["replicas"]) == (3, 3)
        selector = scale["status"]["selector"]
        pods = site.kubectl("get", "pods", "-l", selector, "-o", "name").split()
        assert len(pods) == 3, "the selector must match the workers"

        site.kubectl("apply", "-f", "-", stdin=json.dumps(named(site, "before-release")))
        await asyncio.to_thread(site.kubectl, "wait", "fsnap/before-release", "--for=condition=Ready", "--timeout=240s")
        (found,) = await site.cluster.list(FLINKSNAPSHOT, site.namespace)
        folder = site.masters.savepoints[0].removeprefix("file://")
        assert found["status"]["path"] == site.masters.savepoints[0]
        site.kubectl("delete", "fsnap/before-release", "--timeout=240s")
        await site.until(lambda: removed(folder), "its files are gone")

    play(scenario)


def scale_path(site: Site) -> str:
    return f"/apis/penstock.dev/v1beta1/namespaces/{site.namespace}/flinkjobs/{NAME}/scale"


def named(site: Site, name: str) -> dict[str, Any]:
    manifest = flinksnapshot(name, savepoint={})
    manifest["metadata"]["namespace"] = site.namespace
    return manifest


async def removed(folder: str) -> bool:
    return not (Path(folder) / "_metadata").exists()
