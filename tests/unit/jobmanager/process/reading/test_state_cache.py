"""The cache of look-ups. Groups in the cache are not read again, and its size is bounded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from penstock.checkpoint.savepoint.contents import OperatorContents
from penstock.jobmanager.process.reading.state_cache import StateCache
from penstock.state.reader import StateRow


class Contents:
    """The content of an operator with this number of entries of this value in every key group."""

    uid = "count"

    def __init__(self, value: str = "", entries: int = 10) -> None:
        self.read: list[int] = []
        self.value = value
        self.entries = entries

    def rows_of_group(self, name: str, group: int) -> Iterator[StateRow]:
        self.read.append(group)
        return (StateRow(f"{name} {group} {n}", None, self.value) for n in range(self.entries))

    def rows(self, name: str) -> Iterator[StateRow]:
        self.read.append(-1)
        return (StateRow(f"{name} {n}", None, self.value) for n in range(1000))


def look(cache: StateCache, contents: Contents, group: int, path: str = "chk-1", name: str = "count") -> list[Any]:
    return [entry["key"] for entry in cache.group(path, cast(OperatorContents, contents), name, group)]


def test_a_group_is_read_once_for_each_checkpoint_and_state() -> None:
    cache, contents = StateCache(), Contents()
    first = look(cache, contents, 3)
    assert first == [f"count 3 {n}" for n in range(10)]
    assert look(cache, contents, 3) == first
    assert contents.read == [3]
    look(cache, contents, 3, path="chk-2")
    look(cache, contents, 3, name="other")
    assert contents.read == [3, 3, 3]


def test_the_least_recently_used_group_is_evicted_first() -> None:
    cache, contents = StateCache(max_bytes=30_000), Contents("x" * 1000)
    for group in (1, 2, 1, 3, 1):
        look(cache, contents, group)
    assert contents.read == [1, 2, 3]
    look(cache, contents, 2)
    assert contents.read == [1, 2, 3, 2]


def test_a_group_that_is_too_large_to_cache_is_read_each_time() -> None:
    cache, contents = StateCache(max_bytes=9_000), Contents("x" * 1000)
    assert len(look(cache, contents, 1)) == len(look(cache, contents, 1)) == 10
    assert contents.read == [1, 1]


def test_groups_without_entries_are_evicted_as_well() -> None:
    cache, contents = StateCache(max_bytes=10_000), Contents(entries=0)
    for checkpoint in range(100):
        look(cache, contents, 1, path=f"chk-{checkpoint}")
    look(cache, contents, 1, path="chk-0")
    assert len(contents.read) == 101


def test_unknown_keys_do_not_read_the_whole_state_each_time() -> None:
    cache, contents = StateCache(), Contents()
    samples = [cache.sample("chk-1", cast(OperatorContents, contents), "count") for _ in range(3)]
    assert contents.read == [-1]
    assert [len(sample) for sample in samples] == [100] * 3
