"""The interval join compared with a join that keeps all records, and the place of its values."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.datastream.functions import ProcessJoinFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.records.batch import MAX_TIMESTAMP
from penstock.taskmanager.operators.two_inputs import interval_buffers
from penstock.taskmanager.operators.two_inputs.interval_join import IntervalJoinOperator
from penstock.testing import OperatorHarness
from penstock.testing.operator_run import OperatorRun

KEY = itemgetter(0)
BY_BACKEND = ("hashmap", pytest.param("rocksdb", marks=pytest.mark.slow))


def both(left: Any, right: Any, ctx: Any) -> Any:
    yield left[1], right[1], ctx.get_left_timestamp(), ctx.get_right_timestamp()


def join(lower: int, upper: int) -> IntervalJoinOperator:
    return IntervalJoinOperator(both, (KEY, KEY), lower_ms=lower, upper_ms=upper)


class Remembering:
    """The same join over lists that are never cleaned up."""

    def __init__(self, lower: int, upper: int) -> None:
        self.lower, self.upper = lower, upper
        self.seen: tuple[list[Any], list[Any]] = ([], [])
        self.watermark = -1

    def push(self, records: list[tuple[str, str, int]], side: int) -> list[Any]:
        out = []
        for key, name, time in records:
            if time < self.watermark:
                continue
            self.seen[side].append((key, name, time))
            for left_key, left, at in self.seen[0] if side else [(key, name, time)]:
                for right_key, right, other in [(key, name, time)] if side else self.seen[1]:
                    partner_until = at + max(0, self.upper) if side else other + max(0, -self.lower)
                    if (
                        left_key == right_key
                        and self.lower <= other - at <= self.upper
                        and partner_until >= self.watermark
                    ):
                        out.append((left, right, at, other))
        return sorted(out)


records = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 60)), min_size=1, max_size=8)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("left"), records),
        st.tuples(st.just("right"), records),
        st.tuples(st.just("clock"), st.integers(0, 15)),
        st.tuples(st.just("look"), st.none()),
        st.tuples(st.just("rescale"), st.integers(1, 3)),
    ),
    min_size=1,
    max_size=16,
)
bounds = st.tuples(st.integers(-20, 20), st.integers(0, 20)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@pytest.mark.parametrize("backend", BY_BACKEND)
@given(history=steps, bounds=bounds)
@settings(max_examples=60, deadline=None)
def test_the_pairs_equal_those_of_a_join_that_keeps_all_records(
    backend: str, history: list[Any], bounds: tuple[int, int]
) -> None:
    model, number = Remembering(*bounds), 0
    harness = OperatorHarness(join(*bounds), parallelism=2, backend=backend)
    for kind, argument in history:
        expected: list[Any] = []
        if kind in ("left", "right"):
            side = int(kind == "right")
            named = [(key, f"{kind}{number + i}", time) for i, (key, time) in enumerate(argument)]
            number += len(named)
            expected = model.push(named, side)
            harness.push(*[(key, name) for key, name, _ in named], timestamp=[t for _, _, t in named], input_index=side)
        elif kind == "clock":
            model.watermark = max(model.watermark, 0) + argument
            harness.advance_watermark(model.watermark)
        elif kind == "look":
            harness.snapshot()
        else:
            harness.restore(harness.snapshot(), argument, join(*bounds))
        assert sorted(harness.take()) == expected
    harness.advance_watermark(10_000)
    assert harness.state_size() == 0
    harness.close()


def test_values_that_expire_between_snapshots_cost_no_access_to_state(monkeypatch: pytest.MonkeyPatch) -> None:
    run = OperatorRun(join(-10, 10))
    written: list[Any] = []
    monkeypatch.setattr(interval_buffers.Buffers, "_write_side", lambda *arguments: written.append(arguments))
    run.push(("a", 1), ("b", 2), at=[5, 6]).push(("a", 3), at=[7], to=1).watermark(30)
    run.snapshot()
    assert (run.values, written) == ([(1, 3, 5, 7)], [])


def test_too_many_values_for_a_barrier_are_written_earlier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interval_buffers, "MAX_VALUES", 10)
    run = OperatorRun(join(0, 1000))
    for number in range(40):
        run.push((f"k{number}", number), at=[number])
        assert len(run.operator._buffers.in_memory) <= 16  # type: ignore[attr-defined]
    run.push(*[(f"k{number}", -number) for number in range(40)], at=[100] * 40, to=1)
    assert run.values == [(number, -number, number, 100) for number in range(40)]
    assert run.watermark(2000).backend.entry_count() == 0


def test_a_key_with_only_expired_values_is_forgotten() -> None:
    run = OperatorRun(join(-10, 10)).push(("a", 1), ("b", 1), at=[5, 100]).watermark(50)
    assert list(run.operator._buffers.in_memory) == ["b"]  # type: ignore[attr-defined]
    for time in range(100, 1000, 5):
        run.push(("b", time), at=[time]).watermark(time)
    assert len(run.operator._buffers.in_memory["b"].sides[0].times) < 20  # type: ignore[attr-defined]


def test_the_function_uses_the_state_of_the_current_key() -> None:
    class Counting(ProcessJoinFunction):
        def open(self, runtime_context: Any) -> None:
            self.count = runtime_context.get_state(ValueStateDescriptor("count", int))

        def process_element(self, left: Any, right: Any, ctx: Any) -> Any:
            count = (self.count.value() or 0) + 1
            self.count.update(count)
            yield left[0], count

    run = OperatorRun(IntervalJoinOperator(Counting(), (KEY, KEY), lower_ms=-5, upper_ms=5))
    run.push(("a", 1), ("b", 1), ("a", 2), at=[1, 1, 2]).push(("a", 3), ("b", 3), at=[3, 3], to=1)
    assert run.values == [("a", 1), ("a", 2), ("b", 1)]


@pytest.mark.parametrize("first", [0, 1])
def test_the_order_of_arrival_of_two_values_that_are_not_late_does_not_matter(first: int) -> None:
    run = OperatorRun(join(-5, 0)).watermark(100)
    run.push(("a", "first"), at=[100], to=first).push(("a", "second"), at=[100], to=1 - first)
    assert len(run.values) == 1


def test_a_check_of_many_values_leaves_keys_without_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interval_buffers, "MAX_VALUES", 4)
    run = OperatorRun(join(-5, 0)).watermark(100)
    run.push(("x", "left"), at=[100], to=0)
    run.push(*[("y", str(n)) for n in range(6)], at=[200] * 6, to=1)
    run.watermark(101)
    run.push(*[("y", str(n)) for n in range(6)], at=[200] * 6, to=1)
    run.watermark(300).push(("x", "right"), at=[300], to=1)
    assert run.values == []


@pytest.mark.parametrize("bound", [0, 5])
def test_values_at_the_end_of_time_in_state_do_not_block_it(bound: int) -> None:
    """Count windows emit results at that time. They could not be removed at a later time."""
    with OperatorHarness(join(-bound, bound)) as harness:
        harness.push(("a", "left"), timestamp=MAX_TIMESTAMP)
        harness.snapshot()
        harness.push(("a", "right"), timestamp=MAX_TIMESTAMP, input_index=1)
        harness.advance_watermark(MAX_TIMESTAMP)
        assert harness.outputs() == [("left", "right", MAX_TIMESTAMP, MAX_TIMESTAMP)]
