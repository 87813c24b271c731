"""Images of the previous version accept the pods and configurations of this operator.

After an upgrade of the operator, they start again in recoveries, rollbacks, resumes, and edits of other fields than the
image.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.common.config.options import WORKER_HEALTH_PORT
from penstock.common.configuration import Configuration
from penstock.jobmanager.cluster.worker_health import PORT_VARIABLE, WorkerHealth, health_port
from penstock_operator.resources.configuration import configuration
from penstock_operator.resources.deployments import check_pod, master_args
from penstock_operator.resources.probes import HEALTH_VARIABLE, KNOWN_VARIABLE, worker_probe_command
from tests.unit.operator.contexts import make_spec
from tests.unit.operator.resources.test_resources import LOST, OWNER, incarnation, main_container, pods
from tests.unit.worker_answers import ProbeAnswers, answering

MEMORY = {"resources": {"limits": {"memory": "2Gi"}}}
ARGUMENTS = {
    "master": {"--entry", "--restore", "--job-id", "--parallelism", "--allow-non-restored-state"},
    "worker": {"--master", "--slots"},
    "check": {"--entry", "--parallelism", "--against", "--allow-non-restored-state", "--format"},
}
"""The arguments of the engine of version 0.1.0."""


@pytest.fixture
def answers() -> ProbeAnswers:
    return ProbeAnswers()


@pytest.fixture
def port(answers: ProbeAnswers) -> Iterator[int]:
    with answering(answers) as server:
        yield server.port


def probe(port: int, path: str, **environment: str) -> subprocess.CompletedProcess[str]:
    own = {key: value for key, value in os.environ.items() if key != KNOWN_VARIABLE}
    return subprocess.run(worker_probe_command(port, path), env={**own, **environment}, capture_output=True, text=True)


def test_the_operator_adds_no_key_that_an_older_engine_refuses() -> None:
    spec = make_spec(configuration={"penstock.epoch.target": "2s"}, master=MEMORY, worker=MEMORY)
    refused = {key for key in configuration(spec) if key.startswith("penstock.")}
    assert refused == {"penstock.epoch.target"}, "pass it through the environment, as PENSTOCK_WORKER_HEALTH_PORT is"


def test_the_operator_passes_no_argument_that_the_previous_engine_lacks() -> None:
    spec = make_spec(job={"allowNonRestoredState": ["dedup"]})
    check = check_pod(OWNER, spec, "weather-1", "op-1", "s3://bucket/savepoint", LOST)
    _, worker = pods(spec)[:2]
    commands = [master_args(incarnation(spec)), main_container(worker)["args"], check["spec"]["containers"][0]["args"]]
    for role, *rest in commands:
        own = rest[: rest.index("--")] if "--" in rest else rest
        assert {part for part in own if part.startswith("--")} <= ARGUMENTS[role], role


def test_probes_of_an_older_image_without_a_probe_server_succeed() -> None:
    server = WorkerHealth(0, lambda: True, lambda: True)
    free = server.port
    server._server.server_close()
    for path in ("/healthz", "/readyz"):
        assert probe(free, path).returncode == 0
        done = probe(free, path, **{KNOWN_VARIABLE: "worker"})
        assert (done.returncode, done.stderr) == (1, "nobody answers\n")


def test_a_worker_with_probes_is_checked_by_its_answers(port: int, answers: ProbeAnswers) -> None:
    assert (probe(port, "/healthz").returncode, probe(port, "/readyz").returncode) == (0, 1)
    answers.ready = True
    assert probe(port, "/readyz").returncode == 0
    answers.alive = False
    done = probe(port, "/healthz")
    assert done.returncode == 1
    assert "503" in done.stderr


def test_a_worker_that_never_answers_is_not_alive() -> None:
    server = WorkerHealth(0, lambda: True, lambda: True)
    started_at = time.monotonic()
    assert probe(server.port, "/healthz").returncode == 1
    assert time.monotonic() - started_at < 5, "the kubelet waits that long"
    server._server.server_close()


def test_the_image_declares_that_its_workers_answer_probes() -> None:
    base = Path(__file__).parents[4] / "images/base/Dockerfile"
    assert f"{KNOWN_VARIABLE}=worker" in base.read_text()


def test_the_environment_of_a_worker_names_the_port_for_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    _, worker = pods(make_spec())[:2]
    (given,) = [entry["value"] for entry in main_container(worker)["env"] if entry["name"] == HEALTH_VARIABLE]
    assert health_port(Configuration()) == -1
    monkeypatch.setenv(PORT_VARIABLE, given)
    assert HEALTH_VARIABLE == PORT_VARIABLE
    assert health_port(Configuration()) == 8082
    assert health_port(Configuration({WORKER_HEALTH_PORT.key: 9000})) == 9000
    monkeypatch.setenv(PORT_VARIABLE, "none")
    with pytest.raises(Exception, match=r"penstock.worker.health-port"):
        health_port(Configuration())
