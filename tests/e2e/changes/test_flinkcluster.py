"""A FlinkCluster with two FlinkJobs: start, upgrade of a job, rescale, upgrade of the cluster, deletion."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e import images
from tests.e2e.flinkjob import SMALL, Job
from tests.e2e.stack import BUCKET, SECRET, Stack, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.s3, pytest.mark.timeout(1500, func_only=True)]

CLUSTER = "shared"
PROGRAM = Path(images.__file__).parent / "job" / "job.py"
PATIENCE = 400.0


class SessionJob(Job):
    """A self-verifying FlinkJob that the FlinkCluster runs. Its manifest contains the program."""

    def __init__(self, stack: Stack, name: str, **wishes: Any) -> None:
        super().__init__(stack, name, parallelism=1, **wishes)
        spec = self.manifest["spec"]
        for field in ("image", "storage", "master", "worker"):
            del spec[field]
        files = {"job.py": PROGRAM.read_text(), "checked.py": images.CHECKED.read_text()}
        spec["cluster"] = CLUSTER
        spec["job"] |= {"entry": "job.py", "source": {"files": files}}
        spec["deletion"] = {"savepoint": True}
        spec["configuration"].pop("penstock.runner")

    def cluster(self) -> str:
        return str(self.status.get("running", {}).get("cluster"))


def manifest(image: str) -> dict[str, Any]:
    folder = f"s3://{BUCKET}/{CLUSTER}-{FOLDER}"
    return {
        "apiVersion": "penstock.dev/v1beta1",
        "kind": "FlinkCluster",
        "metadata": {"name": CLUSTER},
        "spec": {
            "image": image,
            "storage": {
                "checkpoints": f"{folder}/checkpoints",
                "savepoints": f"{folder}/savepoints",
                "secretName": SECRET,
            },
            "master": {"resources": SMALL},
            "worker": {"replicas": 2, "slots": 2, "resources": SMALL},
        },
    }


FOLDER = f"{time.time_ns():x}"  # the S3 server keeps the files of earlier runs


@pytest.fixture(scope="module")
def jobs(stack: Stack) -> Iterator[tuple[SessionJob, SessionJob]]:
    pair = (SessionJob(stack, "first"), SessionJob(stack, "second"))
    stack.cluster.apply(json.dumps(manifest(images.GOOD)))
    began = time.monotonic()
    for job in pair:
        job.apply()
    for job in pair:
        job.wait_until_running(seconds=PATIENCE)
    stack.report.append(
        f"from kubectl apply of a FlinkCluster and two FlinkJobs to both running: {time.monotonic() - began:.0f} s"
    )
    yield pair
    for job in pair:
        stack.cluster.kubectl("delete", "fj", job.name, "--ignore-not-found", "--wait=false")
    stack.cluster.kubectl("delete", "fc", CLUSTER, "--ignore-not-found", "--wait=false")


def status(stack: Stack) -> dict[str, Any]:
    return dict((stack.get("fc", CLUSTER) or {}).get("status") or {})


def described(stack: Stack) -> str:
    pods = stack.cluster.kubectl("get", "pods", "-o", "wide")
    return "\n---\n".join([json.dumps(status(stack), indent=1), pods, stack.operator_log()])


def test_the_life_of_a_cluster_with_two_jobs(stack: Stack, jobs: tuple[SessionJob, SessionJob]) -> None:
    first, second = jobs
    for job in jobs:
        job.wait_for_output()
        assert not job.pods("master"), "the job has no pods"
    wait_until(lambda: status(stack).get("jobs") == 2, lambda: described(stack), seconds=60)
    table = stack.cluster.kubectl("get", "fc", CLUSTER).splitlines()
    assert table[1].split()[:6] == [CLUSTER, "Ready", "True", "2/2", "4", "2"], table

    before = second.status["jobId"]
    began = time.time()
    first.edit({"job": {"args": first.args("--revision", "2")}})
    first.wait_for(phase="Running", seconds=PATIENCE)
    assert "/savepoint-" in first.status["running"]["restoredFrom"]["path"]
    first.wait_for_output()
    first.record_gap("upgrade of a job of a FlinkCluster through a savepoint", began, goal=5)
    assert second.status["jobId"] == before

    first.manifest["spec"]["job"]["args"] = first.args("--revision", "2")
    incarnation = first.status["jobId"]
    first.scale(2)
    wait_until(
        lambda: first.status.get("parallelism") == 2 and "operation" not in first.status,
        lambda: first.describe_missing("the rescale"),
        seconds=120,
    )
    assert first.status["jobId"] == incarnation, "the rescale is live"
    first.wait_for_output()

    began = time.time()
    stack.cluster.apply(json.dumps(manifest(images.BETTER)))
    wait_until(
        lambda: all(job.cluster().endswith("@2") for job in jobs) and status(stack).get("phase") == "Ready",
        lambda: first.describe_missing(f"the move\n{described(stack)}"),
        seconds=2 * PATIENCE,
    )
    for job in jobs:
        job.wait_until_running(seconds=PATIENCE)
        job.wait_for_output()
        job.record_gap(f"upgrade of a FlinkCluster, {job.name}", began, goal=5)
    former = f"penstock.dev/cluster-revision={CLUSTER}-1"
    wait_until(lambda: not stack.list("pods", former), lambda: described(stack), seconds=120)

    stack.cluster.kubectl("delete", "fc", CLUSTER, "--wait=false")
    wait_until(lambda: "default/first" in status(stack).get("message", ""), lambda: described(stack), seconds=30)
    first.delete(wait=PATIENCE)
    assert second.status["jobState"] == "RUNNING", "the cluster waits for its jobs"
    second.delete(wait=PATIENCE)
    wait_until(lambda: stack.get("fc", CLUSTER) is None, lambda: described(stack), seconds=120)
    for job in jobs:
        job.output.verify()
        assert len(stack.list("fsnap", f"penstock.dev/job={job.name}")) >= 2
    assert not stack.list("pods", f"penstock.dev/cluster={CLUSTER}")
