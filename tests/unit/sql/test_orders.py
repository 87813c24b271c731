"""Orders of rows with values that are hard to compare, and ranks in these orders."""

from __future__ import annotations

import math

import pytest

from penstock.sql.operators.ranks import RankFunction, sort_key
from penstock.sql.operators.rows import DELETE, INSERT
from penstock.sql.plan.nodes import Rank, SortField
from tests.unit.sql.test_changes import COLUMNS, run

NAN = math.nan
ASCENDING, DESCENDING = SortField(0, True, True), SortField(0, False, True)


@pytest.mark.parametrize(
    ("field", "expected"), [(ASCENDING, "[1.0, 2.0, 3.0, nan, None]"), (DESCENDING, "[nan, 3.0, 2.0, 1.0, None]")]
)
def test_nan_is_the_greatest_number(field, expected):
    rows = [(3.0,), (None,), (NAN,), (1.0,), (2.0,)]
    assert str([row[0] for row in sorted(rows, key=sort_key((field,)))]) == expected


def test_rows_with_nan_are_ordered_by_the_next_column():
    rows = [(NAN, 2), (float("nan"), 1)]
    assert [row[1] for row in sorted(rows, key=sort_key((ASCENDING, SortField(1, True, True))))] == [1, 2]


@pytest.mark.parametrize("ascending", [True, False])
def test_a_retracted_row_with_nan_loses_its_rank(ascending):
    node = Rank(1, (0,), COLUMNS, "", (0,), (SortField(2, ascending, True),), 1, 1, False, True, 0)
    row = ("a", 1, NAN)
    found = run(RankFunction(node, changelog=True), (INSERT, row), (DELETE, row))
    assert str(found) == str([(INSERT, row), (DELETE, row)])
