"""Patterns that are refused when they are written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.cep import AfterMatchSkipStrategy, Pattern, SimpleCondition, WithinType
from penstock.cep.compiler import compile_pattern
from penstock.common.errors import InvalidJob, UserFunctionError

begin = Pattern.begin


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: begin(""), "takes the name of a pattern"),
        (lambda: begin("a", "skip"), "takes an AfterMatchSkipStrategy"),  # type: ignore[arg-type]
        (lambda: begin("a").where(3), "takes a condition, got 3"),
        (lambda: begin("a").where(SimpleCondition), "pass an instance"),
        (lambda: begin("a").where(lambda: True), "neither one nor two arguments"),
        (lambda: begin("a").where(lambda a, b, c: True), "neither one nor two arguments"),
        (lambda: begin("a").subtype("int"), "takes a class"),  # type: ignore[arg-type]
        (lambda: begin("a").until(len), "no loop without end"),
        (lambda: begin("a").times(3).until(len), "no loop without end"),
        (lambda: begin("a").one_or_more().until(len).until(len), "two until() conditions"),
        (lambda: begin("a").optional().optional(), "optional already"),
        (lambda: begin("a").one_or_more().times(2), "has a quantifier already"),
        (lambda: begin("a").times(0), "at least 1"),
        (lambda: begin("a").times(3, 2), "at most as many"),
        (lambda: begin("a").times(True), "whole numbers"),
        (lambda: begin("a").times(10**9), "exceeds 10000"),
        (lambda: begin("a").times_or_more(10**9), "exceeds 10000"),
        (lambda: begin("a").greedy(), "accepts one event"),
        (lambda: begin("a").consecutive(), "accepts one event"),
        (lambda: begin("a").one_or_more().allow_combinations().greedy(), "use only one of them"),
        (lambda: begin("a").one_or_more().greedy().allow_combinations(), "use only one of them"),
        (lambda: begin("a").one_or_more().consecutive().allow_combinations(), "already"),
        (lambda: begin(begin("a")).one_or_more().greedy(), "on a group of patterns"),
        (lambda: begin(begin("a")).where(len), "on a group of patterns"),
        (lambda: begin(begin("a").not_followed_by("b")), "the group ends with not_followed_by('b')"),
        (lambda: begin("a").optional().not_next("b"), "follows the optional pattern 'a'"),
        (lambda: begin("a").optional().not_followed_by("b"), "follows the optional pattern 'a'"),
        (lambda: begin("a").not_followed_by("b").not_next("c"), "directly follows not_followed_by('b')"),
        (lambda: begin("a").not_next("b").one_or_more(), "on the pattern 'b' of not_next"),
        (lambda: begin("a").not_next("b").optional(), "on the pattern 'b' of not_next"),
        (lambda: begin("a").not_next(begin("b")), "not a group"),  # type: ignore[arg-type]
        (lambda: begin("a").within(0), "at least 1 ms"),
        (lambda: begin("a").within("10s"), "must be a timedelta"),  # type: ignore[arg-type]
        (lambda: begin("a").within(5, WithinType.PREVIOUS_AND_CURRENT), "which has no event before it"),
        (lambda: compile_pattern(begin("a").next("a")), "two patterns have the name 'a'"),
        (lambda: compile_pattern(begin("a").next(begin("b").next("a"))), "two patterns have the name 'a'"),
        (
            lambda: compile_pattern(begin("a", AfterMatchSkipStrategy.skip_to_last("z")).next("b")),
            "skips to the pattern 'z'",
        ),
        (lambda: compile_pattern(begin("a").not_followed_by("b")), "no match would ever be complete"),
    ],
)
def test_an_invalid_pattern_is_refused(build: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidJob) as caught:
        build()
    assert message in str(caught.value)


def test_zero_times_means_optional() -> None:
    assert begin("a").times(0, 2).quantifier.is_optional
    assert begin("a").times(0, 2).quantifier.least == 1


def test_a_strategy_can_fail_on_a_miss() -> None:
    strict = AfterMatchSkipStrategy.skip_to_first("b").throw_exception_on_miss()
    with pytest.raises(UserFunctionError, match="has no event of the pattern 'b'"):
        strict.first_start_to_keep(0, 2, lambda: {"a": [0, 2]})
    with pytest.raises(UserFunctionError, match="is the first event of the match"):
        strict.first_start_to_keep(0, 2, lambda: {"b": [0, 2]})
    assert AfterMatchSkipStrategy.skip_to_first("b").first_start_to_keep(0, 2, lambda: {"a": [0, 2]}) == 0


def test_patterns_with_the_same_states_have_the_same_signature() -> None:
    def pattern(within: int, name: str = "b") -> Pattern:
        return begin("a").where(len).followed_by(name).where(len).within(within)

    first = compile_pattern(pattern(5)).signature
    assert first == compile_pattern(pattern(9)).signature
    assert first != compile_pattern(pattern(5, "c")).signature
