"""A source operator's splits: which is read next, what holds the clock back, and what many of them cost."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common.time import Duration
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.datagen import DataGeneratorSource, GeneratorSplitReader
from penstock.connectors.source import (
    ReadBounds,
    ReaderContext,
    Source,
    SourceReader,
    Split,
    SplitEnumerator,
    SplitReader,
)
from penstock.jobmanager.coordinators.source_coordinator import SourceCoordinator
from penstock.records.batch import MAX_TIMESTAMP, Batch, RowBatch
from penstock.taskmanager.operators.connectors.source import SourceOperator
from penstock.taskmanager.worker import ManualClock
from tests.unit.connectors.file.file_job import FAR, operator_of


class Batches(SplitReader):
    """Gives the batches a split names, None where it names None; ends after the last one."""

    def __init__(self, batches: list[list[int] | None], position: int) -> None:
        self._batches = batches
        self._position = position

    def read(self, bounds: ReadBounds) -> Batch | None:
        if self.finished:
            return None
        values = self._batches[self._position]
        self._position += 1
        return None if values is None else RowBatch(list(values), None)

    @property
    def position(self) -> int:
        return self._position

    @property
    def finished(self) -> bool:
        return self._position == len(self._batches)

    def lag(self) -> int:
        return len(self._batches) - self._position


class BatchesReader(SourceReader):
    def __init__(self, source: Splits) -> None:
        self._source = source

    def open_split(self, split: Split, position: Any) -> SplitReader:
        self._source.opened.append(split.id)
        return Batches(self._source.contents[int(split.id)], position or 0)

    def lag_of(self, split: Split, position: Any) -> int:
        return len(self._source.contents[int(split.id)]) - (position or 0)


class Splits(Source):
    """A split for each list of batches."""

    def __init__(self, contents: list[list[list[int] | None]]) -> None:
        self.contents = contents
        self.opened: list[str] = []

    def create_enumerator(self) -> SplitEnumerator:
        return AllAtOnce(len(self.contents))

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return BatchesReader(self)


class AllAtOnce(SplitEnumerator):
    def __init__(self, count: int) -> None:
        self._count = count

    def discover(self) -> list[Split]:
        return [Split(str(number)) for number in range(self._count)]


EVENT_TIME: WatermarkStrategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda v, _: v)


def assigned(source: Source, clock: Any, strategy: Any = None) -> tuple[SourceOperator, Any]:
    operator, output = operator_of(source, clock, strategy)
    coordinator = SourceCoordinator("in", source)
    coordinator.start_attempt(1, None)
    coordinator.discover(0)
    operator.assign(coordinator.take_assignments()[0], no_more_splits=True)
    return operator, output


def read_all(operator: SourceOperator) -> None:
    for _ in operator.read(FAR):
        pass


def test_without_event_time_splits_take_turns() -> None:
    operator, output = assigned(Splits([[[1], [2], [3]], [[10], [20]], [[100]]]), ManualClock(0))
    read_all(operator)
    assert [value for value, _ in output.records] == [1, 10, 100, 2, 20, 3]


def test_the_split_with_the_lowest_watermark_is_read_next() -> None:
    operator, output = assigned(Splits([[[1], [8], [9]], [[5], [6], [10]], [[2], [3]]]), ManualClock(0), EVENT_TIME)
    read_all(operator)
    assert [value for value, _ in output.records] == [1, 5, 2, 8, 3, 6, 10, 9]
    assert output.watermarks == [0, 1, 2, 4, 5, 7, 8, MAX_TIMESTAMP]


def test_a_reader_whose_next_record_is_not_due_yet_is_not_read_to_be_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock(0)
    asked: list[ReadBounds] = []
    read = GeneratorSplitReader.read
    monkeypatch.setattr(GeneratorSplitReader, "read", lambda self, most: (asked.append(most), read(self, most))[1])
    strategy = EVENT_TIME.with_idleness(Duration.of_seconds(1))
    operator, output = assigned(DataGeneratorSource(lambda n: n, records_per_second=10), clock, strategy)
    read_all(operator)
    for now in (900, 1000, 1100):
        asked.clear()
        clock.set(now)
        read_all(operator)
        assert operator.next_read_at() == now + 100
    assert len(asked) == 1
    assert [value for value, _ in output.records] == list(range(12))
    clock.set(1150)
    assert operator.next_wake() == 2_100  # then it is idle: the last record came at 1,100


def test_a_split_that_waits_for_its_turn_is_not_idle_and_holds_the_clock_back() -> None:
    clock = ManualClock(0)
    strategy = EVENT_TIME.with_idleness(Duration.of_seconds(1))
    operator, output = assigned(Splits([[[100], [200]], [[1]]]), clock, strategy)
    for number, _ in enumerate(operator.read(FAR)):
        clock.set(clock.now_ms() + 10_000)
        operator.advance_processing_time(clock.now_ms())
        if number == 0:
            assert not output.watermarks
    assert output.watermarks == [0, 99, 199, MAX_TIMESTAMP]


def test_splits_that_give_nothing_go_idle_at_the_same_time_and_come_back() -> None:
    clock = ManualClock(0)
    strategy = EVENT_TIME.with_idleness(Duration.of_seconds(1))
    quiet: list[list[int] | None] = [None] * 2
    operator, output = assigned(Splits([[[10], *quiet, [50], [60]], [*quiet, [40]], [*quiet, [45]]]), clock, strategy)
    read_all(operator)
    assert not output.watermarks
    clock.set(1_000)
    read_all(operator)
    assert output.events[-1] == ("idle", True)
    assert output.watermarks == [9]
    clock.set(1_500)
    read_all(operator)
    assert ("idle", False) in output.events
    assert output.watermarks[-1] == MAX_TIMESTAMP
    assert output.watermarks == sorted(output.watermarks)


@pytest.mark.parametrize("looks", [[1_000, 1_400, 1_700], [1_700], [1_500, 1_700]])
@pytest.mark.parametrize(("first", "last"), [(100, 10), (10, 100)])
def test_however_late_idleness_is_seen_the_clock_goes_to_the_split_that_was_idle_last(
    first: int, last: int, looks: list[int]
) -> None:
    """The first one and one without records are idle since 1,000, the last one since 1,400."""
    clock = ManualClock(0)
    strategy = EVENT_TIME.with_idleness(Duration.of_seconds(1))
    quiet: list[list[int] | None] = [None] * 9
    operator, output = assigned(Splits([[[first], *quiet], [*quiet], [None, None, [last], *quiet]]), clock, strategy)
    for now in (0, 200, 400):
        clock.set(now)
        read_all(operator)
    for now in looks:
        clock.set(now)
        operator.advance_processing_time(now)
    assert output.watermarks == [last - 1]
    assert output.events[-1] == ("idle", True)


def test_a_split_that_has_given_all_is_not_read_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Batches, "has_given_all", lambda self: self.position == 3)
    operator, output = assigned(Splits([[[1] * 8, [2], [3], [4], [5]], [[10]]]), ManualClock(0))
    read_all(operator)
    assert sorted({value for value, _ in output.records}) == [1, 2, 3, 10]
    assert operator.next_read_at() == 0
    read_all(operator)
    assert sorted({value for value, _ in output.records}) == [1, 2, 3, 4, 5, 10]


def test_a_split_that_has_given_all_is_read_again_beside_one_that_always_has_more_and_is_not_idle() -> None:
    """A batch takes 1 ms. What is set aside for a moment is asked again some 20 ms later, and has not gone idle meanwhile."""
    clock = ManualClock(0)

    class Slow(Batches):
        def read(self, bounds: ReadBounds) -> Batch | None:
            clock.set(clock.now_ms() + 1)
            batch = super().read(bounds)
            seen.append((clock.now_ms(), [] if batch is None else batch.rows().values))
            return batch

        def has_given_all(self) -> bool:
            return self._batches is trickle

    class SlowReader(BatchesReader):
        def open_split(self, split: Split, position: Any) -> SplitReader:
            return Slow(self._source.contents[int(split.id)], position or 0)

    class SlowSplits(Splits):
        def create_reader(self, context: ReaderContext) -> SourceReader:
            return SlowReader(self)

    seen: list[tuple[int, list[int]]] = []
    trickle: list[list[int] | None] = [[n] for n in range(40)]
    busy: list[list[int] | None] = [[n] * 100 for n in range(40, 2_000)]
    strategy = EVENT_TIME.with_idleness(Duration.of_millis(15))
    operator, output = assigned(SlowSplits([trickle, busy]), clock, strategy)
    read_all(operator)
    times = [at for at, values in seen if len(values) == 1]
    assert len(times) == 40
    assert max(after - before for before, after in pairwise(times)) <= 25
    clock_of, late = -1, 0
    for kind, *rest in output.events:
        if kind == "watermark":
            clock_of = rest[0]
        elif isinstance(kind, int):
            late += kind <= clock_of
    assert late == 0


def test_a_clock_that_is_set_back_does_not_make_set_aside_splits_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch takes 1 ms; with the first batch of 2 the machine's clock is set back by an hour."""
    monkeypatch.setattr(Batches, "has_given_all", lambda self: len(self._batches) == 3)
    clock = ManualClock(10_000_000)
    operator, output = assigned(Splits([[[1] * 9, [2], [3]], [[10]] * 50]), clock)
    for _ in operator.read(FAR):
        clock._now += 1 if output.records[-1][0] != 2 else -3_600_000
    values = [value for value, _ in output.records]
    assert values.index(3) < values.index(2) + 5


class DuckReader:
    """Has the methods that every split reader had once, and not the class."""

    moves_without_records = False
    position = 0

    def read(self, bounds: ReadBounds) -> Batch | None:
        self.position += 1
        return RowBatch([self.position], None)

    @property
    def finished(self) -> bool:
        return self.position == 3

    def __getattr__(self, name: str) -> Any:
        if name == "has_given_all":
            raise AttributeError(name)
        return {"take_rejected": list, "take_watermarks": list, "is_idle": bool, "close": bool}.get(name, lambda: None)


def test_a_reader_may_have_the_methods_without_the_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BatchesReader, "open_split", lambda *_: DuckReader())
    operator, output = assigned(Splits([[[1]]]), ManualClock(0))
    read_all(operator)
    assert [value for value, _ in output.records] == [1, 2, 3]


def test_a_step_tells_its_records_and_whether_there_are_more() -> None:
    operator, _ = assigned(Splits([[[1, 1], [2]], [[10]]]), ManualClock(0))
    assert list(operator.read(FAR)) == [2, 1, -1]


@given(
    contents=st.lists(
        st.lists(st.none() | st.lists(st.integers(0, 50), min_size=1, max_size=3), max_size=5), max_size=6
    ),
    bound=st.integers(1, 5),
    event_time=st.booleans(),
)
def test_every_record_comes_once_in_the_order_of_its_split(
    contents: list[list[list[int] | None]], bound: int, event_time: bool
) -> None:
    source = Splits([[batch and [v * 100 + n for v in batch] for batch in split] for n, split in enumerate(contents)])
    operator, output = operator_of(source, ManualClock(0), EVENT_TIME if event_time else None)
    coordinator = SourceCoordinator("in", source)
    coordinator.start_attempt(1, None)
    coordinator.discover(0)
    for epoch in range(100):
        if epoch % 3 == 2:  # fail: what the acks said is true
            coordinator.start_attempt(1, coordinator.snapshot())
            operator, _ = operator_of(source, ManualClock(0), operator.strategy)
            operator.output = output
        operator.assign(coordinator.take_assignments().get(0, []), no_more_splits=True)
        operator.begin_epoch(bound)
        for _ in operator.read(FAR):
            pass
        coordinator.on_progress(0, operator.progress())
    assert coordinator.exhausted
    for number, split in enumerate(source.contents):
        records = [value for value, _ in output.records if value % 100 == number]
        assert records == [value for batch in split if batch for value in batch]
    assert not output.watermarks or output.watermarks == sorted(output.watermarks)


def test_the_lag_counts_splits_that_are_not_open_yet() -> None:
    operator, _ = assigned(Splits([[[1], [2]], [[3]], [[4]]]), ManualClock(0))
    assert operator.progress().lag == 4
    next(operator.read(FAR))
    assert operator.progress().lag == 3
    read_all(operator)
    assert operator.progress().lag == 0


def test_a_split_is_opened_when_it_is_read_first() -> None:
    source = Splits([[[1], [2]], [[3]]])
    operator, _ = assigned(source, ManualClock(0))
    assert source.opened == []
    assert operator.progress().positions == {"0": None, "1": None}
    next(operator.read(FAR))
    assert source.opened == ["0"]


def test_where_a_split_has_ended_is_told_where_the_source_wants_it() -> None:
    source = Splits([[[1], [2]], [[3], None, [4]]])
    for tells in (False, True):
        source.tells_last_positions = tells
        operator, _ = assigned(source, ManualClock(0))
        operator.progress()
        for _ in range(3):
            read_all(operator)
        progress = operator.progress()
        assert progress.finished == ["0", "1"]
        assert progress.positions == ({"0": 2, "1": 3} if tells else {})


def test_a_position_that_moves_without_records_is_asked_for_with_every_ack_and_told_when_it_has_moved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for moves, told in ((False, {}), (True, {"0": 3})):
        monkeypatch.setattr(Batches, "moves_without_records", moves)
        operator, _ = assigned(Splits([[[1], None, None, [2]]]), ManualClock(0))
        next(operator.read(FAR))
        assert operator.progress().positions == {"0": 1}
        for _ in range(2):
            next(operator.read(FAR), None)
        assert operator.progress().positions == told
        assert operator.progress().positions == {}, "it would count as input"


@pytest.mark.parametrize("strategy", [None, EVENT_TIME, EVENT_TIME.with_idleness(Duration.of_seconds(1))])
def test_a_split_costs_the_same_however_many_there_are(strategy: WatermarkStrategy | None) -> None:
    """Seconds of CPU for one of 1,000 and of 8,000; 8 times as much were quadratic."""

    def cost(count: int) -> float:
        source = Splits([[[number]] for number in range(count)])
        coordinator = SourceCoordinator("in", source)
        operator, _ = operator_of(source, ManualClock(0), strategy)
        begun = time.process_time()
        coordinator.start_attempt(4, None)
        coordinator.discover(0)
        for assignments in coordinator.take_assignments().values():
            operator.assign(assignments, no_more_splits=True)
        while not coordinator.exhausted:
            operator.begin_epoch(100)
            for _ in operator.read(FAR):
                operator.advance_processing_time(0)
                operator.next_read_at()
            progress = operator.progress()
            coordinator.on_progress(0, progress)
            coordinator.take_assignments()
        return (time.process_time() - begun) / count

    ratio = lowest_of(lambda: cost(8_000)) / lowest_of(lambda: cost(1_000))
    assert ratio < 2.5, f"a split costs {ratio:.1f} times as much"


def lowest_of(measure: Callable[[], float]) -> float:
    return min(measure() for _ in range(2))
