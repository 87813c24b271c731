"""Functions that correct the kinds of changes."""

from __future__ import annotations

import pytest

from penstock.sql.operators.changes import ChangelogNormalizeFunction, UpsertMaterializeFunction
from penstock.sql.operators.rows import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from penstock.sql.plan.changes import ChangelogNormalize
from penstock.sql.plan.nodes import Column
from penstock.sql.plan.rex import Call, InputRef, Literal
from penstock.sql.plan.types import SqlType
from penstock.sql.streams import Inputs, SqlStream
from penstock.testing import JobHarness

INTEGER = SqlType("INTEGER")
COLUMNS = (Column("k", SqlType("VARCHAR")), Column("n", INTEGER), Column("x", SqlType("DOUBLE")))


def run(function, *changes):
    """Return the changes that the function gives for these changes, keyed by the first column. The job restarts after each of them."""
    with JobHarness() as harness:
        inputs = Inputs((SqlStream(harness.source("changes"), changelog=True),), (COLUMNS,), "UTC")
        harness.collect(inputs.process((0,), function, "Function", "function"), "result")
        for change in changes:
            harness.push("changes", change)
            harness.restore(harness.snapshot(), parallelism=1)
        return harness.outputs("result")


def normalize(condition=None, *, generate_update_before=True):
    node = ChangelogNormalize(1, (0,), COLUMNS, "", (0,), condition, generate_update_before, 0)
    return ChangelogNormalizeFunction(node, "UTC", changelog=True)


def test_upserts_become_insertions_and_updates_with_the_former_row():
    a, b = ("a", 1, None), ("a", 2, float("nan"))
    found = run(normalize(), (UPDATE_AFTER, a), (UPDATE_AFTER, b), (UPDATE_AFTER, b), (DELETE, ("a", None, None)))
    assert str(found) == str([(INSERT, a), (UPDATE_BEFORE, a), (UPDATE_AFTER, b), (DELETE, b)])


def test_a_deletion_of_an_unknown_key_has_no_effect():
    assert run(normalize(), (DELETE, ("a", 1, None))) == []


def test_an_update_before_is_left_out_if_the_plan_does_not_need_it():
    a, b = ("a", 1, None), ("a", 2, None)
    assert run(normalize(generate_update_before=False), (INSERT, a), (UPDATE_AFTER, b)) == [
        (INSERT, a),
        (UPDATE_AFTER, b),
    ]


def test_a_row_that_does_not_match_the_filter_is_deleted():
    condition = Call(">", (InputRef(1, INTEGER), Literal("5", INTEGER)), SqlType("BOOLEAN"))
    rows = [("a", 9, None), ("a", 1, None), ("a", 8, None)]
    found = run(normalize(condition), *((UPDATE_AFTER, row) for row in rows))
    assert found == [(INSERT, rows[0]), (DELETE, rows[0]), (INSERT, rows[2])]


def materialize(*, upsert_key=()):
    return UpsertMaterializeFunction(COLUMNS, upsert_key, 0, changelog=True)


def test_a_deleted_current_row_is_replaced_by_the_row_before_it():
    a, b = ("k", 1, float("nan")), ("k", 2, None)
    found = run(materialize(), (INSERT, a), (INSERT, b), (DELETE, b), (DELETE, a))
    assert str(found) == str([(INSERT, a), (UPDATE_AFTER, b), (UPDATE_AFTER, a), (DELETE, a)])


def test_a_deleted_former_row_changes_nothing():
    a, b = ("k", 1, None), ("k", 2, None)
    assert run(materialize(), (INSERT, a), (INSERT, b), (DELETE, a), (DELETE, a)) == [(INSERT, a), (UPDATE_AFTER, b)]


def test_a_row_with_the_same_key_of_the_query_is_replaced():
    a, b, c = ("k", 1, 1.0), ("k", 2, 2.0), ("k", 1, 3.0)
    found = run(materialize(upsert_key=(1,)), (INSERT, a), (INSERT, b), (UPDATE_AFTER, c), (DELETE, b))
    assert found == [(INSERT, a), (UPDATE_AFTER, b), (UPDATE_AFTER, c), (UPDATE_AFTER, c)]


@pytest.mark.parametrize("name", ["NOTHING", "ERROR"])
def test_other_strategies_of_conflicts_are_refused(name):
    import json

    from penstock.common.errors import InvalidJob
    from penstock.sql.plan.reading import read_plan
    from tests.unit.sql.queries import PLANS

    plan = json.loads((PLANS / "join.plan.json").read_text())
    plan["nodes"][-1].update(requireUpsertMaterialize=True, conflictStrategy={"behavior": name})
    with pytest.raises(InvalidJob, match=f"ON CONFLICT DO {name} is not supported"):
        read_plan(json.dumps(plan))
