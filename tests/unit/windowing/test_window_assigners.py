"""The windows that a record belongs to, and windows as values."""

from __future__ import annotations

from datetime import timedelta
from io import BytesIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common.errors import InvalidJob
from penstock.common.time import Duration, Time
from penstock.datastream.window import (
    CountEvictor,
    CountSlidingWindowAssigner,
    CountTrigger,
    CountTumblingWindowAssigner,
    CountWindow,
    CountWindowSerializer,
    DeltaEvictor,
    EventTimeSessionWindows,
    GlobalWindow,
    GlobalWindowSerializer,
    MergingWindowAssigner,
    ProcessingTimeSessionWindows,
    PurgingTrigger,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TimeEvictor,
    TimestampedValue,
    TimeWindow,
    TimeWindowSerializer,
    TriggerResult,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)

HOUR, MINUTE = 3_600_000, 60_000


class Clock:
    def __init__(self, now: int) -> None:
        self.now = now

    def get_current_processing_time(self) -> int:
        return self.now


def at(text: str) -> int:
    hours, minutes, seconds = text.split(":")
    return int(hours) * HOUR + int(minutes) * MINUTE + round(float(seconds) * 1000)


@pytest.mark.parametrize("second", [1000, timedelta(seconds=1), Time.seconds(1), Duration.of_seconds(1)])
def test_a_duration_is_accepted_in_every_form(second: Any) -> None:
    assert TumblingEventTimeWindows.of(second).windows_at(1999) == [TimeWindow(1000, 2000)]


@pytest.mark.parametrize(
    ("time", "window"),
    [("00:14:59.999", (at("-1:15:00"), at("00:15:00"))), ("00:15:00", (at("00:15:00"), at("01:15:00")))],
)
def test_tumbling_windows_have_an_offset(time: str, window: tuple[int, int]) -> None:
    """The windows of one hour are shifted by 15 minutes. The window before midnight starts at 23:15 of the previous
    day."""
    assigner = TumblingEventTimeWindows.of(timedelta(hours=1), timedelta(minutes=15))
    assert assigner.assign_windows(None, at(time), Clock(0)) == [TimeWindow(*window)]  # type: ignore[arg-type]


def test_sliding_windows_contain_a_record_size_by_slide_times() -> None:
    windows = SlidingEventTimeWindows.of(timedelta(hours=1), timedelta(minutes=15)).windows_at(at("10:07:00"))
    starts = [at("10:00:00"), at("09:45:00"), at("09:30:00"), at("09:15:00")]
    assert windows == [TimeWindow(start, start + HOUR) for start in starts]


def test_records_between_windows_belong_to_no_window() -> None:
    """The slide is larger than the size."""
    assigner = SlidingEventTimeWindows.of(10, 25)
    assert [len(assigner.windows_at(t)) for t in (0, 9, 10, 24, 25)] == [1, 1, 0, 0, 1]


@given(
    timestamp=st.integers(-(10**12), 10**13),
    size=st.integers(1, 10**6),
    slide=st.integers(1, 10**6),
    offset=st.integers(-(10**6), 10**6),
)
def test_windows_contain_the_record_and_are_aligned(timestamp: int, size: int, slide: int, offset: int) -> None:
    slide = max(slide, size // 50)
    offset = offset % slide
    windows = SlidingEventTimeWindows.of(size, slide, offset).windows_at(timestamp)
    assert all(w.start <= timestamp < w.end and w.end - w.start == size for w in windows)
    assert all((w.start - offset) % slide == 0 for w in windows)
    assert len(windows) in (size // slide, size // slide + 1)


@pytest.mark.parametrize("assigner", [TumblingProcessingTimeWindows.of(10), SlidingProcessingTimeWindows.of(10, 10)])
def test_processing_time_windows_use_the_clock_and_not_the_record(assigner: Any) -> None:
    assert assigner.assign_windows(None, 5, Clock(123)) == [TimeWindow(120, 130)]
    assert not assigner.is_event_time()


def test_sessions_start_at_the_record() -> None:
    assert EventTimeSessionWindows.with_gap(15).assign_windows(None, 100, Clock(0)) == [TimeWindow(100, 115)]  # type: ignore[arg-type]
    assert ProcessingTimeSessionWindows.with_gap(15).assign_windows(None, 100, Clock(7)) == [TimeWindow(7, 22)]  # type: ignore[arg-type]


class Merges(MergingWindowAssigner.MergeCallback[Any]):
    def __init__(self) -> None:
        self.calls: list[Any] = []

    def merge(self, to_be_merged: Any, merge_result: Any) -> None:
        self.calls.append((sorted(to_be_merged), merge_result))


def test_windows_that_overlap_or_touch_merge() -> None:
    """The records are at 10:00, 10:10 and 10:24, with a gap of 15 minutes.

    A record at 10:39 touches the end and merges, as in Flink. A record at 10:55 does not.
    """
    merges = Merges()
    starts = [at("10:24:00"), at("10:00:00"), at("10:55:00"), at("10:10:00"), at("10:39:00")]
    windows = [TimeWindow(start, start + 15 * MINUTE) for start in starts]
    TimeWindow.merge_windows(windows, merges)
    assert merges.calls == [
        (sorted(w for w in windows if w.start != at("10:55:00")), TimeWindow(at("10:00:00"), at("10:54:00")))
    ]


def test_dynamic_gaps_are_computed_from_the_record() -> None:
    assigner = EventTimeSessionWindows.with_dynamic_gap(lambda record: timedelta(milliseconds=record))
    assert assigner.assign_windows(7, 100, Clock(0)) == [TimeWindow(100, 107)]  # type: ignore[arg-type]
    with pytest.raises(InvalidJob, match="dynamic session gap must be positive"):
        assigner.assign_windows(0, 100, Clock(0))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TumblingEventTimeWindows.of(0), "size of TumblingEventTimeWindows must be positive"),
        (lambda: TumblingEventTimeWindows.of(10, 10), "not smaller than the 10 ms"),
        (lambda: SlidingEventTimeWindows.of(10, 5, -5), "not smaller than the 5 ms"),
        (lambda: EventTimeSessionWindows.with_gap(-1), "gap of EventTimeSessionWindows"),
        (lambda: CountTumblingWindowAssigner.of(0), "count window"),
        (lambda: CountTrigger.of(0), "CountTrigger"),
        (lambda: TumblingEventTimeWindows.of("1 hour"), "timedelta"),  # type: ignore[arg-type]
    ],
)
def test_impossible_windows_are_refused(make: Any, message: str) -> None:
    with pytest.raises(InvalidJob, match=message):
        make()


def test_a_record_without_timestamp_has_no_event_time_window() -> None:
    with pytest.raises(InvalidJob, match="assign_timestamps_and_watermarks"):
        TumblingEventTimeWindows.of(10).assign_windows(None, -(2**63), Clock(0))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("serializer", "window", "namespace"),
    [
        (TimeWindowSerializer(), TimeWindow(-5, 10), (-5, 10)),
        (CountWindowSerializer(), CountWindow(3), (3,)),
        (GlobalWindowSerializer(), GlobalWindow.get(), (0,)),
    ],
)
def test_windows_are_converted_to_namespaces_and_bytes_and_back(serializer: Any, window: Any, namespace: Any) -> None:
    assert serializer.to_namespace(window) == namespace
    assert serializer.from_namespace(namespace) == window
    stream = BytesIO()
    serializer.serialize(window, stream)
    stream.seek(0)
    assert serializer.deserialize(stream) == window


class CountContext:
    """State of one key for the count assigners."""

    def __init__(self) -> None:
        self.count: int | None = None

    def get_runtime_context(self) -> CountContext:
        return self

    def get_state(self, descriptor: Any) -> CountContext:
        return self

    def value(self) -> int | None:
        return self.count

    def update(self, value: int) -> None:
        self.count = value


def test_count_windows_number_the_records_of_a_key() -> None:
    tumbling, sliding = CountContext(), CountContext()
    three, of_four_every_two = CountTumblingWindowAssigner.of(3), CountSlidingWindowAssigner.of(4, 2)
    ids = [[w.id for w in three.assign_windows(None, 0, tumbling)] for _ in range(5)]  # type: ignore[arg-type]
    assert ids == [[0], [0], [0], [1], [1]]
    ids = [[w.id for w in of_four_every_two.assign_windows(None, 0, sliding)] for _ in range(6)]  # type: ignore[arg-type]
    assert ids == [[0], [0], [1, 0], [1, 0], [2, 1], [2, 1]]


def test_trigger_results_state_their_actions() -> None:
    assert [(r.is_fire(), r.is_purge()) for r in TriggerResult] == [
        (False, False),
        (True, True),
        (True, False),
        (False, True),
    ]


def test_purging_trigger_merges_if_its_nested_trigger_does() -> None:
    assert PurgingTrigger.of(CountTrigger.of(2)).can_merge()


RECORDS = [(1, 10), (9, 40), (5, 20), (4, 35)]


@pytest.mark.parametrize(
    ("evictor", "kept"),
    [
        (CountEvictor.of(2), [5, 4]),
        (CountEvictor.of(9), [1, 9, 5, 4]),
        (TimeEvictor.of(10), [9, 4]),
        (DeltaEvictor.of(3, lambda value, last: abs(value - last)), [5, 4]),
    ],
)
def test_evictors_run_before_and_after(evictor: Any, kept: list[int]) -> None:
    elements = [TimestampedValue(*record) for record in RECORDS]
    evictor.evict_after(elements, len(elements), None, None)
    assert len(elements) == 4
    evictor.evict_before(elements, len(elements), None, None)
    assert [value for value, _ in elements] == kept


def test_evictors_can_run_after_the_window_function() -> None:
    evictor = CountEvictor.of(1, do_evict_after=True)
    elements = [TimestampedValue(*record) for record in RECORDS]
    evictor.evict_before(elements, len(elements), GlobalWindow.get(), None)  # type: ignore[arg-type]
    assert len(elements) == 4
    evictor.evict_after(elements, len(elements), GlobalWindow.get(), None)  # type: ignore[arg-type]
    assert len(elements) == 1


def test_a_time_window_is_a_plain_class_that_programs_may_derive_from() -> None:
    class Named(TimeWindow):
        def __init__(self, start: int, end: int, name: str) -> None:
            super().__init__(start, end)
            self.name = name

    assert Named(0, 5, "first").name == "first"
    assert [TimeWindow(0, 5) != other for other in (TimeWindow(0, 5), TimeWindow(0, 6))] == [False, True]
