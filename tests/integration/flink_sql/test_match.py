"""MATCH_RECOGNIZE: patterns that Flink refuses when it runs a plan are refused before the job starts."""

from __future__ import annotations

import pytest

from penstock.common.errors import InvalidJob
from penstock.sql.operators.match import pattern_of
from penstock.sql.plan.matching import Match, Variable
from penstock.sql.plan.reading import read_plan
from penstock.sql.planner.process import SqlError
from tests.unit.sql.queries import TABLES

pytestmark = pytest.mark.sql


@pytest.fixture(scope="module")
def session(planner):
    planner.sql(TABLES["readings"].create("readings", "file:///readings"))
    return planner


def compiled(
    session, pattern: str, *, measures: str = "a.id AS x", define: str = "a AS a.v > 1", rows: str = "", after: str = ""
) -> Match:
    query = (
        f"SELECT * FROM readings MATCH_RECOGNIZE (PARTITION BY name ORDER BY ts MEASURES {measures} {rows or 'ONE ROW PER MATCH'} "
        f"AFTER MATCH SKIP {after or 'PAST LAST ROW'} PATTERN {pattern} DEFINE {define})"
    )
    plan = read_plan(session.sql(query).plan)
    (node,) = (node for node in plan.nodes if isinstance(node, Match))
    pattern_of(node, "UTC")
    return node


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(a (b | c) d)", r"the alternation A \| B"),
        ("(PERMUTE(a, b))", "PERMUTE"),
        ("(a {- b -} c)", "the exclusion"),
        ("(a (b c)+ d)", "a quantifier of a group"),
        ("(a b a)", "the variable a twice"),
        ("(a b+)", "the greedy quantifier of the last variable b"),
        ("(a b{2,3})", "the greedy quantifier of the last variable b"),
        ("(a* b?)", "a pattern that an empty match fulfils"),
        ("(a b?? c)", r"A\?\?"),
    ],
)
def test_a_pattern_is_refused_with_a_remedy(session, pattern, message):
    with pytest.raises(InvalidJob, match=message):
        compiled(session, pattern)


def test_an_upper_limit_alone_starts_at_zero(session):
    assert compiled(session, "(a b{,2} c)").variables[1] == Variable("b", 0, 2)


@pytest.mark.parametrize("define", ["a AS PREV(a.v, 1) > 1", "a AS NEXT(a.v, 1) > 1"])
def test_physical_offsets_are_refused(session, define):
    with pytest.raises((InvalidJob, SqlError)):
        compiled(session, "(a b)", define=define)


def test_all_rows_are_refused(session):
    with pytest.raises((InvalidJob, SqlError), match=r"(?i)all rows"):
        compiled(session, "(a b)", rows="ALL ROWS PER MATCH")


@pytest.mark.parametrize(
    ("after", "skip"), [("TO FIRST b", "SKIP_TO_FIRST"), ("TO LAST b", "SKIP_TO_LAST"), ("TO b", "SKIP_TO_LAST")]
)
def test_skip_targets_are_read(session, after, skip):
    node = compiled(session, "(a b)", after=after)
    assert (node.skip, node.skip_variable) == (skip, "b")
