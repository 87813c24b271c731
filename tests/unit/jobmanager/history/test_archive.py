"""The archive of a job that has ended. REST and the dashboard show the same from it as from the running job."""

from __future__ import annotations

import gzip
import logging
import math
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from penstock.common.errors import StorageError
from penstock.datastream.functions import MapFunction, RuntimeContext
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.graph.executor import executing_on
from penstock.jobmanager.history import gateway as gateway_module
from penstock.jobmanager.history.archive import Archives, archive_of
from penstock.jobmanager.history.gateway import ArchiveGateway
from penstock.jobmanager.job.job_master import JobMaster
from penstock.jobmanager.job.metric_history import JobTotals, VertexTotals
from penstock.jobmanager.process.session.gateway import DispatcherGateway
from penstock.jobmanager.process.session.session import Session
from penstock.rest.app import create_app
from penstock.rest.views.ids import vertex_id
from tests.in_process import InProcess, environment

SECRET = "hunter2-hunter2"


class Checked(MapFunction):
    """A function with a gauge whose value is neither a number nor a text."""

    def __init__(self, bad: int | None, secret: str) -> None:
        self.bad, self.secret = bad, secret

    def open(self, runtime_context: RuntimeContext) -> None:
        runtime_context.get_metrics_group().gauge("is_open", lambda: True)

    def map(self, value: int) -> int:
        if value == self.bad:
            raise ValueError(f"{value} is no number, key {self.secret}")
        return value


def ended(folder: Path, archive: str = "", fail: bool = False, secret: str = SECRET) -> tuple[Session, JobMaster]:

    settings = {
        "jobmanager.archive.fs.dir": archive or str(folder / "history"),
        "s3.secret-key": secret,
        "restart-strategy.type": "none",
    }
    env: StreamExecutionEnvironment = environment(folder, **settings)
    env.from_collection(range(100)).map(Checked(70 if fail else None, secret)).key_by(lambda n: n % 7).reduce(max).uid(
        "max"
    ).name("Most").print()
    session = Session(InProcess())
    with executing_on(session):
        handle = env.execute_async("numbers")
    [master] = session.dispatcher.jobs()
    master.wait(60)
    assert handle is not None
    return session, master


def served(folder: Path) -> TestClient:
    return TestClient(create_app(ArchiveGateway(Archives(str(folder / "history")))))


def test_rest_answers_from_the_archive_as_from_the_job(tmp_path: Path) -> None:
    session, master = ended(tmp_path)
    live = TestClient(
        create_app(DispatcherGateway(session.dispatcher, master.settings.configuration, list, lambda: None))
    )
    past, job = served(tmp_path), f"/jobs/{master.job_id}"
    vertices = [vertex_id(str(stage.id)) for stage in master.graph.stages]
    paths = [
        "/jobs",
        "/jobs/overview",
        job,
        f"{job}/plan",
        f"{job}/config",
        f"{job}/exceptions",
        f"{job}/checkpoints",
        f"{job}/checkpoints/config",
        f"{job}/timeline",
        f"{job}/history",
        f"{job}/connectors",
        *(f"{job}/vertices/{vertex}" for vertex in vertices),
        *(f"{job}/vertices/{vertex}/subtasks/0" for vertex in vertices),
        *(f"{job}/history?vertex={vertex}" for vertex in vertices),
    ]
    for path in paths:
        assert without_now(past.get(path).json()) == without_now(live.get(path).json()), path


def without_now(answer: Any) -> Any:
    """Return the answer without the values that depend on the time of the request."""
    if isinstance(answer, dict):
        gone = {"now", "duration"} | {name for name in answer if name.endswith(("PerSecond", "Rate"))}
        return {name: without_now(value) for name, value in answer.items() if name not in gone}
    return [without_now(one) for one in answer] if isinstance(answer, list) else answer


def test_an_archive_has_the_failure_and_no_secret(tmp_path: Path) -> None:
    _, master = ended(tmp_path, fail=True)
    [path] = (tmp_path / "history").iterdir()
    assert path.name.startswith(master.job_id)
    text = gzip.decompress(path.read_bytes()).decode()
    assert SECRET not in text
    assert "70 is no number, key ******" in text
    assert path.stat().st_size < 20_000
    [job] = ArchiveGateway(Archives(str(tmp_path / "history"))).jobs()
    assert (job.state, job.failures[-1].name) == ("FAILED", "UserFunctionError")


@pytest.mark.parametrize("secret", ['pa"ss\\word', "zwölf\nZeilen", "state", "start", "2026"])
def test_a_secret_is_distinguished_from_the_syntax_of_json(secret: str, tmp_path: Path) -> None:
    _, master = ended(tmp_path, fail=True, secret=secret)
    [archive] = Archives(str(tmp_path / "history")).all()
    assert archive.job.failures
    assert all(secret not in f"{failure.message}{failure.name}" for failure in archive.job.failures)
    assert (archive.job.id, archive.job.start) == (master.job_id, master.history.started_at)


def test_samples_without_a_watermark_are_archived(tmp_path: Path) -> None:
    session, master = ended(tmp_path)
    past = master.metrics.past
    for now, records in ((0, 0.0), (10_000, 500.0)):
        past.add_sample(now, JobTotals(records=records), {0: VertexTotals()}, 1)
    gateway = DispatcherGateway(session.dispatcher, master.settings.configuration, list, lambda: None)
    Archives(str(tmp_path / "again")).write(archive_of(gateway, master.job_id))
    found = ArchiveGateway(Archives(str(tmp_path / "again"))).metric_history(master.job_id, None)
    assert found.times == [10_000]
    assert found.series["recordsPerSecond"] == [50.0]
    assert math.isnan(found.series["watermarkLag"][0])


def test_a_job_ends_normally_if_its_archive_cannot_be_stored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    with caplog.at_level(logging.WARNING):
        _, master = ended(tmp_path, archive=str(tmp_path / "file"))
    assert master.history.status.value == "FINISHED"
    assert f"job {master.job_id} is not archived" in caplog.text


def test_requests_to_change_an_archived_job_are_refused(tmp_path: Path) -> None:
    _, master = ended(tmp_path)
    past, job = served(tmp_path), f"/jobs/{master.job_id}"
    for method, path in [
        ("POST", f"{job}/savepoints"),
        ("POST", f"{job}/checkpoints"),
        ("POST", f"{job}/stop"),
        ("PATCH", f"{job}?mode=cancel"),
        ("PATCH", f"{job}/rescaling?parallelism=3"),
    ]:
        answer = past.request(method, path, json={} if method == "POST" else None)
        assert answer.status_code == 409, path
        assert "this is its history" in answer.text
    assert past.get(f"{job}/state").status_code == 404


def test_archives_appear_and_disappear_and_other_files_are_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_module, "SCAN_INTERVAL_S", 0.0)
    folder = tmp_path / "history"
    folder.mkdir()
    (folder / "torn-1.json.gz").write_bytes(gzip.compress(b'{"job": ')[:-3])
    (folder / "other-2.json.gz").write_bytes(gzip.compress(b'{"something": "else"}'))
    (folder / "bomb-3.json.gz").write_bytes(gzip.compress(b" " * 200_000_000))
    (folder / "notes.txt").touch()
    gateway = ArchiveGateway(Archives(str(folder)))
    assert gateway.jobs() == []
    _, master = ended(tmp_path)
    assert [job.id for job in gateway.jobs()] == [master.job_id]
    (folder / f"{master.job_id}-{master.history.started_at}.json.gz").unlink()
    assert gateway.jobs() == []


def test_a_missing_folder_is_empty_and_an_invalid_folder_is_an_error(tmp_path: Path) -> None:
    assert Archives(str(tmp_path / "nothing")).names() == []
    (tmp_path / "x.json.gz").write_bytes(b"no gzip")
    with pytest.raises(StorageError, match="is not an archive of a job"):
        Archives(str(tmp_path)).read("x.json.gz")


def test_fields_of_other_versions_are_ignored(tmp_path: Path) -> None:
    import msgspec

    ended(tmp_path)
    [path] = (tmp_path / "history").iterdir()
    content = msgspec.json.decode(gzip.decompress(path.read_bytes()))
    content |= {"of_tomorrow": 7}
    content["job"] |= {"of_tomorrow": [7]}
    del content["job"]["rescale_count"], content["connectors"]
    path.write_bytes(gzip.compress(msgspec.json.encode(content)))
    assert len(ArchiveGateway(Archives(str(path.parent))).jobs()) == 1
