"""Programs over REST, in Flink's shapes for JAR files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from penstock.common.errors import InvalidJob, NotEnoughSlots, SnapshotNotFound, StorageError
from penstock.common.logs.log_file import LogPart
from penstock.rest import facts
from penstock.rest.app import create_app
from penstock.rest.auth import TokenFile
from penstock.rest.body_limit import UPLOAD_BYTES
from penstock.rest.errors import Conflict, NotFound
from tests.unit.rest import fake_gateway
from tests.unit.rest.asgi_client import AsgiClient
from tests.unit.rest.fake_gateway import FakeGateway

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.rest.gateway import ClusterGateway, Jars

JOB_ID = fake_gateway.JOB_ID
RUNNING = facts.Application("a" * 32, "totals", "RUNNING", 1_000, jobs=[JOB_ID, fake_gateway.OLD_ID, "f" * 32])
FAILED = facts.Application(
    "b" * 32, "job.py", "FAILED", 500, 700, [], 3, facts.Failure(700, "USER_CODE", "sys.exit(3)", "Traceback: here")
)
OUTPUT = b"first\nsecond \xff\n"


class FakeJars:
    """Programs in memory. `rest.gateway.Jars` describes the methods."""

    def __init__(self) -> None:
        self.uploaded: list[tuple[str, bytes]] = []
        self.fetched: list[facts.FetchRequest] = []
        self.requests: list[tuple[str, facts.RunRequest]] = []
        self.canceled: list[str] = []
        self.error: Exception | None = None

    def _called(self) -> None:
        if self.error is not None:
            raise self.error

    def upload(self, name: str, content: bytes) -> facts.Jar:
        self._called()
        self.uploaded.append((name, content))
        return facts.Jar(f"digest_{name}", name, 1_700_000_000_000)

    def fetch(self, request: facts.FetchRequest) -> facts.Jar:
        self._called()
        self.fetched.append(request)
        return facts.Jar(f"digest_{request.name}.zip", f"{request.name}.zip", 1_700_000_000_000)

    def jars(self) -> list[facts.Jar]:
        self._called()
        return [facts.Jar(f"digest_{name}", name, 1_700_000_000_000) for name, _ in self.uploaded]

    def delete(self, jar_id: str) -> None:
        self._called()

    def run(self, jar_id: str, request: facts.RunRequest) -> facts.Application:
        self._called()
        self.requests.append((jar_id, request))
        return RUNNING

    def applications(self) -> list[facts.Application]:
        self._called()
        return [RUNNING, FAILED]

    def application(self, application_id: str) -> facts.Application:
        self._called()
        found = [one for one in (RUNNING, FAILED) if one.id == application_id]
        if not found:
            raise NotFound(f"application {application_id} does not exist")
        return found[0]

    def cancel_application(self, application_id: str) -> None:
        self.application(application_id)
        self.canceled.append(application_id)

    def plan(self, jar_id: str, request: facts.RunRequest) -> dict[str, Any]:
        self._called()
        self.requests.append((jar_id, request))
        return {"jid": JOB_ID, "name": "job", "nodes": []}

    def output(self, job_id: str, start: int, most: int, *, log: bool) -> LogPart:
        self._called()
        data = b"logged\n" if log else OUTPUT[start:]
        return LogPart(start, start + len(data), len(OUTPUT), data)


@pytest.fixture(scope="module")
def jars() -> FakeJars:
    return FakeJars()


@pytest.fixture(scope="module")
def app(jars: FakeJars) -> AsgiClient:
    return AsgiClient(create_app(cast("ClusterGateway", FakeGateway()), jars=cast("Jars", jars)))


@pytest.fixture
def http(app: AsgiClient, jars: FakeJars) -> AsgiClient:
    jars.uploaded, jars.fetched, jars.requests, jars.canceled, jars.error = [], [], [], [], None
    return app


@pytest.mark.parametrize("field", ["jarfile", "file", "x"])
def test_an_upload_is_answered_as_in_flink(http: AsgiClient, jars: FakeJars, field: str) -> None:
    answer = http.post("/jars/upload", files={field: ("job.py", b"\0\xff", "application/x-java-archive")})
    assert answer.json() == {"filename": "/jars/digest_job.py", "status": "success"}
    assert jars.uploaded == [("job.py", b"\0\xff")]
    assert http.get("/v1/jars").json() == {
        "address": "http://test",
        "files": [{"id": "digest_job.py", "name": "job.py", "uploaded": 1_700_000_000_000, "entry": []}],
    }


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"json": {}},
        {"data": {"jarfile": "text"}},
        {"content": b"not a form", "headers": {"Content-Type": "multipart/form-data; boundary=x"}},
        {"content": b"", "headers": {"Content-Type": "multipart/form-data"}},
        {"files": [("a", ("a.py", b"1")), ("b", ("b.py", b"1"))]},
        {"files": {"jarfile": ("", b"1")}},
    ],
)
def test_an_upload_without_one_file_is_refused(http: AsgiClient, jars: FakeJars, arguments: dict[str, Any]) -> None:
    answer = http.post("/jars/upload", **arguments)
    assert answer.status_code == 400, answer.text
    assert answer.json()["errors"]
    assert jars.uploaded == []


def test_an_upload_beyond_the_limit_is_refused_before_it_is_read(http: AsgiClient, jars: FakeJars) -> None:
    answer = http.post("/jars/upload", content=b"", headers={"Content-Length": str(UPLOAD_BYTES + 1)})
    assert answer.status_code == 413
    assert str(UPLOAD_BYTES) in answer.text
    assert jars.uploaded == []


def test_a_start_has_all_fields_of_the_body(http: AsgiClient, jars: FakeJars) -> None:
    body = {
        "entryClass": "job.py",
        "programArgsList": ["--a", "b c"],
        "parallelism": 3,
        "jobId": JOB_ID,
        "allowNonRestoredState": True,
        "savepointPath": "s3://b/x",
        "restoreMode": "NO_CLAIM",
        "flinkConfiguration": {"a.b": "c"},
    }
    assert http.post("/jars/digest_job.py/run", json=body).json() == {"jobid": JOB_ID, "applicationid": RUNNING.id}
    request = facts.RunRequest("job.py", ["--a", "b c"], 3, "s3://b/x", True, JOB_ID, {"a.b": "c"})
    assert jars.requests == [("digest_job.py", request)]


def test_a_start_has_the_parameters_of_the_url(http: AsgiClient, jars: FakeJars) -> None:
    http.post("/jars/x/run?entry-class=m:f&program-args=--a%20'b%20c'&parallelism=2&allowNonRestoredState=true")
    http.post("/jars/x/run?programArg=a&programArg=b,c&savepointPath=/s", json={"parallelism": 5})
    assert [request for _, request in jars.requests] == [
        facts.RunRequest("m:f", ["--a", "b c"], 2, "", True),
        facts.RunRequest("", ["a", "b,c"], 5, "/s", False),
    ]


@pytest.mark.parametrize(
    ("path", "body", "named"),
    [
        ("?parallelism=0", None, "parallelism"),
        ("?parallelism=x", None, "parallelism"),
        ("?no=1", None, "no"),
        ("", {"parallelism": -1}, "parallelism"),
        ("", {"parallelism": "many"}, "parallelism"),
        ("", {"unknownField": 1}, "unknownField"),
        ("", {"programArgs": "--a 'b"}, "programArgs"),
        ("", {"programArgsList": "a"}, "programArgsList"),
        ("", {"flinkConfiguration": {"a": {}}}, "flinkConfiguration"),
        ("", {"restoreMode": "CLAIM"}, "CLAIM"),
        ("", {"claimMode": "LEGACY"}, "LEGACY"),
        ("", [], "body"),
    ],
)
def test_a_wrong_start_is_refused_and_names_the_field(
    http: AsgiClient, jars: FakeJars, path: str, body: object, named: str
) -> None:
    for method in ("run", "plan"):
        answer = http.post(f"/jars/x/{method}{path}", json=body)
        assert answer.status_code == 400, answer.text
        assert named in answer.text
    assert jars.requests == []


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_plan_is_the_graph(http: AsgiClient, jars: FakeJars, method: str) -> None:
    answer = http.request(method, "/v1/jars/x/plan?programArg=1")
    assert answer.json() == {"plan": {"jid": JOB_ID, "name": "job", "nodes": []}}
    assert jars.requests[0][1].args == ["1"]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InvalidJob("the job is wrong", remedy="repair it"), 400),
        (NotFound("the program is not stored"), 404),
        (SnapshotNotFound("no savepoint at s3://b/x"), 404),
        (Conflict("it is running"), 409),
        (NotEnoughSlots("2 of 3 slots"), 503),
        (StorageError("s3 does not answer"), 503),
        (RuntimeError("a defect"), 500),
    ],
)
def test_each_failure_has_its_status(http: AsgiClient, jars: FakeJars, error: Exception, status: int) -> None:
    jars.error = error
    for method, path in (
        ("GET", "/jars"),
        ("DELETE", "/jars/x"),
        ("POST", "/jars/x/run"),
        ("GET", "/jars/x/plan"),
        ("GET", f"/jobs/{JOB_ID}/output"),
    ):
        answer = http.request(method, path)
        assert answer.status_code == status, path
        assert str(error.args[0]) in answer.json()["errors"][0]


def test_a_deletion_returns_an_empty_object(http: AsgiClient) -> None:
    assert http.delete("/jars/x").json() == {}


def test_output_is_returned_from_a_position_on(http: AsgiClient) -> None:
    answer = http.get(f"/jobs/{JOB_ID}/output?from=6")
    assert answer.content == OUTPUT[6:]
    assert answer.headers["X-Penstock-Log-End"] == str(len(OUTPUT))
    assert answer.headers["content-type"].startswith("text/plain")
    assert http.get(f"/jobs/{JOB_ID}/log").text == "logged\n"
    assert http.get(f"/jobs/{JOB_ID}/output?from=x").status_code == 400


def test_a_jobmanager_of_one_job_has_no_programs() -> None:
    client = AsgiClient(create_app(cast("ClusterGateway", FakeGateway())))
    assert client.get("/jars").status_code == 404
    assert client.post("/jars/upload", files={"jarfile": ("job.py", b"1")}).status_code in (404, 405)


def test_a_reader_sees_programs_and_starts_none(jars: FakeJars, tokens: tuple[Path, Path]) -> None:
    admin, reader = (TokenFile(str(path)) for path in tokens)
    app = create_app(cast("ClusterGateway", FakeGateway()), admin, reader=reader, jars=cast("Jars", jars))
    client = AsgiClient(app)
    as_reader = {"Authorization": "Bearer only-looking"}
    jars.requests, jars.error = [], None
    assert client.get("/jars", headers=as_reader).status_code == 200
    assert client.post("/jars/x/run", headers=as_reader).status_code == 403
    assert client.post("/jars/upload", files={"f": ("a.py", b"1")}, headers=as_reader).status_code == 403
    assert client.request("DELETE", "/jars/x", headers=as_reader).status_code == 403
    assert client.post("/jars/x/run").status_code == 401
    assert jars.requests == []


def test_applications_are_listed_with_the_states_of_their_jobs(http: AsgiClient) -> None:
    running, failed = http.get("/applications/overview").json()["applications"]
    assert set(running) == {"id", "name", "start-time", "end-time", "duration", "status", "jobs"}
    assert (running["id"], running["status"], running["end-time"]) == (RUNNING.id, "RUNNING", -1)
    assert running["jobs"] == {"RUNNING": 1, "FAILED": 1}
    assert (failed["status"], failed["duration"], failed["jobs"]) == ("FAILED", 200, {})


def test_an_application_has_its_jobs_in_the_shape_of_their_overview(http: AsgiClient) -> None:
    found = http.get(f"/applications/{RUNNING.id}").json()
    overview = {job["jid"]: set(job) for job in http.get("/jobs/overview").json()["jobs"]}
    assert [job["jid"] for job in found["jobs"]] == [JOB_ID, fake_gateway.OLD_ID]
    assert all(set(job) == overview[job["jid"]] for job in found["jobs"])
    assert found["timestamps"] == {
        "CREATED": 1_000,
        "RUNNING": 1_000,
        "CANCELING": 0,
        "FAILING": 0,
        "FINISHED": 0,
        "FAILED": 0,
        "CANCELED": 0,
    }
    assert found["exit-code"] is None
    ended = http.get(f"/applications/{FAILED.id}").json()
    assert (ended["timestamps"]["FAILED"], ended["exit-code"]) == (700, 3)


def test_exceptions_of_an_application_are_those_of_the_program_and_of_its_jobs(http: AsgiClient) -> None:
    (entry,) = http.get(f"/applications/{FAILED.id}/exceptions").json()["exceptionHistory"]["entries"]
    assert entry == {
        "exceptionName": "USER_CODE",
        "stacktrace": "USER_CODE: sys.exit(3)\n\nTraceback: here",
        "timestamp": 700,
    }
    entries = http.get(f"/applications/{RUNNING.id}/exceptions").json()["exceptionHistory"]["entries"]
    assert {one["jobId"] for one in entries} <= {JOB_ID, fake_gateway.OLD_ID}
    assert [one["timestamp"] for one in entries] == sorted((one["timestamp"] for one in entries), reverse=True)
    assert entries


def test_an_application_is_cancelled(http: AsgiClient, jars: FakeJars) -> None:
    assert http.post(f"/applications/{RUNNING.id}/cancel").status_code == 202
    assert jars.canceled == [RUNNING.id]
    unknown = "c" * 32
    for method, path in (("GET", ""), ("GET", "/exceptions"), ("POST", "/cancel")):
        assert http.request(method, f"/applications/{unknown}{path}").status_code == 404


def test_a_start_as_an_application_has_its_id(http: AsgiClient, jars: FakeJars) -> None:
    answer = http.post("/jars/digest_job.py/run-application", json={"parallelism": 3})
    assert answer.json() == {"applicationid": RUNNING.id}
    assert jars.requests[0][1].parallelism == 3


def test_a_program_is_fetched_with_its_checksum_or_its_commit(http: AsgiClient, jars: FakeJars) -> None:
    file: dict[str, Any] = {
        "name": "totals",
        "url": "https://example.com/totals.zip",
        "sha256": "a" * 64,
        "requirements": ["rich==14.0"],
    }
    commit: dict[str, Any] = {
        "name": "totals",
        "url": "https://example.com/git",
        "commit": "b" * 40,
        "password": "secret",
        "requirements": [],
    }
    for body in (file, commit):
        assert http.post("/jars/fetch", json=body).json()["filename"] == "/jars/digest_totals.zip"
    assert jars.fetched == [facts.FetchRequest(**file), facts.FetchRequest(**commit)]
    assert "secret" not in repr(jars.fetched)


@pytest.mark.parametrize(
    "change",
    [{"sha256": ""}, {"commit": "b" * 40}, {"sha256": "A" * 64}, {"name": "../x"}, {"name": ""}, {"unknown": 1}],
)
def test_a_fetch_that_is_not_complete_is_refused(http: AsgiClient, jars: FakeJars, change: dict[str, Any]) -> None:
    body = {"name": "totals", "url": "https://example.com/totals.zip", "sha256": "a" * 64, **change}
    assert http.post("/jars/fetch", json=body).status_code == 400
    assert not jars.fetched
