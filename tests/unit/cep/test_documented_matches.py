"""Matches that Flink's documentation of CEP states, and those of its rules that other tests do not reach."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.cep import AfterMatchSkipStrategy, IterativeCondition, Pattern, SimpleCondition, WithinType
from penstock.cep.compiler import compile_pattern
from penstock.cep.matcher import Matcher, Memory

begin = Pattern.begin


def letter(*letters: str) -> Callable[[str], bool]:
    return lambda event: event[0] in letters


def matches(pattern: Pattern, events: str) -> list[str]:
    """Return the matches in the events, one event a millisecond, as texts in alphabetical order."""
    return sorted(in_order(pattern, events))


def in_order(pattern: Pattern, events: str) -> list[str]:
    matcher, memory = Matcher(compile_pattern(pattern)), Memory()
    found = [match for time, event in enumerate(events.split()) for match in matcher.feed(memory, event, time)]
    return [" ".join(event for events in match.values() for event in events) for match in found]


@pytest.mark.parametrize(
    ("method", "expected"), [("next", []), ("followed_by", ["a b1"]), ("followed_by_any", ["a b1", "a b2"])]
)
def test_contiguity_of_two_patterns(method: str, expected: list[str]) -> None:
    pattern = getattr(begin("a").where(letter("a")), method)("b").where(letter("b"))
    assert matches(pattern, "a c b1 b2") == expected


def a_loop_c(change: Callable[[Pattern], Pattern]) -> Pattern:
    loop = begin("a").where(letter("a")).followed_by_any("b").where(letter("b")).one_or_more()
    return change(loop).followed_by("c").where(letter("c"))


def test_contiguity_in_a_loop() -> None:
    events = "a b1 d1 b2 d2 b3 c"
    assert matches(a_loop_c(lambda loop: loop.consecutive()), events) == ["a b1 c", "a b2 c", "a b3 c"]
    relaxed = ["a b1 b2 b3 c", "a b1 b2 c", "a b1 c", "a b2 b3 c", "a b2 c", "a b3 c"]
    assert matches(a_loop_c(lambda loop: loop), events) == relaxed
    assert matches(a_loop_c(lambda loop: loop.allow_combinations()), events) == sorted([*relaxed, "a b1 b3 c"])


def c_loop_b(change: Callable[[Pattern], Pattern]) -> Pattern:
    loop = begin("start").where(letter("C")).followed_by("middle").where(letter("A")).one_or_more()
    return change(loop).followed_by("end").where(letter("B"))


def test_consecutive_breaks_the_loop_at_another_event() -> None:
    events = "C D A1 A2 A3 D A4 B"
    assert matches(c_loop_b(lambda loop: loop.consecutive()), events) == ["C A1 A2 A3 B", "C A1 A2 B", "C A1 B"]
    relaxed = ["C A1 A2 A3 A4 B", "C A1 A2 A3 B", "C A1 A2 B", "C A1 B"]
    assert matches(c_loop_b(lambda loop: loop), events) == relaxed


def test_combinations_leave_out_events_after_the_first_one() -> None:
    found = matches(c_loop_b(lambda loop: loop.allow_combinations()), "C D A1 A2 A3 D A4 B")
    chosen = [
        f"C A1{second}{third}{fourth} B" for second in ("", " A2") for third in ("", " A3") for fourth in ("", " A4")
    ]
    assert found == sorted(chosen)


def test_until_ends_the_loop() -> None:
    pattern = begin("a").where(letter("a")).one_or_more().until(letter("b"))
    assert matches(pattern, "a1 c a2 b a3") == ["a1", "a1 a2", "a2", "a3"]


@pytest.mark.parametrize(
    ("skip", "expected"),
    [
        (AfterMatchSkipStrategy.no_skip(), ["b1 b2 b3 c", "b2 b3 c", "b3 c"]),
        (AfterMatchSkipStrategy.skip_to_next(), ["b1 b2 b3 c", "b2 b3 c", "b3 c"]),
        (AfterMatchSkipStrategy.skip_past_last_event(), ["b1 b2 b3 c"]),
        (AfterMatchSkipStrategy.skip_to_first("b"), ["b1 b2 b3 c", "b2 b3 c", "b3 c"]),
        (AfterMatchSkipStrategy.skip_to_last("b"), ["b1 b2 b3 c", "b3 c"]),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)
def test_skip_strategies_after_a_loop(skip: AfterMatchSkipStrategy, expected: list[str]) -> None:
    pattern = begin("b", skip).where(letter("b")).one_or_more().consecutive().next("c").where(letter("c"))
    assert in_order(pattern, "b1 b2 b3 c") == expected


def test_skip_to_first_discards_what_started_before() -> None:
    def pattern(skip: AfterMatchSkipStrategy) -> Pattern:
        first = begin("a", skip).where(letter("a", "b", "c")).next("b").where(letter("b", "c"))
        return first.next("c").where(letter("c")).one_or_more().greedy().consecutive().next("d").where(letter("d"))

    events = "a b c1 c2 c3 d"
    assert in_order(pattern(AfterMatchSkipStrategy.no_skip()), events) == [
        "a b c1 c2 c3 d",
        "b c1 c2 c3 d",
        "c1 c2 c3 d",
    ]
    assert in_order(pattern(AfterMatchSkipStrategy.skip_to_first("c")), events) == ["a b c1 c2 c3 d", "c1 c2 c3 d"]


def test_skip_to_next_keeps_one_match_of_each_start() -> None:
    def pattern(skip: AfterMatchSkipStrategy) -> Pattern:
        return begin("a", skip).where(letter("a")).next("b").where(letter("b")).one_or_more()

    assert in_order(pattern(AfterMatchSkipStrategy.no_skip()), "a b1 b2 b3") == ["a b1", "a b1 b2", "a b1 b2 b3"]
    assert in_order(pattern(AfterMatchSkipStrategy.skip_to_next()), "a b1 b2 b3") == ["a b1"]


def test_an_event_is_in_the_list_of_its_pattern_and_absent_patterns_have_none() -> None:
    pattern = (
        begin("a").where(letter("a")).next("b").where(letter("b")).optional().next("c").where(letter("c")).times(2)
    )
    matcher, memory = Matcher(compile_pattern(pattern)), Memory()
    found = [match for time, event in enumerate(["a1", "c1", "c2"]) for match in matcher.feed(memory, event, time)]
    assert found == [{"a": ["a1"], "c": ["c1", "c2"]}]


def test_a_group_repeats_as_a_whole() -> None:
    pair = begin("x").where(letter("x")).next("y").where(letter("y"))
    pattern = begin("a").where(letter("a")).followed_by(pair).times(2).followed_by("end").where(letter("e"))
    assert matches(pattern, "a x1 y1 b x2 y2 e") == ["a x1 x2 y1 y2 e"]
    assert matches(pattern, "a x1 y1 b x2 e") == []


def test_an_iterative_condition_reads_the_events_of_its_partial_match() -> None:
    class SumBelow(IterativeCondition):
        def filter(self, value: int, ctx: IterativeCondition.Context) -> bool:
            return sum(ctx.get_events_for_pattern("middle")) + value < 6

    start = begin("start").where(lambda value: value == 0).followed_by("middle").where(SumBelow()).one_or_more()
    pattern = start.followed_by("end").where(SimpleCondition.of(lambda value: value > 9))
    matcher, memory = Matcher(compile_pattern(pattern)), Memory()
    found = [match for time, value in enumerate([0, 2, 5, 3, 10]) for match in matcher.feed(memory, value, time)]
    assert [match["middle"] for match in found] == [[2, 3], [2]]


def test_where_and_or_and_subtype_are_combined() -> None:
    pattern = (
        begin("a")
        .subtype(int)
        .where(lambda value: value > 1)
        .where(lambda value: value < 5)
        .or_(lambda value: value == "x")
    )
    matcher, memory = Matcher(compile_pattern(pattern)), Memory()
    assert [value for value in [1, 3, "x", "y", 9] if matcher.feed(memory, value, 0)] == [3, "x"]


def timed(pattern: Pattern, *events: tuple[str, int], end: int = 0) -> tuple[list[Any], list[Any]]:
    """Return the matches and the partial matches that time out."""
    matcher, memory = Matcher(compile_pattern(pattern), keep_timed_out=True), Memory()
    found: list[Any] = []
    late: list[Any] = []
    for event, time in events:
        completed, timed_out = matcher.advance(memory, time)
        found += completed + matcher.feed(memory, event, time)
        late += timed_out
    completed, timed_out = matcher.advance(memory, end)
    return found + completed, late + timed_out


def test_within_excludes_the_end_of_the_time() -> None:
    pattern = begin("a").where(letter("a")).followed_by("b").where(letter("b")).within(10)
    assert timed(pattern, ("a", 0), ("b", 9))[0] == [{"a": ["a"], "b": ["b"]}]
    assert timed(pattern, ("a", 0), ("b", 10)) == ([], [({"a": ["a"]}, 10)])


def test_the_shortest_of_several_times_counts() -> None:
    pattern = begin("a").where(letter("a")).within(5).followed_by("b").where(letter("b")).within(10)
    assert timed(pattern, ("a", 0), ("b", 5)) == ([], [({"a": ["a"]}, 5)])


def test_a_time_between_two_events_counts_from_the_event_before() -> None:
    pattern = begin("a").where(letter("a")).followed_by("b").where(letter("b")).one_or_more(window_time=5)
    pattern = pattern.followed_by("c").where(letter("c")).within(3, WithinType.PREVIOUS_AND_CURRENT)
    found = timed(pattern, ("a", 0), ("b1", 100), ("b2", 104), ("c", 106))[0]
    assert found == [{"a": ["a"], "b": ["b1", "b2"], "c": ["c"]}]
    assert timed(pattern, ("a", 0), ("b1", 100), ("b2", 105), ("c", 106))[0] == []


def test_absence_is_a_match_when_the_time_has_passed() -> None:
    pattern = begin("a").where(letter("a")).not_followed_by("b").where(letter("b")).within(10)
    assert timed(pattern, ("a1", 0), ("c", 5), end=10) == ([{"a": ["a1"]}], [])
    assert timed(pattern, ("a1", 0), ("b", 5), end=10) == ([], [])
    assert timed(pattern, ("a1", 0), ("b", 10), end=10) == ([{"a": ["a1"]}], [])


def test_absence_after_a_loop_needs_no_event_after_it() -> None:
    pattern = begin("a").where(letter("a")).times(1, 2).not_followed_by("b").where(letter("b")).within(10)
    assert timed(pattern, ("a1", 0), end=10) == ([{"a": ["a1"]}], [])


def test_not_next_at_the_end_waits_for_the_next_event() -> None:
    pattern = begin("a").where(letter("a")).not_next("b").where(letter("b"))
    assert matches(pattern, "a1 b a2 c a3") == ["a2"]


def test_a_match_waits_for_an_earlier_partial_match_that_could_skip_it() -> None:
    skip = AfterMatchSkipStrategy.skip_past_last_event()
    pattern = begin("a", skip).where(letter("a")).followed_by("b").where(letter("b"))
    pattern = pattern.followed_by("c").where(letter("c")).optional().followed_by("d").where(letter("d")).within(100)
    assert timed(pattern, ("a", 0), ("b", 1), ("d", 2))[0] == [{"a": ["a"], "b": ["b"], "d": ["d"]}]


def test_a_forbidden_event_may_come_after_the_next_event_of_the_match() -> None:
    start = begin("a").where(letter("a")).not_followed_by("n").where(letter("n"))
    loop = (
        start.followed_by("b").where(letter("b")).times(1, 2).allow_combinations().followed_by("c").where(letter("c"))
    )
    assert matches(loop, "a b1 x n b2 c") == ["a b1 b2 c", "a b1 c"]
    group = start.followed_by(begin("g").where(letter("g"))).optional().followed_by("c").where(letter("c"))
    assert matches(group, "a g n c") == ["a g c"]
    assert matches(group, "a n g c") == []


def test_a_forbidden_event_is_not_in_a_group_whose_first_pattern_is_optional() -> None:
    group = begin("x").where(letter("x")).optional().followed_by("y").where(letter("y"))
    pattern = begin("a").where(letter("a")).not_followed_by("n").where(letter("n")).followed_by(group)
    assert matches(pattern, "a z n y") == []
    assert matches(pattern, "a z x n y") == ["a x y"]


def test_not_next_waits_also_before_optional_patterns() -> None:
    pattern = (
        begin("a").where(letter("a")).not_next("n").where(letter("n")).followed_by("b").where(letter("b")).optional()
    )
    assert matches(pattern, "a1 n a2 b") == ["a2", "a2 b"]
    assert matches(pattern, "a1") == []


def test_a_repeated_group_gives_each_match_once() -> None:
    pair = begin("x").where(letter("x")).followed_by("y").where(letter("y"))
    pattern = begin("a").where(letter("a")).followed_by(pair).one_or_more().next("end").where(letter("e"))
    assert matches(pattern, "a x1 y1 e") == ["a x1 y1 e"]
    assert matches(pattern, "a x1 y1 z e") == []
