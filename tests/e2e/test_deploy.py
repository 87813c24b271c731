"""Deployment from `kubectl apply` to output on S3, and what people see on the way."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import fsspec
import pytest

from tests.e2e import images
from tests.e2e.flinkjob import Job
from tests.e2e.stack import BUCKET, SECRET, Stack, wait_until
from tools.demo import compare
from tools.devcluster import binaries

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.s3, pytest.mark.timeout(900, func_only=True)]


def test_job_is_deployed_and_its_output_is_exactly_once(stack: Stack, deploy: Callable[..., Job]) -> None:
    job = deploy("plain")
    took = job.wait_for(phase="Running")
    stack.report.append(f"from kubectl apply to Ready: {took:.0f} s")
    job.wait_for_output()
    shown = job.table(wide=True)
    assert (shown["STATE"], shown["READY"], shown["PARALLELISM"]) == ("Running", "True", "2"), shown
    assert shown["RESTARTS"] == "0", shown
    assert shown["IMAGE"] == images.GOOD, shown
    # Workers process records as soon as they are registered. The kubelet checks their readiness every five seconds.
    job.wait_for(phase="Running", workers=2, seconds=30)
    status = job.status
    assert {c["type"]: c["status"] for c in status["conditions"]} == {
        "Ready": "True",
        "Reconciling": "False",
        "Stalled": "False",
        "Progressing": "True",
        "Running": "True",
        "CheckpointHealthy": "True",
    }
    wait_until(
        lambda: job.status.get("lastCheckpoint"), lambda: job.describe_missing("a checkpoint in the status"), seconds=90
    )
    assert job.status["lastCheckpoint"]["path"].startswith(f"{job.folder}/checkpoints/{status['jobId']}/chk-")
    for kind in ("deployments", "services", "configmaps", "secrets", "serviceaccounts", "networkpolicies", "pdb"):
        assert stack.list(kind, "penstock.dev/job=plain"), kind


def test_pods_are_restricted(stack: Stack, deploy: Callable[..., Job]) -> None:
    """Use the API server's check of pod security."""
    job = deploy("plain").wait_until_running()
    pods = [*job.pods("master"), *job.pods("worker")]
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "restricted", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
    }
    stack.cluster.apply(json.dumps(namespace))
    wait_until(lambda: stack.get("serviceaccount", "default", "restricted"), "no ServiceAccount", seconds=60)
    for pod in pods:
        spec = {k: v for k, v in pod["spec"].items() if k not in ("serviceAccountName", "serviceAccount", "nodeName")}
        meta = {"name": pod["metadata"]["name"], "namespace": "restricted"}
        manifest = json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
        stack.cluster.kubectl("create", "--dry-run=server", "-f", "-", stdin=manifest)
    stack.cluster.kubectl("delete", "namespace", "restricted", "--wait=false")


def test_people_inspect_a_job_by_its_name(stack: Stack, deploy: Callable[..., Job]) -> None:
    """Run `kubectl penstock`, and show the work of the Python workers of restricted pods."""
    deploy("plain").wait_until_running()

    def penstock(*arguments: str) -> str:
        command = [sys.executable, "-m", "penstock.cli.kubectl", *arguments]
        environment = stack.cluster.environment() | {"KUBECTL": str(binaries.MODULE.bin_dir() / "kubectl")}
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "RUNNING" in penstock("info", "plain")
    assert '"MainThread" (vertex ' in penstock("stacks", "plain")
    vertices = [line for line in penstock("flamegraph", "plain", "--vertex", "sums", "-s", "2").splitlines() if line]
    assert any("penstock.taskmanager." in line for line in vertices)
    assert penstock("checkpoint", "plain").startswith("Checkpoint ")
    assert penstock("savepoint", "plain").startswith("s3://")


def test_the_example_of_the_repository_runs(stack: Stack, tmp_path: Path) -> None:
    """Run it unchanged, except for the names of bucket and Secret. It is bounded, so it finishes."""
    manifest = (images.ROOT / "examples" / "airport_weather" / "flinkjob.yaml").read_text()
    for before, after in (("s3://penstock/", f"s3://{BUCKET}/"), ("penstock-s3", SECRET)):
        assert before in manifest
        manifest = manifest.replace(before, after)
    job = Job(stack, "airport-weather")
    stack.cluster.apply(manifest)
    job.wait_for(phase="Finished")
    assert job.condition("Ready")["status"] == "True"
    wait_until(lambda: not job.pods("master"), lambda: job.describe_missing("the pods' end"), seconds=60)
    fs, path = fsspec.core.url_to_fs(f"s3://{BUCKET}/airport-weather/output", **stack.s3.storage_options())
    fs.get(path, str(tmp_path / "output"), recursive=True)
    same, found = compare(str(tmp_path / "output"))
    assert same, found
    job.delete()
