"""What an operator adds to pods and their configuration is understood by images of the version before: after an upgrade of the
operator they are started again by recoveries, rollbacks, resumes and edits of anything but the image."""

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
from penstock_operator.resources.probes import HEALTH_VARIABLE, KNOWN_VARIABLE, ask_worker
from tests.unit.operator.contexts import make_spec
from tests.unit.operator.resources.test_resources import LOST, OWNER, incarnation, main_container, pods
from tests.unit.worker_answers import Told, answering

MEMORY = {"resources": {"limits": {"memory": "2Gi"}}}
ARGUMENTS = {
    "master": {"--entry", "--restore", "--job-id", "--parallelism", "--allow-non-restored-state"},
    "worker": {"--master", "--slots"},
    "check": {"--entry", "--parallelism", "--against", "--allow-non-restored-state", "--format"},
}
"""Those that the engine of version 0.1.0 has."""


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def port(told: Told) -> Iterator[int]:
    with answering(told) as server:
        yield server.port


def probe(port: int, path: str, **environment: str) -> subprocess.CompletedProcess[str]:
    own = {key: value for key, value in os.environ.items() if key != KNOWN_VARIABLE}
    return subprocess.run(ask_worker(port, path), env={**own, **environment}, capture_output=True, text=True)


def test_the_operator_adds_no_key_that_an_engine_refuses_if_it_does_not_know_it() -> None:
    spec = make_spec(configuration={"penstock.epoch.target": "2s"}, master=MEMORY, worker=MEMORY)
    refused = {key for key in configuration(spec) if key.startswith("penstock.")}
    assert refused == {"penstock.epoch.target"}, "pass it through the environment, as PENSTOCK_WORKER_HEALTH_PORT is"


def test_the_operator_passes_no_argument_that_an_engine_of_the_version_before_has_not() -> None:
    spec = make_spec(job={"allowNonRestoredState": ["dedup"]})
    check = check_pod(OWNER, spec, "weather-1", "op-1", "s3://bucket/savepoint", LOST)
    _, worker = pods(spec)[:2]
    commands = [master_args(incarnation(spec)), main_container(worker)["args"], check["spec"]["containers"][0]["args"]]
    for role, *rest in commands:
        own = rest[: rest.index("--")] if "--" in rest else rest
        assert {part for part in own if part.startswith("--")} <= ARGUMENTS[role], role


def test_a_worker_of_an_image_that_answers_no_probes_is_left_alone() -> None:
    server = WorkerHealth(0, lambda: True, lambda: True)
    free = server.port
    server._server.server_close()
    for path in ("/healthz", "/readyz"):
        assert probe(free, path).returncode == 0
        done = probe(free, path, **{KNOWN_VARIABLE: "worker"})
        assert (done.returncode, done.stderr) == (1, "nobody answers\n")


def test_a_worker_that_answers_is_judged_by_what_it_says(port: int, told: Told) -> None:
    assert (probe(port, "/healthz").returncode, probe(port, "/readyz").returncode) == (0, 1)
    told.ready = True
    assert probe(port, "/readyz").returncode == 0
    told.alive = False
    done = probe(port, "/healthz")
    assert done.returncode == 1
    assert "503" in done.stderr


def test_a_worker_that_does_not_come_to_answer_is_not_alive() -> None:
    server = WorkerHealth(0, lambda: True, lambda: True)
    begun = time.monotonic()
    assert probe(server.port, "/healthz").returncode == 1
    assert time.monotonic() - begun < 5, "the kubelet waits that long"
    server._server.server_close()


def test_the_image_says_that_its_workers_answer() -> None:
    base = Path(__file__).parents[4] / "images/base/Dockerfile"
    assert f"{KNOWN_VARIABLE}=worker" in base.read_text()


def test_a_worker_is_told_by_its_environment_where_to_answer(monkeypatch: pytest.MonkeyPatch) -> None:
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
