"""Expressions with more parts than Python nests blocks."""

from __future__ import annotations

from penstock.sql.expressions.compiler import compile_value
from penstock.sql.plan.rex import Call, InputRef, Literal
from penstock.sql.plan.types import SqlType

INTEGER, BOOLEAN = SqlType("INTEGER"), SqlType("BOOLEAN")
MANY = 300


def equal(number: int) -> Call:
    return Call("=", (InputRef(0, INTEGER), Literal(number, INTEGER)), BOOLEAN)


def test_a_case_can_have_hundreds_of_branches():
    branches = [part for n in range(MANY) for part in (equal(n), Literal(10 * n, INTEGER))]
    compute = compile_value(Call("CASE", (*branches, Literal(-1, INTEGER)), INTEGER), "UTC")
    assert [compute((n,)) for n in (0, 8, 299, 300, None)] == [0, 80, 2990, -1, -1]


def test_only_the_branch_that_is_taken_is_computed():
    by_zero = Call("/", (Literal(1, INTEGER), Literal(0, INTEGER)), INTEGER)
    branches = [part for n in range(MANY) for part in (equal(n), by_zero if n > 1 else Literal(n, INTEGER))]
    assert compile_value(Call("CASE", (*branches, by_zero), INTEGER), "UTC")((1,)) == 1


def test_a_condition_can_have_hundreds_of_parts():
    either = compile_value(Call("OR", tuple(map(equal, range(MANY))), BOOLEAN), "UTC")
    assert [either((n,)) for n in (0, 299, 300, None)] == [True, True, False, None]
    unequal = tuple(Call("<>", equal(n).operands, BOOLEAN) for n in range(MANY))
    all_of = compile_value(Call("AND", unequal, BOOLEAN), "UTC")
    assert [all_of((n,)) for n in (0, 299, 300, None)] == [False, False, True, None]


def test_coalesce_can_have_hundreds_of_operands():
    compute = compile_value(Call("COALESCE", tuple(InputRef(n, INTEGER) for n in range(MANY)), INTEGER), "UTC")
    assert compute((None,) * (MANY - 1) + (7,)) == 7
    assert compute((None,) * MANY) is None
