"""A real JobManager in this process that serves TLS, with the command line, programs and `kubectl penstock` as clients."""

from __future__ import annotations

import base64
import json
import os
import re
import secrets
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from penstock.cli import kubectl
from penstock.common.configuration import Configuration
from penstock.common.errors import PenstockError
from penstock.common.typeinfo import Types
from penstock.connectors.simple.datagen import DataGeneratorSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.graph.executor import executing_on
from penstock.jobmanager.process.programs.process.remote_programs import RemotePrograms
from penstock.jobmanager.process.session.session import Session
from penstock.rest import models
from penstock.rest.server import RestServer
from tests.certificates import Authority
from tests.in_process import InProcess, environment, until
from tests.unit.cli.terminal import Terminal
from tests.unit.cli.test_kubectl import KUBECTL

SERVICE = "orders-rest.team.svc"


class GraphsInThisProcess:
    """Programs of clients, which run in this process. `rest.gateway.Programs` describes the methods."""

    def __init__(self, session: Session) -> None:
        self._session, self._programs = session, RemotePrograms(session, {})

    def submit(self, content: bytes, penstock: str, python: str, *, collects: bool) -> str:
        job_id = secrets.token_hex(16)
        self._session.job_id_of = lambda _: job_id
        self._programs.submit(content, penstock, python, job_id)
        return job_id

    def outcome(self, job_id: str) -> models.ProgramOutcome:
        return models.ProgramOutcome.model_validate(self._programs.outcome(job_id))

    def results(self, job_id: str, start: int) -> models.ProgramResults:
        return models.ProgramResults.model_validate(self._programs.results(job_id, start))


@dataclass
class Master:
    session: Session
    server: RestServer
    authority: Authority
    token: str
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        return {"PENSTOCK_MASTER": self.server.url, "PENSTOCK_TOKEN_FILE": str(self.folder / "token")}

    @property
    def trust(self) -> tuple[str, str]:
        return "--ca-file", str(self.authority.file)


@pytest.fixture
def master(tmp_path: Path) -> Iterator[Master]:
    """Start a session that accepts programs, with a certificate for localhost and for the Service of a FlinkJob."""
    authority = Authority(tmp_path)
    certificate, key = authority.write("localhost", SERVICE)
    token = secrets.token_urlsafe(32)
    (tmp_path / "token").write_text(token)
    settings = Configuration(
        {
            "rest.port": "0",
            "rest.ssl.enabled": "true",
            "rest.ssl.certificate-file": str(certificate),
            "rest.ssl.key-file": str(key),
            "security.rest.token-file": str(tmp_path / "token"),
        }
    )
    session = Session(InProcess())
    server = session.serve(settings, programs=GraphsInThisProcess(session))
    assert server is not None
    yield Master(session, server, authority, token, tmp_path)
    session.end_jobs()
    server.stop()


def start(master: Master) -> Any:
    """Start an endless job and return its JobMaster."""
    env = environment(master.folder)
    endless(env)
    with executing_on(master.session):
        env.execute_async("endless")
    job = master.session.dispatcher.jobs()[0]
    until(lambda: job.history.status.value == "RUNNING", job)
    return job


def endless(env: StreamExecutionEnvironment) -> None:
    source = DataGeneratorSource(int, None, 20.0)
    env.from_source(source, None, "numbers").key_by(lambda n: n % 3).reduce(max).uid("max").print()


def test_the_command_line_lists_saves_and_stops_a_job(master: Master) -> None:
    job = start(master)
    terminal = Terminal(master.environment)
    assert job.job_id in terminal("list", *master.trust).out
    saved = terminal("savepoint", "endless", *master.trust)
    assert saved.code == 0, saved.err
    found = re.search(r"file://(\S+/savepoint-\S+)", saved.out)
    assert found, saved.out
    assert Path(found[1], "_metadata").is_file()
    stopped = terminal("stop", "endless", *master.trust)
    assert stopped.code == 0, stopped.err
    assert job.history.status.value == "FINISHED"


def test_no_command_connects_to_a_master_that_it_cannot_verify(master: Master, tmp_path: Path) -> None:
    job = start(master)
    terminal = Terminal(master.environment)
    other = Authority(tmp_path, "other")
    plain = ("-m", master.server.url.replace("https", "http"))
    for trust in (
        (),
        ("--ca-file", str(other.file)),
        (*master.trust, "-m", f"https://127.0.0.1:{master.server.port}"),
        plain,
    ):
        for command in (("list",), ("savepoint", "endless"), ("stop", "endless"), ("cancel", "endless")):
            assert terminal(*command, *trust).code == 1, (command, trust)
    assert job.history.status.value == "RUNNING"


def test_a_program_runs_on_a_session_that_it_verifies(master: Master, tmp_path: Path) -> None:
    def remote(ca_file: str | None = None) -> StreamExecutionEnvironment:
        return StreamExecutionEnvironment.create_remote_environment(
            "localhost", master.server.port, token=master.token, ca_file=ca_file
        )

    env = remote(ca_file=str(master.authority.file))
    found = env.from_collection([1, 2, 3], Types.INT()).map(lambda n: n * 2).execute_and_collect()
    assert sorted(found) == [2, 4, 6]
    other = remote(ca_file=str(Authority(tmp_path, "other").file))
    other.from_collection([1]).print()
    with pytest.raises(PenstockError, match="CERTIFICATE_VERIFY_FAILED") as caught:
        other.execute("refused")
    assert "--ca-file" in str(caught.value)
    plain = remote()
    plain.from_collection([1]).print()
    with pytest.raises(PenstockError, match="https://localhost"):
        plain.execute("refused")
    assert len(master.session.dispatcher.jobs()) == 1


@pytest.fixture
def on_kubernetes(master: Master, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Return a terminal with a kubectl that knows the FlinkJob `orders`, whose master runs in this process."""
    folder = master.folder
    program = folder / "kubectl"
    program.write_text(KUBECTL.format(python=sys.executable))
    program.chmod(0o755)
    encoded = {key: base64.b64encode(value).decode() for key, value in {"ca.crt": master.authority.pem}.items()}
    answers = {
        "flinkjob orders": {"metadata": {"namespace": "team"}, "status": {"running": {"restTls": "orders-tls"}}},
        "secret orders-tls": {"data": encoded},
        "secret orders-secrets": {"data": {"rest-token": base64.b64encode(master.token.encode()).decode()}},
    }
    (folder / "objects").write_text(json.dumps(answers))
    variables = {"KUBECTL": str(program), "FAKE": str(folder), "FAKE_PORT": str(master.server.port)}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return Terminal({**os.environ, **variables}, kubectl.app, "kubectl penstock")


def test_kubectl_penstock_verifies_the_master_by_the_name_of_its_service(
    master: Master, on_kubernetes: Terminal
) -> None:
    job = start(master)
    shown = on_kubernetes("info", "orders")
    assert shown.code == 0, shown.err
    assert job.job_id in shown.out
    cluster = on_kubernetes("cluster", "orders")
    assert cluster.code == 0, cluster.err
    assert master.token not in (master.folder / "called").read_text()


def test_kubectl_penstock_sends_no_token_to_a_master_with_another_certificate(
    master: Master, on_kubernetes: Terminal
) -> None:
    start(master)
    master.authority.write("localhost", "payments-rest.team.svc")
    refused = on_kubernetes("info", "orders")
    assert (refused.code, "CERTIFICATE_VERIFY_FAILED" in refused.err) == (1, True)
    master.authority.write("localhost", SERVICE)
    objects = json.loads((master.folder / "objects").read_text())
    objects["secret orders-tls"]["data"] = {"ca.crt": base64.b64encode(Authority(master.folder, "other").pem).decode()}
    (master.folder / "objects").write_text(json.dumps(objects))
    refused = on_kubernetes("info", "orders")
    assert (refused.code, "CERTIFICATE_VERIFY_FAILED" in refused.err) == (1, True)
