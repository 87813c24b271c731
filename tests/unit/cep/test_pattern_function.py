"""Patterns on streams: the order of events, time limits, late events, and state that survives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

from penstock.cep import (
    CEP,
    AfterMatchSkipStrategy,
    IterativeCondition,
    Pattern,
    PatternFlatSelectFunction,
    PatternProcessFunction,
    PatternSelectFunction,
    PatternTimeoutFunction,
    RichIterativeCondition,
    TimedOutPartialMatchHandler,
)
from penstock.cep.compiler import compile_pattern
from penstock.cep.pattern_function import PatternFunction
from penstock.common.errors import InvalidJob
from penstock.common.typeinfo import Types
from penstock.datastream import OutputTag, RuntimeContext, StreamExecutionEnvironment
from penstock.testing import JobHarness, OperatorHarness

LATE = OutputTag("late")
TIMED_OUT = OutputTag("timed-out")
Event = tuple[str, str]


def a_then_b(within: int | None = None) -> Pattern:
    pattern = Pattern.begin("a").where(lambda event: event[1][0] == "a")
    pattern = pattern.followed_by("b").where(lambda event: event[1][0] == "b")
    return pattern if within is None else pattern.within(within)


class Names(PatternProcessFunction, TimedOutPartialMatchHandler):
    """The names of the events, with the time of the match."""

    def process_match(self, match: dict[str, list[Event]], ctx: PatternProcessFunction.Context) -> Iterator[str]:
        yield f"{names(match)} at {ctx.timestamp()}"

    def process_timed_out_match(self, match: dict[str, list[Event]], ctx: PatternProcessFunction.Context) -> None:
        ctx.output(TIMED_OUT, f"{names(match)} at {ctx.timestamp()}")


def names(match: dict[str, list[Event]]) -> str:
    return " ".join(event[1] for events in match.values() for event in events)


def harness(pattern: Pattern, **options: Any) -> OperatorHarness:
    settings = {key: options.pop(key) for key in ("backend", "start_time", "parallelism") if key in options}
    function = PatternFunction(compile_pattern(pattern), Names(), **options)
    return OperatorHarness(function, key_selector=lambda event: event[0], **settings)


def test_events_are_matched_in_the_order_of_their_times() -> None:
    with harness(a_then_b()) as run:
        run.push(("k", "b1"), timestamp=30)
        run.push(("k", "a1"), timestamp=20)
        run.push(("k", "b0"), timestamp=10)
        assert run.outputs() == []
        run.advance_watermark(29)
        assert run.outputs() == []
        run.advance_watermark(30)
        assert run.outputs_with_timestamps() == [("a1 b1 at 30", 30)]


def test_events_of_one_time_keep_their_order_or_the_comparators() -> None:
    with harness(a_then_b()) as run:
        run.push(("k", "b1"), ("k", "a1"), timestamp=10)
        run.advance_watermark(10)
        assert run.outputs() == []
    with harness(a_then_b(), comparator=lambda left, right: (left[1] > right[1]) - (left[1] < right[1])) as run:
        run.push(("k", "b1"), ("k", "a1"), timestamp=10)
        run.advance_watermark(10)
        assert run.outputs() == ["a1 b1 at 10"]


def test_late_events_are_dropped_or_go_to_their_side_output() -> None:
    for late in (None, LATE):
        with harness(a_then_b(), late=late) as run:
            run.advance_watermark(10)
            run.push(("k", "a1"), timestamp=10)
            run.push(("k", "a2"), timestamp=11)
            run.push(("k", "b1"), timestamp=12)
            run.advance_watermark(20)
            assert run.outputs() == ["a2 b1 at 12"]
            assert run.side_outputs(LATE) == ([("k", "a1")] if late else [])


def test_keys_have_their_own_matches() -> None:
    with harness(a_then_b(), parallelism=2) as run:
        run.push(("k", "a1"), ("l", "b1"), timestamp=1)
        run.push(("l", "a2"), ("k", "b2"), timestamp=2)
        run.advance_watermark(5)
        assert run.outputs() == ["a1 b2 at 2"]


def test_a_partial_match_times_out_without_another_event() -> None:
    with harness(a_then_b(within=10)) as run:
        run.push(("k", "a1"), timestamp=5)
        run.advance_watermark(14)
        assert run.side_outputs(TIMED_OUT) == []
        run.advance_watermark(15)
        assert run.side_outputs(TIMED_OUT) == ["a1 at 15"]
        assert run.state_size() == 0


def test_an_event_beyond_the_time_completes_no_match() -> None:
    with harness(a_then_b(within=10)) as run:
        run.push(("k", "a1"), timestamp=5)
        run.push(("k", "b1"), timestamp=15)
        run.push(("k", "a2"), timestamp=15)
        run.push(("k", "b2"), timestamp=24)
        run.advance_watermark(100)
        assert run.outputs() == ["a2 b2 at 24"]
        assert run.side_outputs(TIMED_OUT) == ["a1 at 15"]
        assert run.state_size() == 0


def test_absence_is_found_by_the_time_alone() -> None:
    pattern = Pattern.begin("a").where(lambda event: event[1][0] == "a")
    pattern = pattern.not_followed_by("b").where(lambda event: event[1][0] == "b").within(10)
    with harness(pattern) as run:
        run.push(("k", "a1"), timestamp=5)
        run.push(("l", "a2"), timestamp=6)
        run.push(("l", "b2"), timestamp=7)
        run.advance_watermark(100)
        assert run.outputs_with_timestamps() == [("a1 at 15", 15)]
        assert run.side_outputs(TIMED_OUT) == []
        assert run.state_size() == 0


def test_processing_time_takes_the_order_of_arrival() -> None:
    with harness(a_then_b(within=10), in_processing_time=True, start_time=1000) as run:
        run.push(("k", "a1"), timestamp=50)
        run.advance_processing_time(1004)
        run.push(("k", "b1"), timestamp=20)
        assert run.outputs() == ["a1 b1 at 1004"]
        run.push(("k", "a2"))
        run.advance_processing_time(1013)
        assert run.side_outputs(TIMED_OUT) == []
        run.advance_processing_time(1014)
        assert run.side_outputs(TIMED_OUT) == ["a2 at 1014"]
        run.push(("k", "b2"))
        assert len(run.outputs()) == 1
        assert run.state_size() == 0


def test_a_comparator_orders_events_of_one_millisecond_of_processing_time() -> None:

    def order(left: Event, right: Event) -> int:
        return (left[1] > right[1]) - (left[1] < right[1])

    with harness(a_then_b(), in_processing_time=True, comparator=order, start_time=1000) as run:
        run.push(("k", "b1"), ("k", "a1"))
        assert run.outputs() == []
        run.advance_processing_time(1001)
        assert run.outputs() == ["a1 b1 at 1001"]


def test_an_event_without_a_timestamp_is_refused() -> None:
    with harness(a_then_b()) as run, pytest.raises(Exception, match="got an event without a timestamp"):
        run.push(("k", "a1"))


@dataclass
class Reading:
    """An event with a declared class."""

    key: str
    value: float | None


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_match_continues_after_a_restore_with_another_parallelism(backend: str) -> None:
    """Random events with restores in between give the same matches, in the same types, as without restores."""
    pattern = Pattern.begin("a", AfterMatchSkipStrategy.skip_to_next()).where(lambda event: event[1][0] in "ab")
    pattern = pattern.followed_by_any("b").where(rising).one_or_more().allow_combinations()
    pattern = pattern.followed_by("c").where(lambda event: event[1][0] == "c").within(40)
    random = Random(5)
    events = [((random.choice("klmn"), random.choice("abcx") + str(random.randrange(9))), 10 * n) for n in range(60)]

    def found(restores: bool) -> list[str]:
        with harness(pattern, backend=backend, parallelism=2) as run:
            for number, (event, time) in enumerate(events):
                run.push(event, timestamp=time)
                if number % 3 == 0:
                    run.advance_watermark(time - 5)
                if restores and number % 4 == 0:
                    run.restore(run.snapshot(), parallelism=1 + number % 3)
            run.advance_watermark(10_000)
            assert run.state_size() == 0
            return sorted(run.outputs() + run.side_outputs(TIMED_OUT))

    expected = found(restores=False)
    assert len(expected) > 20
    assert found(restores=True) == expected


def rising(event: Event, ctx: IterativeCondition.Context) -> bool:
    return event[1][0] == "b" and all(event[1] >= earlier[1] for earlier in ctx.get_events_for_pattern("b"))


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_state_has_the_same_values_and_types_after_a_restore(backend: str) -> None:
    class Keep(PatternProcessFunction):
        def process_match(self, match: dict[str, list[Reading]], ctx: PatternProcessFunction.Context) -> list[Any]:
            return [match]

    pattern = Pattern.begin("low").where(lambda reading: reading.value is not None and reading.value < 1)
    pattern = pattern.followed_by("high").where(lambda reading: reading.value is None)
    environment = StreamExecutionEnvironment.get_execution_environment()
    event_type = environment.from_collection([Reading("k", 1.0)], Reading).get_type()
    function = PatternFunction(compile_pattern(pattern), Keep(), event_type=event_type)
    with OperatorHarness(function, key_selector=lambda reading: reading.key, backend=backend) as run:
        run.push(Reading("k", 0.5), Reading("k", float("-inf")), timestamp=1)
        run.advance_watermark(2)
        run.push(Reading("k", None), timestamp=3)
        run.restore(run.snapshot())
        run.advance_watermark(3)
        kept = run.outputs()
    assert kept == [
        {"low": [Reading("k", 0.5)], "high": [Reading("k", None)]},
        {"low": [Reading("k", float("-inf"))], "high": [Reading("k", None)]},
    ]


def test_a_restore_with_another_pattern_is_refused_when_it_meets_a_partial_match() -> None:
    def function(pattern: Pattern) -> PatternFunction:
        return PatternFunction(compile_pattern(pattern), Names())

    with harness(a_then_b(within=10)) as run:
        run.push(("k", "a1"), timestamp=1)
        run.advance_watermark(2)
        snapshot = run.snapshot()
        run.restore(snapshot, operator=function(a_then_b(within=50)))
        run.push(("k", "b1"), timestamp=30)
        run.advance_watermark(40)
        assert run.outputs() == ["a1 b1 at 30"]
        run.restore(snapshot, operator=function(a_then_b().followed_by("c").where(len)))
        run.push(("k", "b1"), timestamp=3)
        with pytest.raises(Exception, match="has other states than the pattern of the checkpoint"):
            run.advance_watermark(40)


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_job_finds_the_same_matches_after_failures_and_a_rescale(backend: str) -> None:
    with JobHarness(parallelism=2, backend=backend) as job:
        stream = job.source("events", type_info=tuple[str, str])
        matches = CEP.pattern(stream.key_by(lambda event: event[0]), a_then_b(within=100)).process(Names())
        job.collect(matches, "matches")
        job.collect(matches.get_side_output(TIMED_OUT), "timed-out")
        job.push("events", ("k", "a1"), ("l", "a2"), timestamp=1)
        job.advance_watermark("events", 5)
        job.push("events", ("k", "b0"), timestamp=10)
        job.crash()
        job.push("events", ("k", "b1"), timestamp=20)
        job.rescale(3)
        job.advance_watermark("events", 200)
        assert sorted(job.outputs("matches")) == ["a1 b0 at 10"]
        assert job.outputs("timed-out") == ["a2 at 101"]


class Opened(RichIterativeCondition):
    """A condition that needs a resource."""

    def __init__(self) -> None:
        self.limit: int | None = None

    def open(self, runtime_context: RuntimeContext) -> None:
        assert self.limit is None, "open is called once in a subtask"
        self.limit = 3

    def filter(self, value: int, ctx: IterativeCondition.Context) -> bool:
        assert self.limit is not None
        return value > self.limit and ctx.current_processing_time() > 0


class Pair(PatternSelectFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.sign = -1

    def select(self, pattern: dict[str, list[int]]) -> int:
        return self.sign * pattern["first"][0]


class Late(PatternTimeoutFunction):
    def timeout(self, pattern: dict[str, list[int]], timeout_timestamp: int) -> tuple[int, int]:
        return pattern["first"][0], timeout_timestamp


class Twice(PatternFlatSelectFunction):
    def flat_select(self, pattern: dict[str, list[int]]) -> list[int]:
        return pattern["first"] * 2


def numbers(*values: int) -> Any:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    return env.from_collection(list(values), int)


def test_functions_and_conditions_are_opened() -> None:
    pattern = Pattern.begin("first").where(Opened())
    stream = CEP.pattern(numbers(1, 5, 4), pattern).in_processing_time()
    assert list(stream.select(Pair()).execute_and_collect()) == [-5, -4]
    assert list(stream.flat_select(Twice()).execute_and_collect()) == [5, 5, 4, 4]
    assert list(stream.flat_select(lambda match: match["first"]).execute_and_collect()) == [5, 4]


def test_a_condition_of_two_patterns_is_opened_once() -> None:
    condition = Opened()
    pattern = Pattern.begin("first").where(condition).next("second").where(condition)
    stream = CEP.pattern(numbers(1, 5, 4), pattern).in_processing_time()
    assert list(stream.select(Pair()).execute_and_collect()) == [-5]


def test_results_have_the_type_of_the_function() -> None:
    stream = CEP.pattern(numbers(1), Pattern.begin("first")).in_processing_time()
    assert stream.select(Pair()).get_type() == Types.LONG()
    assert stream.select(lambda match: "x", str).get_type() == Types.STRING()


def test_select_sends_partial_matches_that_timed_out_to_a_side_output() -> None:
    with JobHarness() as job:
        pattern = Pattern.begin("first").where(lambda n: n > 0).next("second").where(lambda n: n < 0).within(10)
        stream = CEP.pattern(job.source("numbers", type_info=int), pattern)
        selected = stream.select(Pair(), timed_out_tag=TIMED_OUT, timeout_function=Late())
        flat = stream.flat_select(
            lambda match: match["first"], timed_out_tag=LATE, timeout_function=lambda match, time: [time, time]
        )
        job.collect(selected, "selected")
        job.collect(selected.get_side_output(TIMED_OUT), "late")
        job.collect(flat.get_side_output(LATE), "flat-late")
        job.push("numbers", 7, timestamp=1)
        job.push("numbers", 8, timestamp=20)
        job.push("numbers", -1, timestamp=21)
        job.push("numbers", 9, timestamp=40)
        job.advance_watermark("numbers", 100)
        assert job.outputs("selected") == [-8]
        assert job.outputs("late") == [(7, 11), (9, 50)]
        assert job.outputs("flat-late") == [11, 11, 50, 50]


def test_arguments_are_checked() -> None:
    stream = numbers(1)
    pattern = Pattern.begin("first")
    matches = CEP.pattern(stream, pattern)
    for build in (
        lambda: CEP.pattern([1], pattern),  # type: ignore[arg-type]
        lambda: CEP.pattern(stream, "first"),  # type: ignore[arg-type]
        lambda: CEP.pattern(stream, pattern, 3),  # type: ignore[arg-type]
        lambda: matches.process(len),  # type: ignore[arg-type]
        lambda: matches.select(3),  # type: ignore[arg-type]
        lambda: matches.select(Pair),  # type: ignore[arg-type]
        lambda: matches.select(len, timed_out_tag=TIMED_OUT),
        lambda: matches.select(len, timed_out_tag="late", timeout_function=len),  # type: ignore[arg-type]
        lambda: matches.side_output_late_data("late"),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidJob):
            build()


def test_a_handler_of_timeouts_has_side_outputs_only() -> None:
    class Wrong(Names):
        def process_timed_out_match(self, match: dict[str, list[Event]], ctx: PatternProcessFunction.Context) -> Any:
            yield "main"

    function = PatternFunction(compile_pattern(a_then_b(within=10)), Wrong())
    with OperatorHarness(function, key_selector=lambda event: event[0]) as run:
        run.push(("k", "a1"), timestamp=1)
        with pytest.raises(Exception, match="has no side output"):
            run.advance_watermark(100)
