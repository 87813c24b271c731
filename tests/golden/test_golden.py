"""Today's engine restores the savepoints of every release, at other parallelisms and with either backend."""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from penstock.testing import JobHarness
from penstock.testing.snapshot import JobSnapshot, SnapshotFolder
from tests.golden import borders, history
from tests.golden.program import FEATURES
from tests.golden.record import SETS

RELEASES = sorted(path.name for path in SETS.iterdir())
BORDERS = sorted(release for release in RELEASES if (SETS / release / "borders").exists())


@cache
def pushed_before() -> tuple[Any, int]:
    """Return the journal up to the savepoint, and the time of the savepoint (ms)."""
    with JobHarness() as harness:
        history.build(harness, ["rolling-sum"])
        history.push_before(harness)
        return harness._journal, harness.clock.now_ms()


@cache
def expected(release: str) -> dict[str, list[str]]:
    """Return the results of every output after the savepoint, as the release itself computed them."""
    results: dict[str, list[str]] = json.loads((SETS / release / "results.json").read_text())
    return results


def kept_snapshot(path: Path, folder: Path) -> JobSnapshot:
    """Return a copy of a kept savepoint that the harness can restore."""
    shutil.copytree(path, folder / "kept")
    journal, time = pushed_before()
    return JobSnapshot(f"file://{folder}/kept", {}, journal, time, SnapshotFolder())


RESTORES = [
    ("hashmap", "hashmap", 3),
    ("rocksdb", "rocksdb", 3),
    ("rocksdb", "hashmap", 3),
    ("hashmap", "rocksdb", 1),
    ("hashmap", "rocksdb", 3),
]
"""The backend that recorded a savepoint, the backend that restores it, and the parallelism."""


def marks_of(release: str, restore: tuple[str, str, int]) -> list[pytest.MarkDecorator]:
    """Mark repetitions as slow: the last restore, and a change of the backend in a savepoint of a former release."""
    is_repetition = restore == RESTORES[-1] or (release != RELEASES[-1] and restore[0] != restore[1])
    return [pytest.mark.slow] if is_repetition else []


@pytest.mark.parametrize(
    ("release", "recorded_by", "restored_by", "parallelism"),
    [pytest.param(one, *restore, marks=marks_of(one, restore)) for one in RELEASES for restore in RESTORES],
)
def test_a_kept_savepoint_has_the_results_of_its_release(
    release: str, recorded_by: str, restored_by: str, parallelism: int, tmp_path: Path
) -> None:
    snapshot = kept_snapshot(SETS / release / recorded_by, tmp_path)
    results = expected(release)

    def build(harness: JobHarness) -> None:
        history.build(harness, results)

    with JobHarness.restore_into(snapshot, build, parallelism, backend=restored_by) as harness:
        history.push_after(harness)
        given = {name: history.results(harness, name) for name in results}
    different = [name for name in results if given[name] != results[name]]
    assert not different, {name: _first_difference(given[name], results[name]) for name in different}


def _first_difference(given: list[str], wanted: list[str]) -> dict[str, Any]:
    only_given = [value for value in given if value not in wanted]
    missing = [value for value in wanted if value not in given]
    return {"only today": only_given[:3], "missing today": missing[:3], "numbers": (len(given), len(wanted))}


def test_the_newest_set_has_every_feature() -> None:
    """A feature without a kept savepoint is not protected: record a set when you add one."""
    assert set(expected(RELEASES[-1])) == set(FEATURES)


@pytest.fixture
def recorded_folder() -> Iterator[Path]:
    """The folder in which the job was recorded. Only one test at a time on this machine uses it."""
    with Path(f"{borders.FOLDER}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(borders.FOLDER, ignore_errors=True)
        yield borders.FOLDER
        shutil.rmtree(borders.FOLDER, ignore_errors=True)


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("release", BORDERS)
def test_kept_positions_and_commits_repeat_and_lose_no_record(
    release: str, parallelism: int, tmp_path: Path, recorded_folder: Path
) -> None:
    kept = SETS / release / "borders"
    shutil.copytree(kept / "out", recorded_folder / "out")
    borders.write_input("first.txt", borders.LINES)
    borders.write_input("second.txt", borders.LATER)
    with JobHarness() as pushing:
        pushing.source("asked")
        pushing.push("asked", 1, 2, 3, 4)
        journal = pushing._journal
    shutil.copytree(kept / "savepoint", tmp_path / "kept")
    snapshot = JobSnapshot(f"file://{tmp_path}/kept", {}, journal, 2_000, SnapshotFolder())
    with JobHarness.restore_into(snapshot, borders.build, parallelism) as harness:
        harness.push("asked", 5, 6)
        harness.run()
        harness.advance_processing_time(by=10_000)
        assert sorted(harness.outputs("answers")) == [1, 2, 3, 4, 5, 6, 10, 20, 30, 40, 50, 60]
        harness.advance_processing_time(by=700_000)  # past the timeout of lists that are not full
        assert sorted(chain.from_iterable(harness.outputs("gathered-lists"))) == [4, 5, 6]
        harness.snapshot()
        given = {name: borders.committed(name) for name in ("lines", "squares")}
    lines = sorted(borders.LINES + borders.LATER)
    squares = sorted(str(number * number) for number in range(borders.GENERATED))
    assert given == {
        "lines": dict.fromkeys(("text", "parquet", "ledger"), lines),
        "squares": dict.fromkeys(("text", "parquet", "ledger"), squares),
    }
