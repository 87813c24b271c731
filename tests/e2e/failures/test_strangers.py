"""Foreign objects under a job's names, and foreign changes to a job's objects: a webhook, a person with `kubectl scale`."""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.stack import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.e2e.flinkjob import Job
    from tests.e2e.stack import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.s3, pytest.mark.timeout(900, func_only=True)]

NAME = "taken"
THEIRS: list[dict[str, Any]] = [
    {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": f"{NAME}-secrets"}, "stringData": {"of": "somebody"}},
    {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": f"{NAME}-rest"},
        "spec": {"selector": {"app": "another"}, "ports": [{"port": 80}]},
    },
    {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": f"{NAME}-master"}},
    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{NAME}-parallelism"}, "data": {"of": "somebody"}},
]


@pytest.mark.long
def test_foreign_objects_are_neither_adopted_nor_deleted(stack: Stack, deploy: Callable[..., Job]) -> None:
    """Each of these objects prevents the start of the job until its owner removes it."""
    for manifest in THEIRS:
        stack.cluster.kubectl("create", "-f", "-", stdin=json.dumps(manifest))

    def theirs() -> list[Any]:
        found = [stack.get(m["kind"], m["metadata"]["name"]) or {} for m in THEIRS]
        return [(m["metadata"]["uid"], m["metadata"].get("labels"), m.get("data"), m.get("spec")) for m in found]

    before = theirs()
    job = deploy(NAME, parallelism=1)
    message = job.wait_until_stalled("NameTaken")
    assert "was not created for this FlinkJob. The operator does not change it" in message
    assert not job.pods("master")
    assert theirs() == before
    job.delete(wait=60)
    assert theirs() == before
    job.apply()
    left = {f"{m['kind']} {m['metadata']['name']}": m for m in THEIRS}
    while left:
        wait_until(
            lambda: _named(job, left),
            lambda: job.describe_missing("a message that names one of the remaining objects"),
            seconds=120,
        )
        name = _named(job, left)
        assert not job.pods("master")
        manifest = left.pop(name)
        stack.cluster.kubectl("delete", manifest["kind"], manifest["metadata"]["name"])
    job.wait_until_running()
    job.wait_for_output()


def _named(job: Job, left: dict[str, dict[str, Any]]) -> str:
    message = job.wait_until_stalled("NameTaken")
    return next((name for name in left if name in message), "")


class Injector:
    """A mutating admission webhook for the Deployments of one job. It adds a variable, and changes a field that the operator sets."""

    def __init__(self, folder: Path, host: str) -> None:
        key, self.certificate = folder / "key.pem", folder / "cert.pem"
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=injector"]
        command += ["-addext", f"subjectAltName=IP:{host}", "-keyout", str(key), "-out", str(self.certificate)]
        subprocess.run(command, check=True, capture_output=True)
        self._server = ThreadingHTTPServer((host, 0), _Answers)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://{host}:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def configuration(self, job: str) -> dict[str, Any]:
        rule = {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"]}
        bundle = base64.b64encode(self.certificate.read_bytes()).decode()
        webhook = {
            "name": "injector.example.com",
            "clientConfig": {"url": self.url, "caBundle": bundle},
            "rules": [{**rule, "resources": ["deployments"]}],
            "objectSelector": {"matchLabels": {"penstock.dev/job": job}},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "reinvocationPolicy": "Never",
        }
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "injector"},
            "webhooks": [webhook],
        }

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Answers(BaseHTTPRequestHandler):
    def do_POST(self) -> None:  # the base class defines the name
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["request"]
        pod = request["object"]["spec"]["template"]["spec"]
        patch: list[dict[str, Any]] = [
            {"op": "replace", "path": "/spec/template/spec/terminationGracePeriodSeconds", "value": 7}
        ]
        if not any(e["name"] == "INJECTED" for e in pod["containers"][0]["env"]):
            variable = {"name": "INJECTED", "value": "1"}
            patch.append({"op": "add", "path": "/spec/template/spec/containers/0/env/-", "value": variable})
        encoded = base64.b64encode(json.dumps(patch).encode()).decode()
        answer = {"uid": request["uid"], "allowed": True, "patchType": "JSONPatch", "patch": encoded}
        body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def injected(stack: Stack, tmp_path: Path) -> Iterator[str]:
    """Yield the name of a job whose Deployments a webhook changes at every write."""
    injector = Injector(tmp_path, stack.cluster.host_address)
    stack.cluster.apply(json.dumps(injector.configuration("injected")))
    yield "injected"
    stack.cluster.kubectl("delete", "mutatingwebhookconfiguration", "injector")
    injector.close()


@pytest.mark.long
def test_fields_that_a_webhook_always_changes_are_reported_and_left(
    stack: Stack, deploy: Callable[..., Job], injected: str
) -> None:
    """The operator writes the Deployments only now and then, without a hot loop, and all other work continues."""
    job = deploy(injected, parallelism=1).wait_until_running()
    job.wait_for_output()
    wait_until(
        lambda: any(e.startswith("RepairReverted: ") for e in job.events()),
        lambda: job.describe_missing("an event about it"),
        seconds=120,
    )
    assert "terminationGracePeriodSeconds" in next(e for e in job.events() if e.startswith("RepairReverted: "))
    (worker,) = job.pods("worker")
    assert {"name": "INJECTED", "value": "1"} in worker["spec"]["containers"][0]["env"]
    before, pods = writes(stack), job.pod_names("master") | job.pod_names("worker")
    began = time.monotonic()
    assert job.savepoint(1), "steps after the repair are also done"
    job.wait_for_output()
    time.sleep(max(0.0, 30 - (time.monotonic() - began)))
    made, minutes = writes(stack) - before, (time.monotonic() - began) / 60
    stack.report.append(f"a webhook that reverts the operator's changes: {made / minutes:.0f} writes a minute")
    assert made / minutes < 60, f"{made} writes in {minutes:.1f} minutes"
    assert job.pod_names("master") | job.pod_names("worker") == pods
    job.delete()


def writes(stack: Stack) -> int:
    """Return the number of the operator's writes since its start, without those of its Lease."""
    (pod,) = stack.operators()
    page = f"/api/v1/namespaces/penstock-system/pods/{pod}:8085/proxy/metrics"
    lines = stack.cluster.kubectl("get", "--raw", page).splitlines()
    found = [line for line in lines if line.startswith("penstock_api_requests_total{") and 'kind="Lease"' not in line]
    verbs = [f'verb="{verb}"' for verb in ("apply", "post", "put", "patch", "delete")]
    return sum(int(float(line.rpartition(" ")[2])) for line in found if any(verb in line for verb in verbs))


def test_a_manually_added_second_master_is_removed(stack: Stack, deploy: Callable[..., Job]) -> None:
    job = deploy("scaled", parallelism=1).wait_until_running()
    job.wait_for_output()
    before = job.status["jobId"]
    stack.cluster.kubectl("scale", f"deploy/{job.name}-master", "--replicas=2")

    def is_repaired() -> bool:
        found = stack.get("deployment", f"{job.name}-master") or {}
        return bool(found["spec"]["replicas"] == 1 and len(job.pods("master")) == 1)

    wait_until(is_repaired, lambda: job.describe_missing("one master"), seconds=90)
    wait_until(
        lambda: any(e.startswith("Repaired: the master Deployment (spec.replicas)") for e in job.events()),
        lambda: job.describe_missing("an event"),
        seconds=30,
    )
    job.wait_until_running()
    job.wait_for_output()
    assert job.status["jobId"] == before
