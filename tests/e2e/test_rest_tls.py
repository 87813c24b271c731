"""A FlinkJob that serves REST over TLS: operator, kubelet and people reach its master only with its certificate."""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from penstock.cli.kubectl import Kubectl
from penstock_operator.api.pod_template import MAIN_CONTAINER
from tests.certificates import Authority
from tests.e2e.changes.test_snapshots import completed, exists, snapshot
from tests.e2e.stack import wait_until
from tools.devcluster import binaries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.e2e.flinkjob import Job
    from tests.e2e.stack import Stack

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.s3,
    pytest.mark.timeout(900, func_only=True),
]

NAME = "over-tls"
SECRET = f"{NAME}-certificate"
SERVICE = f"{NAME}-rest.default.svc"
ON = {"rest.ssl.enabled": "true", "rest.ssl.secret-name": SECRET}
SYNC_S = 240.0
"""Seconds. The kubelet updates a changed Secret in running pods within about two minutes."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def put_certificate(stack: Stack, authority: Authority) -> str:
    """Create the Secret, or put another certificate of the same CA into it. Return the certificate."""
    certificate, key = authority.issue(SERVICE)
    values = {"tls.crt": certificate, "tls.key": key, "ca.crt": authority.pem}
    manifest = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": SECRET, "namespace": "default"},
        "type": "kubernetes.io/tls",
        "data": {name: base64.b64encode(value).decode() for name, value in values.items()},
    }
    stack.cluster.apply(json.dumps(manifest))
    return certificate.decode()


@pytest.fixture(scope="module")
def certified(stack: Stack, authority: Authority) -> Iterator[None]:
    """Keep the Secret for as long as the FlinkJob exists."""
    put_certificate(stack, authority)
    yield
    stack.cluster.kubectl("delete", "secret", SECRET, "--ignore-not-found")


@pytest.fixture
def job(certified: None, deploy: Callable[..., Job]) -> Job:
    """Start the job with a master that serves TLS."""
    job = deploy(NAME, parallelism=1, spec={"configuration": ON}).wait_until_running()
    job.wait_for_output()
    return job


@pytest.fixture
def environment(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `kubectl penstock` find this cluster."""
    for name, value in stack.cluster.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("KUBECTL", str(binaries.MODULE.bin_dir() / "kubectl"))


def penstock(*arguments: str) -> str:
    """Run `kubectl penstock`, and return its output."""
    command = [sys.executable, "-m", "penstock.cli.kubectl", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def served(local_port: int) -> str:
    """Return the certificate of a port of this machine, without verifying it."""
    return ssl.get_server_certificate(("127.0.0.1", local_port), timeout=20)


def same(pem: str, other: str) -> bool:
    return ssl.PEM_cert_to_DER_cert(pem) == ssl.PEM_cert_to_DER_cert(other)


def test_the_operator_and_the_kubelet_reach_the_master_over_tls(stack: Stack, job: Job) -> None:
    assert job.status["running"]["restTls"] == SECRET
    (pod,) = job.pods("master")
    (container,) = [c for c in pod["spec"]["containers"] if c["name"] == MAIN_CONTAINER]
    assert container["readinessProbe"]["httpGet"]["scheme"] == "HTTPS"
    (status,) = [c for c in pod["status"]["containerStatuses"] if c["name"] == MAIN_CONTAINER]
    assert (status["ready"], status["restartCount"]) == (True, 0)
    service = stack.get("service", f"{NAME}-rest") or {}
    assert service["spec"]["ports"][0]["appProtocol"] == "https"
    wait_until(
        lambda: job.status.get("lastCheckpoint"), lambda: job.describe_missing("a checkpoint in the status"), seconds=90
    )
    job.wait_for_output()


@pytest.mark.usefixtures("environment")
def test_savepoints_are_taken_over_tls(stack: Stack, job: Job) -> None:
    snapshot(stack, f"{NAME}-by-hand", job.name, savepoint={})
    assert exists(stack, completed(stack, f"{NAME}-by-hand"))
    assert "RUNNING" in penstock("info", job.name)
    assert penstock("checkpoint", job.name).startswith("Checkpoint ")
    path = penstock("savepoint", job.name).strip()
    assert path.startswith(f"{job.folder}/savepoints/")
    assert exists(stack, path)
    job.wait_for_output()


@pytest.mark.usefixtures("environment")
def test_a_renewed_certificate_is_served_without_a_restart(stack: Stack, job: Job, authority: Authority) -> None:
    before, pods = job.status["jobId"], job.pod_names("master")
    renewed = put_certificate(stack, authority)
    with Kubectl("default").forwarded(f"{NAME}-rest", 8081) as port:
        wait_until(
            lambda: same(served(port), renewed), lambda: job.describe_missing("the renewed certificate"), seconds=SYNC_S
        )
    assert job.savepoint(1).startswith(f"{job.folder}/savepoints/")
    assert (job.status["jobId"], job.pod_names("master")) == (before, pods)
    job.wait_until_running()
    job.wait_for_output()


def test_upgrades_switch_tls_off_and_on_without_data_loss(job: Job) -> None:
    first = job.status["jobId"]
    job.patch(configuration={"rest.ssl.enabled": "false"})
    job.wait_until_running()
    second = job.status["jobId"]
    assert second != first
    assert not job.status["running"].get("restTls")
    assert job.status["running"]["restoredFrom"]["path"].startswith(f"{job.folder}/savepoints/")
    job.wait_for_output()
    job.patch(configuration={"rest.ssl.enabled": "true"})
    job.wait_until_running()
    assert job.status["jobId"] != second
    assert job.status["running"]["restTls"] == SECRET
    job.wait_for_output()
