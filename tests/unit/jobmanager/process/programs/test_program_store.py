"""Stored bundles and programs, and files in the store that others have written or damaged."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import msgspec
import pytest

from penstock.common.errors import Fenced, InvalidJob, StorageError
from penstock.common.program.bundle import digest_of
from penstock.jobmanager.process.programs.jars import SessionJars
from penstock.jobmanager.process.programs.messages import ProgramEnd, ProgramSpec
from penstock.jobmanager.process.programs.outputs import ProgramOutputs
from penstock.jobmanager.process.programs.programs import ProgramRunner
from penstock.jobmanager.process.programs.running_program import RunningProgram
from penstock.jobmanager.process.programs.store import program_store
from penstock.jobmanager.process.programs.store.program_store import ProgramStore
from penstock.metrics.store import MetricStore
from penstock.rest.errors import NotFound

if TYPE_CHECKING:
    from penstock.jobmanager.cluster.spark_cluster import SharedCluster

CONTENT = b"print(1)\n"


@pytest.fixture
def store(tmp_path: Path) -> ProgramStore:
    return ProgramStore(str(tmp_path))


def spec(number: int = 0, **more: object) -> ProgramSpec:
    digits = f"{number:032x}"
    values = {
        "id": digits,
        "bundle": "job.py",
        "digest": digest_of(CONTENT),
        "entry": "job.py",
        "job_id": digits,
        **more,
    }
    return msgspec.convert(values, ProgramSpec)


def test_a_bundle_is_found_by_its_id(store: ProgramStore) -> None:
    jar = store.put_bundle("job.py", CONTENT)
    assert jar.id == f"{digest_of(CONTENT)}_job.py"
    assert [one.id for one in store.bundles()] == [jar.id]
    assert store.find(jar.id) == ("job.py", digest_of(CONTENT))
    assert store.bundle("job.py", digest_of(CONTENT)) == CONTENT


def test_the_same_bundle_is_stored_once(store: ProgramStore) -> None:
    assert store.put_bundle("job.py", CONTENT).id == store.put_bundle("job.py", CONTENT).id
    assert len(store.bundles()) == 1


@pytest.mark.parametrize("name", ["a b.py", "ü.py", "a#b.py", "a?b.py", "a%2Fb.py", "a_b.tar.gz", "*.zip", "[x].whl"])
def test_a_name_with_special_characters_is_kept(store: ProgramStore, name: str) -> None:
    jar = store.put_bundle(name, CONTENT)
    assert [one.name for one in store.bundles()] == [name]
    found, digest = store.find(jar.id)
    assert found == name
    assert store.bundle(found, digest) == CONTENT
    store.delete_bundle(found, digest)
    assert store.bundles() == []


@pytest.mark.parametrize(
    "name",
    [
        "",
        "job",
        "job.txt",
        "../job.py",
        "a/job.py",
        "/job.py",
        ".py",
        ".job.py",
        "job\n.py",
        "job\0.py",
        "x" * 300 + ".py",
    ],
)
def test_another_name_is_refused(store: ProgramStore, name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidJob) as refusal:
        store.put_bundle(name, CONTENT)
    assert refusal.value.remedy
    assert list(tmp_path.rglob("*")) == []


def test_an_empty_or_large_bundle_is_refused(store: ProgramStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidJob, match=r"job\.py is empty"):
        store.put_bundle("job.py", b"")
    monkeypatch.setattr(program_store, "MAX_BYTES", 3)
    with pytest.raises(InvalidJob, match=r"job\.py has more than"):
        store.put_bundle("job.py", b"1234")
    assert store.bundles() == []


@pytest.mark.parametrize(
    "jar_id", ["", "_", "job.py", f"{'0' * 64}_job.py", f"{digest_of(CONTENT)}_other.py", "../x_y.py"]
)
def test_an_unknown_id_is_not_found(store: ProgramStore, jar_id: str) -> None:
    store.put_bundle("job.py", CONTENT)
    with pytest.raises(NotFound, match="GET /jars"):
        store.find(jar_id)


def test_a_damaged_or_deleted_bundle_is_an_error(store: ProgramStore, tmp_path: Path) -> None:
    jar = store.put_bundle("job.py", CONTENT)
    file = tmp_path / "bundles" / digest_of(CONTENT) / "job.py"
    file.write_bytes(CONTENT[:-1])
    with pytest.raises(StorageError, match="is damaged"):
        store.bundle("job.py", digest_of(CONTENT))
    assert store.put_bundle("job.py", CONTENT).id == jar.id  # the upload repairs it
    assert store.bundle("job.py", digest_of(CONTENT)) == CONTENT
    store.delete_bundle("job.py", digest_of(CONTENT))
    with pytest.raises(NotFound, match="upload it again"):
        store.bundle("job.py", digest_of(CONTENT))
    store.delete_bundle("job.py", digest_of(CONTENT))


def test_foreign_files_among_the_bundles_are_not_listed(store: ProgramStore, tmp_path: Path) -> None:
    store.put_bundle("job.py", CONTENT)
    bundles = tmp_path / "bundles"
    (bundles / "README").write_text("hello")
    for folder, name in (("notes", "job.py"), (digest_of(CONTENT), "notes.txt"), (digest_of(CONTENT), ".hidden.py")):
        (bundles / folder).mkdir(exist_ok=True)
        (bundles / folder / name).write_bytes(CONTENT)
    assert [jar.name for jar in store.bundles()] == ["job.py"]


def test_programs_are_returned_in_the_order_of_their_submission(store: ProgramStore) -> None:
    stored = [spec(number, submitted_at=10 - number, args=["ü", ""]) for number in range(3)]
    for one in stored:
        store.put(one)
    assert store.programs() == stored[::-1]
    store.remove(stored[1])
    store.remove(stored[1])
    assert store.programs() == [stored[2], stored[0]]


class Programs:
    """Running programs of a session, as far as uploaded programs need them."""

    def __init__(self, store: ProgramStore) -> None:
        self.store, self.registering, self.running = store, threading.Lock(), list[ProgramSpec]()

    def programs(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(spec=one) for one in self.running]


def test_a_deleted_bundle_stays_as_long_as_a_program_uses_it(store: ProgramStore) -> None:
    programs, clock = Programs(store), SimpleNamespace(now=1e9)
    jars = SessionJars(cast("ProgramRunner", programs), 1e9, lambda: clock.now)
    jar = jars.upload("job.py", CONTENT)
    programs.running = [spec()]
    jars.delete(jar.id)
    assert jars.jars() == []
    with pytest.raises(NotFound):
        jars.delete(jar.id)
    assert store.bundle("job.py", digest_of(CONTENT)) == CONTENT
    clock.now += 3600
    jars.sweep_sometimes()
    assert store.bundle("job.py", digest_of(CONTENT)) == CONTENT
    programs.running = []
    clock.now += 3600
    jars.sweep_sometimes()
    with pytest.raises(NotFound):
        store.bundle("job.py", digest_of(CONTENT))


def test_an_upload_after_the_deletion_is_shown_and_kept(store: ProgramStore) -> None:
    programs = Programs(store)
    jars = SessionJars(cast("ProgramRunner", programs), 1e9)
    programs.running = [spec()]
    jars.delete(jars.upload("job.py", CONTENT).id)
    jar = jars.upload("job.py", CONTENT)
    assert [one.id for one in jars.jars()] == [jar.id]
    programs.running = []
    jars.delete(jar.id)
    assert store.bundles(with_hidden=True) == []


def test_bundles_that_are_not_used_expire(store: ProgramStore) -> None:
    programs, clock = Programs(store), SimpleNamespace(now=time.time())
    jars = SessionJars(cast("ProgramRunner", programs), 86_400.0, lambda: clock.now)
    used, unused = jars.upload("job.py", CONTENT), jars.upload("other.py", b"2")
    programs.running = [spec()]
    clock.now += 86_000
    jars.sweep_sometimes()
    assert {jar.id for jar in jars.jars()} == {used.id, unused.id}
    clock.now += 4_000
    jars.sweep_sometimes()
    assert [jar.id for jar in jars.jars()] == [used.id]


def test_a_sent_graph_is_stored_with_its_program_and_removed_with_it(store: ProgramStore, tmp_path: Path) -> None:
    program = spec(bundle="remote environment", graph={"penstock": "1", "python": "3", "collects": False})
    store.put_graph(program.id, CONTENT)
    store.put(program)
    assert store.programs() == [program]
    assert store.bundles() == []
    assert store.graph(program) == CONTENT
    (tmp_path / "graphs" / program.id).write_bytes(b"other")
    with pytest.raises(StorageError, match="is damaged"):
        store.graph(program)
    store.remove(program)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    with pytest.raises(NotFound, match="is not stored"):
        store.graph(program)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        msgspec.json.encode(spec(7))[:-20],
        msgspec.json.encode(spec(7)).replace(b'"job.py"', b"7"),
        msgspec.json.encode(spec(7, id="../../x")),
        msgspec.json.encode(spec(7, job_id="x")),
        msgspec.json.encode(spec(7, digest="../..")),
        msgspec.json.encode(spec(7, bundle="../job.py")),
        msgspec.json.encode(spec(8)),  # the content of another file
    ],
)
def test_a_file_that_describes_no_program_is_ignored(
    store: ProgramStore, tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    store.put(spec(1))
    (tmp_path / "programs" / f"{7:032x}.json").write_bytes(content)
    assert store.programs() == [spec(1)]
    assert "does not describe a program" in caplog.text


def test_a_program_of_a_later_version_with_more_fields_is_read(store: ProgramStore, tmp_path: Path) -> None:
    store.put(spec(1))
    file = tmp_path / "programs" / f"{1:032x}.json"
    file.write_bytes(file.read_bytes().replace(b"{", b'{"later": [1],', 1))
    assert store.programs() == [spec(1)]


@pytest.mark.parametrize(("code", "kept"), [("", []), (Fenced.code, [spec()])], ids=["ended", "taken-over"])
def test_a_program_that_ends_during_a_rescale_is_removed_unless_another_session_has_it(
    store: ProgramStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, kept: list[ProgramSpec]
) -> None:
    def no_cluster() -> SharedCluster:
        raise AssertionError("the program needs no cluster")

    programs = ProgramRunner(no_cluster, {}, store, MetricStore(), 10, 60.0, str(tmp_path))
    program = RunningProgram(spec(), ProgramOutputs(str(tmp_path), {}).new("program", {}))
    put = store.put

    def put_and_end(program_spec: ProgramSpec) -> None:
        put(program_spec)
        program.note_end(ProgramEnd(code))

    monkeypatch.setattr(store, "put", put_and_end)
    programs._store_again(program)
    assert store.programs() == kept
