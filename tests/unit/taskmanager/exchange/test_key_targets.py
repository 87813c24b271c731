from __future__ import annotations

import random
from operator import itemgetter

import pytest

from penstock.graph.transformation import Exchange, Partitioning
from penstock.records.batch import RowBatch
from penstock.state.key_groups import KeyGroupCache, subtask_for_key_group
from penstock.taskmanager.exchange.key_group import KeyGroupWriter, KeyTargets
from penstock.taskmanager.exchange.rows import decode_buffer
from tests.unit.taskmanager.support import MAX_PARALLELISM, exchange


def targets(parallelism: int) -> list[int]:
    return [subtask_for_key_group(group, parallelism, MAX_PARALLELISM) for group in range(MAX_PARALLELISM)]


@pytest.mark.parametrize("keys", [20, 3000, 10**6], ids="{} keys".format)
def test_many_keys_have_the_same_targets_as_each_single_key(keys: int) -> None:
    rng, of_groups = random.Random(keys), targets(3)
    together, one_by_one = KeyTargets(of_groups), KeyGroupCache(MAX_PARALLELISM)
    for _ in range(80):
        batch = [f"s{rng.randrange(keys)}" for _ in range(2000)]
        assert together.of(batch) == [of_groups[one_by_one[key]] for key in batch]


def test_keys_of_mixed_types_have_the_same_targets_as_each_single_key() -> None:
    keys = [1, "a", (1, "b"), None, 2.5, b"c"] * 400
    groups, of_groups = KeyGroupCache(MAX_PARALLELISM), targets(5)
    assert KeyTargets(of_groups).of(keys) == [of_groups[groups[key]] for key in keys]


@pytest.mark.parametrize("parallelism", [2, 3, 8, 12])
def test_every_record_arrives_once_in_order_with_its_time_at_the_subtask_of_its_key(parallelism: int) -> None:
    partitioning = Partitioning(Exchange.KEY_GROUP, itemgetter(0), 0)
    sent: dict[int, list[tuple[tuple[str, int], int]]] = {}

    def emit(target: int, row: bytes) -> None:
        batch = decode_buffer(row).batch()
        if batch is not None:
            rows = batch.rows()
            assert rows.timestamps is not None
            sent.setdefault(target, []).extend(zip(rows.values, rows.timestamps, strict=True))

    writer = KeyGroupWriter(exchange(partitioning, parallelism), 0, emit)
    records = [(f"k{n * 7919 % 500}", n) for n in range(30_000)]
    for begin in range(0, len(records), 5000):
        part = records[begin : begin + 5000]
        writer.write(RowBatch(part, [n for _, n in part]))
    writer.flush()
    groups, of_groups = KeyGroupCache(MAX_PARALLELISM), targets(parallelism)
    expected: dict[int, list[tuple[tuple[str, int], int]]] = {}
    for record in records:
        expected.setdefault(of_groups[groups[record[0]]], []).append((record, record[1]))
    assert sent == expected
