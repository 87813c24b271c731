"""The rows of a running query as a client shows them."""

from __future__ import annotations

import random
from collections import Counter

from penstock.common.types import Row, RowKind
from penstock.table.client.live_rows import LiveRows

INSERT, BEFORE, AFTER, DELETE = (RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.DELETE)


def change(kind, *values):
    row = Row(*values)
    row.set_row_kind(kind)
    return row


def test_an_updated_row_keeps_its_place():
    rows = LiveRows(changelog=False)
    for found in (change(INSERT, "a", 1), change(INSERT, "b", 1), change(BEFORE, "a", 1), change(AFTER, "a", 2)):
        rows.add(found)
    assert rows.part(0, 10) == [("a", "2"), ("b", "1")]


def test_an_update_that_becomes_nothing_removes_the_row():
    rows = LiveRows(changelog=False)
    for found in (
        change(INSERT, "a"),
        change(INSERT, "b"),
        change(BEFORE, "a"),
        change(BEFORE, "b"),
        change(AFTER, "c"),
    ):
        rows.add(found)
    assert rows.part(0, 10) == [("c",)]


def test_values_without_an_order_or_an_equality_are_removed_again():
    rows = LiveRows(changelog=False)
    for found in (change(INSERT, float("nan"), None), change(DELETE, float("nan"), None)):
        rows.add(found)
    assert len(rows) == 0


def test_changes_are_listed_with_their_kinds_and_the_oldest_are_dropped():
    rows = LiveRows(changelog=True, limit=2)
    for found in (change(INSERT, 1), change(BEFORE, 1), change(AFTER, 2)):
        rows.add(found)
    assert (rows.part(0, 10), rows.received) == ([("-U", "1"), ("+U", "2")], 3)


def test_the_oldest_rows_are_dropped_and_their_later_changes_ignored():
    rows = LiveRows(changelog=False, limit=2)
    for value in range(5):
        rows.add(change(INSERT, value))
    rows.add(change(DELETE, 0))
    rows.add(change(DELETE, 4))
    assert rows.part(0, 10) == [("3",)]


def test_random_changes_give_the_rows_of_a_multiset():
    random.seed(7)
    rows, expected = LiveRows(changelog=False), Counter()
    for _ in range(3000):
        if expected and random.random() < 0.6:
            old = random.choice(sorted(expected))
            new = random.randrange(10)
            expected -= Counter([old])
            if random.random() < 0.5:
                rows.add(change(DELETE, old))
                continue
            rows.add(change(BEFORE, old))
            rows.add(change(AFTER, new))
        else:
            new = random.randrange(10)
            rows.add(change(INSERT, new))
        expected[new] += 1
    assert Counter(int(text) for (text,) in rows.part(0, 10**6)) == expected


def test_control_characters_do_not_reach_the_terminal():
    rows = LiveRows(changelog=False)
    rows.add(change(INSERT, "a\x1b[2Jb\n"))
    assert rows.part(0, 1) == [("a\\x1b[2Jb\\n",)]
