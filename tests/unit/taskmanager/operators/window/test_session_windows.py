"""Sessions: windows that grow and merge."""

from __future__ import annotations

from datetime import timedelta
from operator import itemgetter
from typing import Any

import pytest

from penstock.datastream.window import EventTimeSessionWindows, ProcessingTimeSessionWindows
from penstock.taskmanager.operators.window import sessions
from penstock.taskmanager.operators.window.operator import WindowOperator
from penstock.testing.operator_run import OperatorRun
from penstock.windowing.window_function import WindowFunctionSpec
from tests.unit.taskmanager.operators.window.windows import (
    KEY,
    LATE,
    MINUTE,
    SESSIONS,
    Mean,
    Spec,
    add,
    gather,
    minutes,
)


@pytest.mark.parametrize("order", [[0, 10, 24, 40], [24, 40, 0, 10], [40, 0, 24, 10]])
def test_sessions_merge_in_any_order_of_arrival(order: list[int]) -> None:
    """The records at :00, :10 and :24 are one session [:00, :39). The record at :40 starts another session."""
    run = OperatorRun(WindowOperator(SESSIONS, Spec.process(gather), KEY))
    for minute in order:
        run.push(("user", minute), at=minutes(minute))
    run.end()
    assert [(start, end, sorted(seen)) for _, start, end, seen in run.values] == [
        (0, 39 * MINUTE, [0, 10, 24]),
        (40 * MINUTE, 55 * MINUTE, [40]),
    ]
    assert run.backend.entry_count() == 0
    assert list(run.timers.event_time_timers()) == []


def test_a_record_that_touches_the_end_joins_the_session() -> None:
    """The record is exactly at :39. Windows that touch are merged, as in Flink."""
    run = OperatorRun(WindowOperator(SESSIONS, Spec.process(gather), KEY))
    run.push(*[("user", m) for m in (0, 10, 24, 39)], at=minutes(0, 10, 24, 39)).end()
    assert [(start, end) for _, start, end, _ in run.values] == [(0, 54 * MINUTE)]


@pytest.mark.parametrize("spec", [Spec.reduce(add), Spec.aggregate(Mean())])
def test_sessions_merge_folded_values(spec: WindowFunctionSpec) -> None:
    run = OperatorRun(WindowOperator(SESSIONS, spec, KEY))
    run.push(*[("u", m) for m in (0, 30, 15)], at=minutes(0, 30, 15)).end()
    assert run.values == [("u", 45) if spec.kind == "reduce" else 15.0]


def test_sessions_of_different_keys_are_separate() -> None:
    run = OperatorRun(WindowOperator(SESSIONS, Spec.reduce(add), KEY))
    run.push(("a", 1), ("b", 2), ("a", 4), at=minutes(0, 5, 10)).end()
    assert sorted(run.values) == [("a", 5), ("b", 2)]


def test_a_late_record_joins_an_open_session_but_starts_none() -> None:
    run = OperatorRun(WindowOperator(SESSIONS, Spec.process(gather), KEY, late_tag=LATE))
    run.push(("a", 20), at=minutes(20)).watermark(25 * MINUTE).push(("a", 8), ("a", 2), ("b", 3), at=minutes(8, 2, 3))
    assert run.side("late") == [("b", 3)]
    assert [(s, e) for _, s, e, _ in run.end().values] == [(2 * MINUTE, 35 * MINUTE)]


def test_allowed_lateness_reopens_a_session_that_has_fired() -> None:
    operator = WindowOperator(SESSIONS, Spec.process(gather), KEY, allowed_lateness=timedelta(minutes=30))
    run = OperatorRun(operator).push(("a", 0), at=[0]).watermark(20 * MINUTE)
    assert [(s, e) for _, s, e, _ in run.take()] == [(0, 15 * MINUTE)]
    run.push(("a", 4), at=minutes(4))
    assert [(s, e, seen) for _, s, e, seen in run.take()] == [(0, 19 * MINUTE, [0, 4])]
    run.push(("a", 14), at=minutes(14))
    assert run.take() == []
    assert [(s, e, seen) for _, s, e, seen in run.watermark(29 * MINUTE).take()] == [(0, 29 * MINUTE, [0, 4, 14])]


def test_a_merged_session_has_the_timers_of_one_window() -> None:
    run = OperatorRun(WindowOperator(SESSIONS, Spec.reduce(add), KEY, allowed_lateness=1000))
    run.push(*[("a", m) for m in (0, 30, 15, 5)], at=minutes(0, 30, 15, 5))
    end = 45 * MINUTE - 1
    assert sorted(timestamp for timestamp, _, _ in run.timers.event_time_timers()) == [end, end + 1000]


def test_sessions_survive_a_restart() -> None:
    run = OperatorRun(WindowOperator(SESSIONS, Spec.process(gather), KEY))
    run.push(("a", 0), ("a", 20), at=minutes(0, 20))
    again = run.restart().push(("a", 10), at=minutes(10)).end()
    assert [(s, e, sorted(seen)) for _, s, e, seen in again.values] == [(0, 35 * MINUTE, [0, 10, 20])]


def test_sessions_with_dynamic_gaps() -> None:
    assigner = EventTimeSessionWindows.with_dynamic_gap(itemgetter(1))
    run = OperatorRun(WindowOperator(assigner, Spec.process(gather), KEY))
    run.push(("a", 100), ("a", 10), ("a", 5), at=[0, 20, 200]).end()
    assert run.values == [("a", 0, 100, [100, 10]), ("a", 200, 205, [5])]


def test_processing_time_sessions() -> None:
    run = OperatorRun(WindowOperator(ProcessingTimeSessionWindows.with_gap(100), Spec.process(gather), KEY))
    run.push(("a", 1)).at_time(50).push(("a", 2)).at_time(149)
    assert run.values == [("a", 0, 150, [1, 2])]
    assert run.backend.entry_count() == 0


def test_a_session_that_grows_keeps_its_timer_until_the_timer_fires() -> None:
    run = OperatorRun(WindowOperator(SESSIONS, Spec.reduce(add), KEY))
    run.push(("a", 0), at=[0])
    assert [timestamp for timestamp, _, _ in run.timers.event_time_timers()] == [15 * MINUTE - 1]
    run.push(("a", 10), ("a", 20), at=minutes(10, 20))
    assert [timestamp for timestamp, _, _ in run.timers.event_time_timers()] == [15 * MINUTE - 1]
    run.watermark(16 * MINUTE)
    assert [timestamp for timestamp, _, _ in run.timers.event_time_timers()] == [35 * MINUTE - 1]
    assert run.watermark(34 * MINUTE).values == []
    assert run.watermark(35 * MINUTE).values == [("a", 30)]
    assert run.backend.entry_count() == 0


def test_a_session_whose_start_moves_back_fires_once_at_the_same_end() -> None:
    run = OperatorRun(WindowOperator(SESSIONS, Spec.reduce(add), KEY))
    run.push(("a", 10), ("a", 1), at=[10 * MINUTE, 0])
    assert [timestamp for timestamp, _, _ in run.timers.event_time_timers()] == [25 * MINUTE - 1]
    assert run.end().values == [("a", 11)]


def test_a_session_that_ends_between_snapshots_costs_no_access_to_state(monkeypatch: pytest.MonkeyPatch) -> None:
    run = OperatorRun(WindowOperator(SESSIONS, Spec.aggregate(Mean()), KEY))
    table = run.operator._windows._contents  # type: ignore[attr-defined]
    written: list[Any] = []
    monkeypatch.setattr(type(table), "put", lambda *arguments: written.append(arguments))
    run.push(("a", 1), ("a", 3), ("b", 5), ("a", 7), at=minutes(0, 10, 12, 60)).watermark(90 * MINUTE)
    assert (run.values, written) == ([2.0, 5.0, 7.0], [])


def test_sessions_of_too_many_keys_for_a_barrier_are_written_earlier(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sessions, "MAX_KEYS", 10)
    run = OperatorRun(WindowOperator(SESSIONS, Spec.reduce(add), KEY))
    for turn in range(3):
        for key in range(24):
            run.push((f"k{key}", 1), at=[turn * 1000])
            assert len(run.operator._windows._latest) <= 10  # type: ignore[attr-defined]
    assert sorted(run.end().values) == sorted((f"k{key}", 3) for key in range(24))
    assert run.backend.entry_count() == 0


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_sessions_in_state_and_in_memory_fire_in_order_of_time(backend: str) -> None:
    run = OperatorRun(WindowOperator(SESSIONS, Spec.reduce(add), KEY), backend=backend)
    run.push(("b", 1), ("d", 2), at=minutes(1, 3)).snapshot()
    run.push(("a", 3), ("c", 4), ("d", 5), at=minutes(0, 2, 4)).watermark(60 * MINUTE)
    assert run.values == [("a", 3), ("b", 1), ("c", 4), ("d", 7)]
    run.close()


def test_a_merge_of_written_and_new_sessions_leaves_no_state() -> None:
    run = OperatorRun(WindowOperator(SESSIONS, Spec.reduce(add), KEY))
    run.push(*[("a", 1)] * 3, at=minutes(0, 40, 80)).snapshot()
    run.push(*[("a", 1)] * 4, at=minutes(60, 20, 30, 10)).snapshot()
    run.push(("a", 1), ("a", 1), at=minutes(70, 50))
    assert [timestamp for timestamp, _, _ in run.timers.event_time_timers()][-1] == 95 * MINUTE - 1
    assert run.watermark(95 * MINUTE).values == [("a", 9)]
    assert run.backend.entry_count() == 0
    assert list(run.timers.event_time_timers()) == []


@pytest.mark.parametrize("lateness", [0, 1000], ids=["together", "pane by pane"])
def test_an_ended_session_leaves_no_namespace_without_checkpoints(lateness: int) -> None:
    run = OperatorRun(WindowOperator(SESSIONS, Spec.reduce(add), KEY, allowed_lateness=lateness))
    for minute in (0, 30, 60):
        run.push(("a", 1), at=minutes(minute)).watermark((minute + 20) * MINUTE)
    (table,) = [table for name, (_, table) in run.backend._registered.items() if name == "window-contents"]
    assert list(table.spaces) == [None]
