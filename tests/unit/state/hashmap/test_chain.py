"""The files that a checkpoint writes: the plan, and its effect over many checkpoints."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.state.files import FileRef
from penstock.state.hashmap import segment_chain as chain
from penstock.state.hashmap.segment_chain import Chain, StateFile, merges, plan
from penstock.state.hashmap.slices import Round
from penstock.state.key_groups import KeyGroupRange
from tests.unit.state.support import VALUE, Backends, at, content

MB = 1 << 20
ALL = KeyGroupRange(0, 127)


def file(size: int, entries: int, *, role: Any = "base", level: int | None = None, checkpoint_id: int = 0) -> StateFile:
    return StateFile(FileRef("p", size, "crc32:0"), role, ALL, entries, checkpoint_id, level)


def log(entries: int, level: int | None = 0, checkpoint_id: int = 0) -> StateFile:
    return file(entries * 20, entries, role="log", level=level, checkpoint_id=checkpoint_id)


BASE = file(20 * MB, 1_000_000)


@pytest.mark.parametrize(
    ("confirmed", "changed", "total"),
    [
        (None, 0, 0),
        (None, 5, 1_000_000),
        (Chain((BASE,)), 5, 1500),
        (Chain((BASE,)), 600_000, 1_000_000),
        (Chain(), 7, 0),
    ],
    ids=["first", "first of much", "small state", "most changed", "all gone"],
)
def test_everything_is_written_if_it_is_the_cheapest_or_only_option(
    confirmed: Chain | None, changed: int, total: int
) -> None:
    assert plan(confirmed, changed, total).full


def test_an_unchanged_state_writes_nothing_new() -> None:
    decided = plan(Chain((BASE,)), 0, 100)
    assert (decided.full, decided.merge, decided.slice_entries, decided.start_round) == (False, 0, 0, False)


def test_a_round_starts_when_the_logs_have_the_size_of_the_base() -> None:
    half = Chain((BASE,), (file(10 * MB, 500_000, role="log"),))
    whole = Chain((BASE,), (file(20 * MB, 1_000_000, role="log"),))
    assert not plan(half, 10_000, 1_000_000).start_round
    assert plan(whole, 10_000, 1_000_000).start_round
    assert not plan(whole, 0, 1_000_000).start_round
    assert plan(whole, 300_000, 1_000_000).full, "a round of three large slices would cost more than writing everything"
    assert not plan(half, 300_000, 1_000_000).full


def test_a_round_starts_when_many_small_logs_exist() -> None:
    many = Chain((BASE,), tuple(log(10, level=None) for _ in range(chain.MAX_LOGS + 1)))
    assert plan(many, 10, 1_000_000).start_round


def test_slices_are_written_in_proportion_to_the_logs() -> None:
    under_way = Chain((BASE,), (log(1_000_000, None),), round=Round(1, []), credit=MB)
    decided = plan(under_way, 50_000, 1_000_000)
    assert decided.slice_entries == pytest.approx(50_000, rel=0.01)
    little = Chain((BASE,), (log(1_000_000, None),), round=Round(1, []), credit=MB // 10)
    assert plan(little, 5_000, 1_000_000).slice_entries == 0, "tiny slices would only make many files"


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        ([], (0, 0)),
        ([0] * 6, (0, 0)),
        ([0] * 7, (7, 1)),
        ([0] * 9, (9, 1)),
        ([1] * 6 + [0] * 7, (7, 1)),
        ([1] * 7 + [0] * 7, (14, 2)),
        ([None] + [0] * 7, (7, 1)),
        ([0] * 7 + [None], (0, 0)),
    ],
)
def test_small_logs_are_merged_like_a_binary_counter(levels: list[int | None], expected: tuple[int, int]) -> None:
    assert merges([log(10, level) for level in levels], 10, limit=10_000) == expected


def test_logs_are_not_merged_beyond_the_limit() -> None:
    assert merges([log(100) for _ in range(7)], 100, limit=700) == (0, 0)
    assert plan(Chain((BASE,), tuple(log(9_000) for _ in range(7))), 20_000, 1_000_000).level is None


# --- over many checkpoints ----------------------------------------------------------------------------------------------


@pytest.fixture
def hashmap(tmp_path: Path) -> Iterator[Backends]:
    made = Backends("hashmap", tmp_path)
    yield made
    made.close()


def run(backends: Backends, entries: int, changes: int, checkpoints: int) -> tuple[list[int], list[int], Any]:
    """Return the uploaded bytes and the number of files of each checkpoint. Some entries change before each checkpoint."""
    backend = backends.create()
    state = backend.get_state(VALUE)
    chosen = random.Random(5)
    uploaded, files = [], []
    for i in range(entries):
        at(backend, f"key-{i}")
        state.update(i)
    for checkpoint in range(1, checkpoints + 1):
        handle = backends.snapshot(backend, checkpoint)
        uploaded.append(handle["bytes_uploaded"])
        files.append(len(handle["files"]))
        for i in chosen.sample(range(entries), changes):
            at(backend, f"key-{i}")
            state.update(checkpoint)
    assert content(backends.restored([backends.snapshot(backend, checkpoints + 1)]), VALUE) == content([backend], VALUE)
    return uploaded, files, backend


def test_no_checkpoint_of_a_large_state_is_much_larger_than_others(
    hashmap: Backends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain, "MERGE_ENTRIES", 0)  # as in a state that is large enough to use its share
    uploaded, files, _ = run(hashmap, 20_000, 200, 350)
    full, later = uploaded[0], uploaded[1:]
    assert max(later) < full * 0.06, (
        "after a change of one percent, log and slice must be far smaller than a full checkpoint"
    )
    assert sum(later) / len(later) < full * 0.035, "each change is written about twice"
    assert max(files) < 300
    assert sum(later[200:]) / len(later[200:]) > full * 0.015, "rounds do run"


def test_many_checkpoints_of_few_changes_leave_few_files(hashmap: Backends) -> None:
    uploaded, files, _ = run(hashmap, 20_000, 1, 300)
    assert max(files) < 40
    assert max(uploaded[1:]) < uploaded[0] * 0.05


def test_old_files_are_released(hashmap: Backends) -> None:
    _, _, _backend = run(hashmap, 5_000, 250, 120)
    referred = {f["path"] for f in hashmap.storage_of_checkpoint(120)}
    first = {f["path"] for f in hashmap.storage_of_checkpoint(1)}
    assert not referred & first
    total = sum(f["size"] for f in hashmap.storage_of_checkpoint(120))
    assert total < 6 * sum(f["size"] for f in hashmap.storage_of_checkpoint(1))
