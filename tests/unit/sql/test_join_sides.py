"""Joins whose inputs replace rows without a retraction, late rows, and errors."""

from __future__ import annotations

import pytest

from penstock.common.errors import InvalidJob, UserFunctionError
from penstock.sql.operators.joins.streams import TRANSLATIONS
from penstock.sql.operators.rows import DELETE, INSERT, UPDATE_AFTER
from penstock.sql.plan.joins import IntervalJoin, JoinSpec, RegularJoin
from penstock.sql.plan.nodes import Column
from penstock.sql.plan.rex import Call, InputRef
from penstock.sql.plan.types import SqlType, type_of
from penstock.sql.streams import Inputs, SqlStream
from penstock.testing import JobHarness

COLUMNS = (Column("k", SqlType("VARCHAR")), Column("n", SqlType("INTEGER")))
TIMED = (*COLUMNS, Column("ts", SqlType("TIMESTAMP", precision=3)))
LESS = Call("<", (InputRef(1, SqlType("INTEGER")), InputRef(3, SqlType("INTEGER"))), SqlType("BOOLEAN"))


def regular(kind, *, unique, condition=LESS):
    spec = JoinSpec(kind, ((0,), (0,)), (True,), condition, (COLUMNS, COLUMNS))
    keys = ((0,),) if unique else ()
    return RegularJoin(1, (2, 3), COLUMNS + COLUMNS, "", spec, (keys, keys), (0, 0))


def interval(kind, lower, upper):
    spec = JoinSpec(kind, ((0,), (0,)), (True,), None, (TIMED, TIMED))
    return IntervalJoin(1, (2, 3), TIMED + TIMED, "", spec, lower, upper, (2, 2))


def add(harness, node, *, changelog=True):
    sides = tuple(SqlStream(harness.source(name), changelog) for name in ("left", "right"))
    inputs = Inputs(sides, node.spec.columns, "UTC")
    harness.collect(TRANSLATIONS[type(node)](inputs, node, "join").stream, "result")


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_replaced_row_gives_its_partners_back(backend):
    with JobHarness(backend=backend) as harness:
        add(harness, regular("FULL", unique=True))
        harness.push("left", (INSERT, ("a", 1)))
        harness.push("right", (INSERT, ("a", 5)))
        harness.take("result")
        harness.push("left", (UPDATE_AFTER, ("a", 9)))
        assert harness.take("result") == [(INSERT, ("a", 9, None, None)), (INSERT, (None, None, "a", 5))]
        harness.push("left", (UPDATE_AFTER, ("a", 2)))
        assert harness.take("result") == [(DELETE, (None, None, "a", 5)), (INSERT, ("a", 2, "a", 5))]
        harness.push("left", (UPDATE_AFTER, ("a", 3)), (DELETE, ("a", 3)))
        assert harness.take("result") == [
            (INSERT, ("a", 3, "a", 5)),
            (DELETE, ("a", 3, "a", 5)),
            (INSERT, (None, None, "a", 5)),
        ]


def test_a_replaced_right_row_changes_the_rows_of_a_semi_join():
    with JobHarness() as harness:
        add(harness, regular("SEMI", unique=True))
        harness.push("left", (INSERT, ("a", 3)))
        harness.push(
            "right", (INSERT, ("a", 5)), (UPDATE_AFTER, ("a", 1)), (UPDATE_AFTER, ("a", 4)), (DELETE, ("a", 4))
        )
        row = ("a", 3)
        assert harness.outputs("result") == [(INSERT, row), (DELETE, row), (INSERT, row), (DELETE, row)]


def test_equal_rows_are_counted():
    with JobHarness() as harness:
        add(harness, regular("LEFT", unique=False))
        harness.push("right", (INSERT, ("a", 5)), (INSERT, ("a", 5)))
        harness.push("left", (INSERT, ("a", 1)))
        harness.push("right", (DELETE, ("a", 5)), (DELETE, ("a", 5)))
        pair, alone = ("a", 1, "a", 5), ("a", 1, None, None)
        assert harness.outputs("result") == [
            (INSERT, pair),
            (INSERT, pair),
            (DELETE, pair),
            (DELETE, pair),
            (INSERT, alone),
        ]


def test_a_late_row_of_an_interval_join_has_the_partners_that_are_still_kept():
    with JobHarness() as harness:
        add(harness, interval("LEFT", -1000, 1000), changelog=False)
        harness.push("right", ("a", 1, 10_000_000))
        for side in ("left", "right"):
            harness.advance_watermark(side, 10_500)
        harness.push("left", ("a", 2, 9_500_000), ("a", 3, 8_000_000))
        assert harness.take("result") == [
            ("a", 2, 9_500_000, "a", 1, 10_000_000),
            ("a", 3, 8_000_000, None, None, None),
        ]
        for side in ("left", "right"):
            harness.advance_watermark(side, 20_000)
        harness.push("left", ("a", 4, 10_000_000))
        assert harness.take("result") == [("a", 4, 10_000_000, None, None, None)]


def test_a_row_without_a_time_is_an_error_that_names_the_side():
    with JobHarness() as harness:
        add(harness, interval("INNER", -1000, 1000), changelog=False)
        harness.push("right", ("a", 1, None))
        with pytest.raises(UserFunctionError, match="the right side of an interval join is NULL"):
            harness.run()


def test_a_join_of_rows_with_maps_needs_a_unique_key():
    column = Column("tags", type_of("MAP<VARCHAR(5), INT>"))
    spec = JoinSpec("INNER", ((0,), (0,)), (True,), None, ((*COLUMNS, column), COLUMNS))
    node = RegularJoin(1, (2, 3), (*COLUMNS, column, *COLUMNS), "", spec, ((), ()), (0, 0))
    with JobHarness() as harness, pytest.raises(InvalidJob, match="the column tags of the type MAP"):
        add(harness, node)
