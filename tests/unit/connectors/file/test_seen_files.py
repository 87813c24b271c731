"""A continuous file source reads every file once over any changes and failures. Its checkpoints remain small."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.checkpoint.files.manifest import SourceState, SplitPosition
from penstock.connectors.file.source.seen_files import FORGET_MS, KEPT, SeenFiles
from penstock.connectors.file.storage import FileStatus
from penstock.connectors.formats.record_format import StreamFormat
from penstock.taskmanager.worker import ManualClock
from tests.unit.connectors.file.file_job import FileJob, TimedFileSource
from tests.unit.connectors.support import splits_of

if TYPE_CHECKING:
    from pathlib import Path

TEXT = StreamFormat.text_line_format()
INTERVAL_MS = 5 * 60_000
HOUR_MS = 3_600_000


def watching(directory: Path, clock: ManualClock) -> TimedFileSource:
    source = TimedFileSource(TEXT, (str(directory),), discovery_interval_ms=INTERVAL_MS)
    source.clock = clock
    source.with_object_store_options = lambda options: source  # type: ignore[method-assign]
    return source


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


def test_manifests_stay_small_after_ten_thousand_deleted_files(inbox: Path) -> None:
    clock = ManualClock(0)
    job = FileJob(watching(inbox, clock), clock, parallelism=2)
    sizes = []
    for step in range(100):
        names = [inbox / f"{step:03}-{number:03}.txt" for number in range(100)]
        for path in names:
            path.write_text(f"{path.name}\n")
        job.epoch()
        sizes.append(len(job.take_checkpoint()))
        if step % 10 == 7:
            job.restart()
        for path in names:
            path.unlink()
        clock.set(clock.now_ms() + INTERVAL_MS)
    assert Counter(job.records) == Counter(f"{step:03}-{number:03}.txt" for step in range(100) for number in range(100))
    assert max(sizes) < 16 * (KEPT + 2 * 100) + 4_096
    assert max(sizes[50:]) <= max(sizes[:50]) + 1_024, "they grow"


def test_an_existing_file_needs_sixteen_bytes_of_a_manifest(inbox: Path) -> None:
    clock = ManualClock(0)
    job = FileJob(watching(inbox, clock), clock)
    for number in range(1_000):
        (inbox / f"a-name-of-some-length-{number}").write_text("x\n")
    job.epoch()
    assert len(job.take_checkpoint()) < 16 * 1_000 + 200


@pytest.mark.parametrize("parallelism", [1, 3])
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_every_file_is_read_once_after_a_restore_at_any_point(
    tmp_path_factory: pytest.TempPathFactory, parallelism: int, seed: int
) -> None:
    """Files appear with any modification time, change, disappear, or are missing in a listing. The job restores at any step."""
    chance = random.Random(seed)
    directory, aside = tmp_path_factory.mktemp("in"), tmp_path_factory.mktemp("aside")
    clock = ManualClock(0)
    job = FileJob(watching(directory, clock), clock, parallelism)
    expected: Counter[str] = Counter()
    contents: dict[Path, list[str]] = {}
    hidden: dict[Path, Path] = {}
    for step in range(40):
        match chance.choice(["come", "come", "change", "hide", "show", "go", "read", "read", "read", "keep", "fail"]):
            case "come":
                path = aside / f"f{step}"
                lines = [f"{step}/{number}" for number in range(chance.randint(0, 5))]
                path.write_text("".join(f"{line}\n" for line in lines))
                moment = chance.randint(0, 1 << 31)
                os.utime(path, (moment, moment))
                contents[path.rename(directory / path.name)] = lines
                expected.update(lines)
            case "change" if read_and_kept(job, contents):
                path = chance.choice(read_and_kept(job, contents))
                lines = [f"{step}/{number} again" for number in range(3)]
                path.write_text("".join(f"{line}\n" for line in lines))
                os.utime(path, (1 << 32, (1 << 32) + step))
                contents[path] = lines
                expected.update(lines)
            case "hide" if read_and_kept(job, contents):
                path = chance.choice(read_and_kept(job, contents))
                hidden[path] = path.rename(aside / path.name)
                del contents[path]
            case "show" if hidden:
                path, elsewhere = hidden.popitem()
                elsewhere.rename(path)
                contents[path] = path.read_text().split("\n")[:-1]
            case "go" if read_and_kept(job, contents):
                path = chance.choice(read_and_kept(job, contents))
                path.unlink()
                del contents[path]
            case "read":
                clock.set(clock.now_ms() + chance.choice([1, INTERVAL_MS]))
                job.epoch(chance.choice([0, 1, 3]))
            case "keep":
                job.take_checkpoint()
            case "fail":
                job.restart()
    for _ in range(60):
        clock.set(clock.now_ms() + INTERVAL_MS)
        job.epoch()
    assert Counter(job.records) == expected


def read_and_kept(job: FileJob, contents: dict[Path, list[str]]) -> list[Path]:
    """Return the files that were read completely at the last checkpoint. Only those may change or disappear."""
    records = set(job.checkpoint[1])
    return [path for path, lines in contents.items() if lines and records.issuperset(lines)]


def statuses(*names: str) -> list[FileStatus]:
    return [FileStatus(name, 1, 1) for name in names]


def test_files_of_a_mount_that_is_missing_for_days_are_remembered() -> None:
    clock = ManualClock(0)
    seen = SeenFiles(INTERVAL_MS, clock.now_ms)
    files = statuses(*map(str, range(KEPT + 10)))
    assert seen.take_new(files) == files
    for _ in range(10_000):
        clock.set(clock.now_ms() + INTERVAL_MS)
        assert not seen.take_new([])
    assert not seen.take_new(files)


def test_files_are_remembered_after_a_pause_of_the_job_and_with_another_clock() -> None:
    clock = ManualClock(0)
    seen = SeenFiles(INTERVAL_MS, clock.now_ms)
    files = statuses(*map(str, range(KEPT + 10)))
    seen.take_new(files)
    clock.set(1)
    seen.take_new(files[:1])
    state = json.loads(json.dumps(seen.snapshot()))
    later = SeenFiles(INTERVAL_MS, lambda: clock.now_ms() + 100 * HOUR_MS)
    later.restore(state)
    assert not later.take_new(files[:1])
    clock.set(50 * HOUR_MS)
    assert not later.take_new(files)


def test_files_missing_for_an_hour_of_listings_are_forgotten_except_the_newest() -> None:
    clock = ManualClock(0)
    seen = SeenFiles(INTERVAL_MS, clock.now_ms)
    first, rest = statuses("first"), statuses(*map(str, range(KEPT)))
    other = statuses("other")
    seen.take_new(first)
    seen.take_new(rest + other)
    seen.take_new(other)
    for _ in range(FORGET_MS // INTERVAL_MS + 10):
        clock.set(clock.now_ms() + INTERVAL_MS)
        seen.take_new(other)
    assert seen.take_new(rest + other) == []
    assert seen.take_new(first + rest + other) == first


def test_an_old_version_of_a_file_in_a_stale_listing_is_not_read_again() -> None:
    seen = SeenFiles(INTERVAL_MS)
    before, after = [FileStatus("a", 1, 1, "etag")], [FileStatus("a", 1, 2, "other")]
    assert seen.take_new(before) == before
    assert seen.take_new(after) == after
    assert seen.take_new(before) == []
    assert seen.take_new(after) == []


def test_old_checkpoints_with_the_paths_of_all_finished_splits_are_restored(inbox: Path) -> None:
    clock = ManualClock(0)
    source = watching(inbox, clock)
    for name in ("read", "begun", "away"):
        (inbox / name).write_text(f"{name} 1\n{name} 2\n")
    splits = {split.properties["path"].rpartition("/")[2]: split for split in splits_of(source)}
    known = {s.properties["path"]: [s.properties["modified_ms"], s.size, ""] for s in splits.values()}
    away = inbox / "away"
    away.rename(inbox / ".away")
    older = SourceState(
        splits=[
            SplitPosition(splits["read"].id, splits["read"].properties, [14, 3], finished=True, size=14),
            SplitPosition(splits["begun"].id, splits["begun"].properties, [8, 2], size=16),
            SplitPosition(splits["away"].id, splits["away"].properties, [14, 3], finished=True, size=14),
        ],
        enumerator={"state": {"seen": known, "gone": {str(away): 1_700_000_000_000}}, "discovered": True},
    )
    job = FileJob(source, clock)
    job.checkpoint = (msgspec.json.encode(older), [])
    job.restart()
    job.epoch()
    (inbox / ".away").rename(away)
    (inbox / "new").write_text("new\n")
    clock.set(INTERVAL_MS)
    job.epoch()
    assert job.records == ["begun 2", "new"]
    assert b'finished":true' not in job.take_checkpoint()
