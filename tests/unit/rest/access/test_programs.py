"""Programs that clients send to a session cluster."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest
from fastapi.testclient import TestClient

from penstock.rest import models
from penstock.rest.app import create_app
from penstock.rest.auth import TokenFile
from penstock.rest.gateway import Programs
from penstock.rest.routes import programs as routes
from tests.unit.rest.fake_gateway import FakeGateway


@pytest.fixture
def programs() -> Mock:
    fake = Mock(spec=Programs)
    fake.submit.return_value = "a" * 32
    fake.results.return_value = models.ProgramResults(values=["YQ=="], is_done=True)
    return fake


def test_a_program_arrives_with_its_versions(programs: Mock) -> None:
    client = TestClient(create_app(FakeGateway(), programs=programs))
    versions = {"X-Penstock-Version": "1.2", "X-Python-Version": "3.11"}
    answer = client.post("/programs", content=b"program", headers=versions)
    assert (answer.status_code, answer.json()) == (202, {"job-id": "a" * 32})
    programs.submit.assert_called_once_with(b"program", "1.2", "3.11", collects=False)
    assert client.post("/v1/programs/b/results?from=7").json() == {"values": ["YQ=="], "is-done": True}
    programs.results.assert_called_once_with("b", 7)
    assert client.post("/programs/b/results?from=-1").status_code == 400


def test_a_program_has_a_maximum_size(programs: Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "PROGRAM_BYTES", 5)
    answer = TestClient(create_app(FakeGateway(), programs=programs)).post("/programs", content=b"program")
    assert answer.status_code == 400
    assert "more than 5 bytes" in answer.text
    programs.submit.assert_not_called()


def test_a_reader_cannot_send_a_program(programs: Mock, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("all")
    (tmp_path / "reader").write_text("look")
    token, reader = TokenFile(str(tmp_path / "token")), TokenFile(str(tmp_path / "reader"))
    client = TestClient(create_app(FakeGateway(), token, reader=reader, programs=programs))
    for given, status in (("look", 403), ("other", 401), ("all", 202)):
        headers = {"Authorization": f"Bearer {given}"}
        assert client.post("/programs", content=b"program", headers=headers).status_code == status


def test_other_jobmanagers_accept_no_programs() -> None:
    assert TestClient(create_app(FakeGateway())).post("/programs", content=b"program").status_code == 404


@pytest.mark.parametrize("path", ["/jars/1_job.py/plan", "/v1/jars/1_job.py/plan", "/jars/1_job.py/plan/"])
def test_a_reader_cannot_run_a_program_by_asking_for_its_plan(tmp_path: Path, path: str) -> None:
    (tmp_path / "token").write_text("change")
    (tmp_path / "reader").write_text("look")
    token, reader = TokenFile(str(tmp_path / "token")), TokenFile(str(tmp_path / "reader"))
    jars = Mock()
    jars.plan.return_value = {}
    jars.jars.return_value = []
    client = TestClient(create_app(FakeGateway(), token, reader=reader, jars=jars))
    looking = {"Authorization": "Bearer look"}
    assert client.get("/jars", headers=looking).status_code == 200
    assert client.get(path, headers=looking).status_code == 403
    assert not jars.plan.called
    assert client.get("/jars/1_job.py/plan", headers={"Authorization": "Bearer change"}).status_code == 200
