"""A folder with hostile archives. The history server refuses them or shows them, and never fails."""

from __future__ import annotations

import copy
import gzip
import random
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fastapi.testclient import TestClient

from penstock.common.errors import StorageError
from penstock.common.folders.storage_names import is_segment
from penstock.jobmanager.history import archive as archive_module
from penstock.jobmanager.history import gateway as gateway_module
from penstock.jobmanager.history.archive import Archives
from penstock.jobmanager.history.gateway import ArchiveGateway
from penstock.rest.app import create_app
from tests.unit.jobmanager.history.test_archive import ended
from tests.unit.state.hostile import NAMES, damaged, with_damaged_value

MUTATIONS = 60


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return the JSON of the archive of a failed job."""
    folder = tmp_path_factory.mktemp("good")
    ended(folder, fail=True)
    [path] = (folder / "history").iterdir()
    return gzip.decompress(path.read_bytes())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "history").mkdir()
    return tmp_path / "history"


def name_of(document: dict[str, Any]) -> str:
    return f"{document['job']['id']}-{document['job']['start']}.json.gz"


def pages(document: dict[str, Any]) -> list[str]:
    """Return the paths of all pages of the job."""
    job = f"/jobs/{document['job']['id']}"
    vertices = [f"{job}/vertices/{vertex['id']}" for vertex in document["job"]["vertices"]]
    below = ("", "/plan", "/config", "/exceptions", "/checkpoints", "/checkpoints/config", "/timeline", "/history")
    subtasks = [f"{vertex}{page}" for vertex in vertices for page in ("", "/subtasks/0", "/metrics", "/backpressure")]
    checkpoints = [f"{job}/checkpoints/details/{number}" for number in document["details"]]
    cluster = ["/jobs", "/jobs/overview", "/overview", "/metrics"]
    return [*cluster, *(job + page for page in (*below, "/connectors", "/metrics")), *subtasks, *checkpoints]


@pytest.fixture
def client(folder: Path, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    """Return a client of a history server that reads the folder at every request."""
    monkeypatch.setattr(gateway_module, "SCAN_INTERVAL_S", -1.0)
    return TestClient(create_app(ArchiveGateway(Archives(str(folder)))))


def test_damaged_archives_end_in_error_codes_or_in_pages(good: bytes, folder: Path, client: TestClient) -> None:
    document = msgspec.json.decode(good)
    paths = pages(document)
    for seed in range(MUTATIONS):
        chance = random.Random(seed)
        content = damaged(good, chance) if seed % 4 == 0 else msgspec.json.encode(with_damaged_value(document, chance))
        file = folder / f"archive{seed}-1.json.gz"
        file.write_bytes(gzip.compress(content, 1))
        for page in ["/jobs/overview", *chance.sample(paths, 3)]:
            answer = client.get(page)
            assert answer.status_code < 500, (seed, page, answer.text)
        file.unlink()


@pytest.mark.parametrize("name", [name for name in NAMES if "/" not in name and "\0" not in name and len(name) < 200])
def test_an_archive_with_a_name_that_penstock_never_writes_is_refused(
    good: bytes, folder: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    written = f"{name}-1.json.gz"
    (folder / written).write_bytes(gzip.compress(good))
    archives = Archives(str(folder))
    assert len(list(archives.all())) == (1 if is_segment(written) else 0)
    assert is_segment(written) or "is not the name of an archive" in caplog.text


@pytest.mark.parametrize("name", ["../other-1.json.gz", "/etc/passwd", "a/b-1.json.gz", "..", ""])
def test_an_archive_outside_of_the_folder_is_not_read(good: bytes, folder: Path, name: str) -> None:
    (folder.parent / "other-1.json.gz").write_bytes(gzip.compress(good))
    with pytest.raises(StorageError, match="is not the name of an archive"):
        Archives(str(folder)).read(name)


@pytest.mark.parametrize("start", ["\u00b2", "9" * 150, "-", "x"])
def test_an_invalid_start_time_in_a_name_hides_no_other_archive(good: bytes, folder: Path, start: str) -> None:
    document = msgspec.json.decode(good)
    (folder / name_of(document)).write_bytes(gzip.compress(good))
    (folder / f"a-{start}.json.gz").touch()
    assert [archive.job.id for archive in Archives(str(folder)).all()] == [document["job"]["id"]]


def changed(document: dict[str, Any], **fields: Any) -> bytes:
    document = copy.deepcopy(document)
    document["job"] |= fields
    return msgspec.json.encode(document)


def test_one_hostile_archive_does_not_hide_the_others(good: bytes, folder: Path, client: TestClient) -> None:
    document = msgspec.json.decode(good)
    hostile = {
        "deep": good.replace(b'"checkpoints":{', b'"checkpoints":{"x":' + b"[" * 100_000 + b"]" * 100_000 + b",", 1),
        "id": changed(document, id="../../" + document["job"]["id"]),
        "huge": changed(document, start=2**70),
        "parallelism": changed(document, parallelism=10**12),
        "checkpoints": msgspec.json.encode({**document, "checkpoints": {"counts": "many"}}),
    }
    for name, content in hostile.items():
        (folder / f"{name}-99.json.gz").write_bytes(gzip.compress(content, 1))
    (folder / name_of(document)).write_bytes(gzip.compress(good))
    assert [job["jid"] for job in client.get("/jobs/overview").json()["jobs"]] == [document["job"]["id"]]
    for name in hostile:
        with pytest.raises(StorageError, match="is not an archive of a job"):
            Archives(str(folder)).read(f"{name}-99.json.gz")


def test_a_large_archive_is_read_only_up_to_its_limit(
    good: bytes, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "a-1.json.gz").write_bytes(gzip.compress(good))
    monkeypatch.setattr(archive_module, "MAX_PACKED_BYTES", 100)
    with pytest.raises(StorageError, match="is larger than"):
        Archives(str(folder)).read("a-1.json.gz")


def renamed(document: dict[str, Any], number: int) -> dict[str, Any]:
    """Return the archive of another job that started at `number`."""
    document = copy.deepcopy(document)
    document["job"] |= {"id": f"job{number}", "start": number}
    return document


def padded(document: dict[str, Any], number: int, values: int) -> bytes:
    """Return an archive with more values, which is still a valid archive."""
    document = renamed(document, number)
    document["metrics"][""] = {"times": [1] * values, "series": {}}
    return msgspec.json.encode(document)


def test_archives_that_expand_strongly_are_read_last_with_a_timeout_and_hide_no_other(
    good: bytes, folder: Path, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = msgspec.json.decode(good)
    bomb = gzip.compress(good[:-1] + b" " * (archive_module.MAX_BYTES + 1), 1)
    crowded = gzip.compress(padded(document, 1, archive_module.MAX_VALUES + 1), 1)
    assert max(len(bomb), len(crowded)) < archive_module.MAX_BYTES // 100
    for number in range(100, 120):
        (folder / f"bomb{number}-{number}.json.gz").write_bytes(bomb)
        (folder / f"crowd{number}-{number}.json.gz").write_bytes(crowded)
    for number in range(20):
        (folder / f"job{number}-{number}.json.gz").write_bytes(
            gzip.compress(msgspec.json.encode(renamed(document, number)))
        )
    unpacked: list[int] = []
    unpack, read = archive_module._unpacked, Archives.read_sized
    clock = [0.0]

    def counted(data: bytes, max_packed_bytes: int, max_bytes: int) -> bytes:
        unpacked.append(max_bytes)
        clock[0] += 0.1 if max_bytes == archive_module.MAX_BYTES else 0.001
        return unpack(data, max_packed_bytes, max_bytes)

    monkeypatch.setattr(archive_module, "_unpacked", counted)
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    monkeypatch.setattr(gateway_module, "SCAN_BUDGET_S", 0.5)
    jobs = {job["jid"] for job in client.get("/jobs/overview").json()["jobs"]}
    assert jobs == {f"job{number}" for number in range(20)}
    assert unpacked.count(gateway_module.SMALL_BYTES) == 60
    assert 1 <= unpacked.count(archive_module.MAX_BYTES) <= 6, "the time of one look"
    for error in ("bomb100-100.json.gz", "crowd100-100.json.gz"):
        with pytest.raises(StorageError, match=r"is larger than 64 MiB|has at most 1000000"):
            read(Archives(str(folder)), error)


def test_an_unfinished_scan_of_archives_continues_with_the_next_request(
    good: bytes, folder: Path, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_module, "SCAN_INTERVAL_S", 1000.0)
    monkeypatch.setattr(gateway_module, "SCAN_BUDGET_S", -1.0)
    document = msgspec.json.decode(good)
    (folder / "job1-1.json.gz").write_bytes(gzip.compress(msgspec.json.encode(renamed(document, 1))))
    assert client.get("/jobs/overview").json()["jobs"] == []
    monkeypatch.setattr(gateway_module, "SCAN_BUDGET_S", 1000.0)
    assert [job["jid"] for job in client.get("/jobs/overview").json()["jobs"]] == ["job1"]


def test_the_largest_archives_are_skipped_if_all_need_too_much_memory(
    good: bytes, folder: Path, client: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    document = msgspec.json.decode(good)
    for number in range(9):
        values = 20_000 if number % 3 == 0 else 0
        (folder / f"job{number}-{number}.json.gz").write_bytes(gzip.compress(padded(document, number, values), 1))
    monkeypatch.setattr(gateway_module, "MAX_MEMORY", 3_000_000)
    for _ in range(2):
        jobs = {job["jid"] for job in client.get("/jobs/overview").json()["jobs"]}
        assert {f"job{number}" for number in range(9) if number % 3} <= jobs
        assert len(jobs) == 7
    assert "is not shown" in caplog.text


def test_an_older_archive_of_a_job_is_shown_after_the_newest_was_deleted(
    good: bytes, folder: Path, client: TestClient
) -> None:
    document = msgspec.json.decode(good)
    for start in (1, 2):
        document["job"]["start"] = start
        (folder / f"{document['job']['id']}-{start}.json.gz").write_bytes(gzip.compress(msgspec.json.encode(document)))
    assert [job["start-time"] for job in client.get("/jobs/overview").json()["jobs"]] == [2]
    (folder / f"{document['job']['id']}-2.json.gz").unlink()
    assert [job["start-time"] for job in client.get("/jobs/overview").json()["jobs"]] == [1]


@pytest.mark.parametrize("limit", ["MAX_VALUES", "MAX_BYTES", "MAX_PACKED_BYTES"])
def test_the_archive_of_a_large_job_is_written_without_its_largest_parts(
    good: bytes,
    folder: Path,
    client: TestClient,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    limit: str,
) -> None:
    """A job of 20 vertices with a parallelism of 1,000 has more values than the history server reads."""
    archive = archive_module.decoded(good)
    made = random.Random(1)
    values: list[dict[str, Any]] = [{f"metric{number}": made.random() for number in range(40)} for _ in range(500)]
    archive.subtasks = [archive_module.SubtaskNumbers("0", subtask, of_one) for subtask, of_one in enumerate(values)]
    monkeypatch.setattr(archive_module, limit, {"MAX_VALUES": 10_000}.get(limit, 2**14))
    written = Archives(str(folder)).write(archive)
    found = Archives(str(folder)).read(written.rpartition("/")[2])
    assert (found.subtasks, found.details, found.job) == ([], archive.details, archive.job)
    assert "it has no subtasks" in caplog.text
    for page in pages(msgspec.json.decode(good)):
        assert client.get(page).status_code < 500, page


def test_the_archive_of_a_job_is_written_even_if_no_removal_makes_it_small_enough(
    good: bytes, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(archive_module, "MAX_VALUES", 5)
    Archives(str(folder)).write(archive_module.decoded(good))
    assert len(list(folder.iterdir())) == 1
    assert "is too large for the history server" in caplog.text


def test_an_emptied_folder_costs_one_check_of_each_archive(tmp_path: Path) -> None:
    gateway = ArchiveGateway(Archives(str(tmp_path)))
    names = [f"job{number}-{number}.json.gz" for number in range(10_000)]
    gateway._read = {name: name.partition("-")[0] for name in names}
    gateway._shown = {job_id: name for name, job_id in gateway._read.items()}
    began = time.perf_counter()
    assert gateway._scan([])
    assert time.perf_counter() - began < 3
    assert not gateway._read
