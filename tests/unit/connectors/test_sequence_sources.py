from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common.errors import InvalidJob, UserFunctionError
from penstock.common.typeinfo import Types
from penstock.common.types import Row
from penstock.connectors.core.source import ReadBounds
from penstock.connectors.simple.collection import CollectionSource
from penstock.connectors.simple.datagen import DataGeneratorSource, GeneratorSplitReader
from penstock.connectors.simple.number_seq import NumberSequenceSource
from penstock.connectors.simple.sequence import ranges
from penstock.taskmanager.worker import ManualClock
from tests.unit.connectors.support import open_split, read_all, read_source, read_with_restarts, splits_of


@given(st.integers(-50, 50), st.integers(0, 100), st.integers(1, 12))
def test_ranges_cover_everything_once(start: int, length: int, parts: int) -> None:
    found = ranges(start, start + length, parts)
    assert [n for low, high in found for n in range(low, high)] == list(range(start, start + length))
    assert (
        max((high - low for low, high in found), default=0) - min((high - low for low, high in found), default=0) <= 1
    )


def test_a_collection_keeps_its_order_in_one_split() -> None:
    source = CollectionSource(["c", "a", "b"])
    assert source.bounded
    assert len(splits_of(source)) == 1
    assert read_source(source, ReadBounds(max_records=2)) == ["c", "a", "b"]


def test_a_collection_in_many_splits_contains_every_value_once() -> None:
    source = CollectionSource(range(10), splits=4)
    assert len(splits_of(source)) == 4
    assert sorted(read_source(source)) == list(range(10))


def test_an_empty_collection_ends_at_once() -> None:
    assert read_source(CollectionSource([], Types.LONG())) == []


def test_a_collection_continues_from_its_position() -> None:
    source = CollectionSource([(n, str(n)) for n in range(7)])
    values, _ = read_with_restarts(source, splits_of(source)[0], ReadBounds(max_records=2))
    assert values == source.values


def test_tuples_become_rows_by_the_type() -> None:
    source = CollectionSource([("a", 1)], Types.ROW_NAMED(["id", "n"], [Types.STRING(), Types.LONG()]))
    assert source.values == [Row(id="a", n=1)]


@pytest.mark.parametrize("value", [("a",), 5, ("a", "b")])
def test_a_value_that_is_not_of_the_type_is_refused(value: Any) -> None:
    with pytest.raises(InvalidJob, match="value 1 of the collection"):
        CollectionSource([("a", 1), value], Types.TUPLE([Types.STRING(), Types.LONG()]))


def test_a_number_sequence_includes_both_ends() -> None:
    assert read_source(NumberSequenceSource(-1, 3)) == [-1, 0, 1, 2, 3]


def test_a_number_sequence_has_a_split_per_subtask() -> None:
    enumerator = NumberSequenceSource(1, 100).create_enumerator()
    enumerator.parallelism = 3
    assert len(enumerator.discover()) == 3


def test_an_empty_number_sequence_is_refused() -> None:
    with pytest.raises(InvalidJob):
        NumberSequenceSource(2, 1)


def test_a_bounded_generator_generates_every_index_once() -> None:
    source = DataGeneratorSource(lambda index: index * index, 10, splits=3)
    assert sorted(read_source(source)) == [n * n for n in range(10)]


def test_splits_of_an_unbounded_generator_share_the_indexes() -> None:
    source = DataGeneratorSource(lambda index: index, splits=2)
    assert not source.bounded
    readers = [open_split(source, split) for split in splits_of(source)]
    bounds = ReadBounds(max_records=3)
    batches = [reader.read(bounds) for reader in readers]
    assert [batch.rows().values for batch in batches if batch] == [[0, 2, 4], [1, 3, 5]]
    assert not any(reader.finished for reader in readers)


@given(st.integers(1, 3), st.integers(1, 5))
def test_a_generator_continues_from_its_position(splits: int, batch: int) -> None:
    source = DataGeneratorSource(lambda index: index, 11, splits=splits)
    values = [v for split in splits_of(source) for v in read_with_restarts(source, split, ReadBounds(batch))[0]]
    assert sorted(values) == list(range(11))


def test_a_rate_follows_the_clock() -> None:
    clock = ManualClock(1_000_000)
    reader = GeneratorSplitReader(lambda index: index, range(1000), 100.0, clock)
    made = 0
    for _ in range(50):
        batch = reader.read(ReadBounds())
        made += 0 if batch is None else len(batch)
        assert reader.read(ReadBounds()) is None
        due = reader.next_record_at()
        assert due is not None
        assert due > clock.now_ms()
        clock.set(due)
    assert made == 50
    assert clock.now_ms() - 1_000_000 == 500


def test_a_late_reader_receives_all_due_records() -> None:
    clock = ManualClock(1_000_000)
    reader = GeneratorSplitReader(lambda index: index, range(10_000), 1000.0, clock)
    clock.set(clock.now_ms() + 2000)
    assert reader.lag() == 2001
    batch = reader.read(ReadBounds(max_records=1500))
    assert batch is not None
    assert len(batch) == 1500


def test_the_rate_starts_again_after_a_restore() -> None:
    clock = ManualClock(1_000_000)
    reader = GeneratorSplitReader(lambda index: index, range(500, 1000), 10.0, clock)
    batch = reader.read(ReadBounds())
    assert batch is not None
    assert batch.values == [500]
    assert reader.position == 501


def test_an_error_of_the_generator_names_the_index() -> None:
    source = DataGeneratorSource(lambda index: 1 // (index - 3), 10)
    reader = open_split(source, splits_of(source)[0])
    with pytest.raises(UserFunctionError, match="index 3"):
        read_all(reader)


@pytest.mark.parametrize("arguments", [{"count": -1}, {"records_per_second": 0}, {"splits": 0}])
def test_a_generator_with_impossible_numbers_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidJob):
        DataGeneratorSource(lambda index: index, **arguments)
