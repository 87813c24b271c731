"""Aggregates that a program adds: which of them continue with exact values from the state of the others."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.windowing.aggregates import FieldAggregate
from penstock.windowing.field_migration import FieldMigration

Part = tuple[Any, Any]
Parts = list[Part]
EARLIER, LATER = [{"a": 9, "b": 1}, {"a": None, "b": 2}, {"a": 2, "b": 3}], [{"a": 4, "b": 5}]


def after(aggregate: FieldAggregate, accumulator: Any, records: list[Any]) -> Any:
    for record in records:
        accumulator = aggregate.add(record, accumulator)
    return accumulator


def results(old: Parts, new: Parts, records: list[Any]) -> Any:
    """Return the result after a change of the program from `old` to `new`, before the last record."""
    earlier, later = FieldAggregate(old), FieldAggregate(new)
    accumulator = after(earlier, earlier.create_accumulator(), records[:-1])
    return later.get_result(after(later, FieldMigration(old, new).migrate(accumulator), records[-1:]))


@pytest.mark.parametrize(
    ("old", "added"),
    [
        (("sum", "a"), ("count", None)),
        (("sum", "a"), ("count", "a")),
        (("sum", "a"), ("mean", "a")),
        (("mean", "a"), ("sum", "a")),
        (("max", "a"), ("count", "a")),
        (("max", "a"), ("count", None)),
    ],
    ids=str,
)
def test_an_added_aggregate_continues_exactly(old: Part, added: Part) -> None:
    migration = FieldMigration([old], [old, added])
    assert (migration.refusal, migration.changes) == ("", ())
    new = FieldAggregate([old, added])
    uninterrupted = new.get_result(after(new, new.create_accumulator(), EARLIER + LATER))
    assert results([old], [old, added], EARLIER + LATER) == uninterrupted


@pytest.mark.parametrize(
    ("added", "value"),
    [(("max", "a"), 4), (("min", "a"), 4), (("sum", "b"), 5), (("count", "b"), 1), (("mean", "b"), 5.0)],
    ids=str,
)
def test_another_added_aggregate_knows_only_the_records_after_the_change(added: Part, value: Any) -> None:
    old: Parts = [("sum", "a")]
    migration = FieldMigration(old, [*old, added])
    assert migration.changes == (f"{added[0]}({added[1]!r}) is new and starts empty",)
    assert results(old, [*old, added], EARLIER + LATER) == (15, value)
