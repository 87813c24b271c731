"""The splits of a source operator: which one is read next, which ones hold the clock back, and the cost of many splits."""

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
from penstock.connectors.core.source import (
    ReadBounds,
    ReaderContext,
    Source,
    SourceReader,
    Split,
    SplitReader,
)
from penstock.connectors.simple.datagen import DataGeneratorSource, GeneratorSplitReader
from penstock.jobmanager.coordinators.source_coordinator import SourceCoordinator
from penstock.records.batch import MAX_TIMESTAMP, Batch
from penstock.taskmanager.operators.connectors.source import SourceOperator
from penstock.taskmanager.worker import ManualClock
from tests.clocks import JumpingClock
from tests.unit.connectors.file.file_job import FAR, operator_of
from tests.unit.taskmanager.operators.connectors.split_readers import (
    Batches,
    BatchesReader,
    DuckReader,
    Splits,
    UnboundedSplits,
)

EVENT_TIME: WatermarkStrategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda v, _: v)


def assigned(source: Source, clock: Any, strategy: Any = None) -> tuple[SourceOperator, Any]:
    operator, output = operator_of(source, clock, strategy)
    coordinator = SourceCoordinator("in", source)
    coordinator.start_attempt(1, None)
    coordinator.discover(0)
    operator.assign(coordinator.take_assignments()[0], ends=True)
    return operator, output


def read_all(operator: SourceOperator) -> None:
    for _ in operator.read(FAR):
        pass


def test_splits_take_turns_without_event_time() -> None:
    operator, output = assigned(Splits([[[1], [2], [3]], [[10], [20]], [[100]]]), ManualClock(0))
    read_all(operator)
    assert [value for value, _ in output.records] == [1, 10, 100, 2, 20, 3]


@pytest.mark.parametrize(
    "strategy",
    [
        None,
        WatermarkStrategy.no_watermarks(),
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda v, _: 7),
    ],
    ids=["no-strategy", "no-watermarks", "equal-timestamps"],
)
def test_a_split_that_always_has_records_does_not_block_later_splits(strategy: WatermarkStrategy | None) -> None:
    busy: list[list[int] | None] = [[0]] * 30
    operator, output = assigned(UnboundedSplits([busy, [[1], [1]], [None, [2], [2]]]), ManualClock(0), strategy)
    operator.context.clock.set(1_000)  # type: ignore[attr-defined]
    for epoch in range(12):
        operator.context.clock.set(1_000 + epoch * 100)  # type: ignore[attr-defined]
        operator.begin_epoch(max_records=1)
        read_all(operator)
    values = [value for value, _ in output.records]
    assert len(values) == 12
    assert values.count(1) == values.count(2) == 2


def test_splits_that_are_read_in_order_do_not_take_turns() -> None:
    source = UnboundedSplits([[[1], [2]], [[10], [20]]])
    source.in_order = True
    for strategy in (None, WatermarkStrategy.no_watermarks()):
        operator, output = assigned(source, ManualClock(0), strategy)
        read_all(operator)
        assert [value for value, _ in output.records] == [1, 2, 10, 20]


def test_the_split_with_the_lowest_watermark_is_read_next() -> None:
    operator, output = assigned(Splits([[[1], [8], [9]], [[5], [6], [10]], [[2], [3]]]), ManualClock(0), EVENT_TIME)
    read_all(operator)
    assert [value for value, _ in output.records] == [1, 5, 2, 8, 3, 6, 10, 9]
    assert output.watermarks == [MAX_TIMESTAMP]


def test_periodic_watermarks_of_all_splits_are_emitted_together_at_the_interval() -> None:
    """The nine records are in descending order, and no time passes between them. None of them is late for the others."""
    clock = ManualClock(1_000)
    contents: list[list[list[int] | None]] = [[[90], [80], [70], None, [60]], [[50], [40], [30], None, [20]]]
    operator, output = assigned(Splits(contents), clock, EVENT_TIME)
    read_all(operator)
    assert output.watermarks == []
    assert operator.next_wake() == 1_200
    clock.set(1_199)
    operator.advance_processing_time(1_199)
    assert output.watermarks == []
    clock.set(1_200)
    operator.advance_processing_time(1_200)
    assert output.watermarks == [49]
    assert operator.next_wake() is None
    clock.set(1_450)
    read_all(operator)
    assert output.watermarks == [49, 89, MAX_TIMESTAMP], "the second split ended before the first"


def test_watermarks_that_were_not_emitted_before_a_failure_are_emitted_at_the_next_interval() -> None:
    source = Splits([[[100], None, [50], None, [60]]])
    operator, output = assigned(source, ManualClock(0), EVENT_TIME)
    coordinator = SourceCoordinator("in", source)
    coordinator.start_attempt(1, None)
    coordinator.discover(0)
    coordinator.take_assignments()
    read_all(operator)
    coordinator.on_progress(0, operator.progress())
    coordinator.start_attempt(1, coordinator.snapshot())
    clock = ManualClock(5_000)
    again, output = operator_of(source, clock, EVENT_TIME)
    again.assign(coordinator.take_assignments()[0], ends=True)
    read_all(again)
    assert (output.records, output.watermarks) == ([(50, 50)], [])
    clock.set(5_200)
    again.advance_processing_time(5_200)
    assert output.watermarks == [99]


@pytest.mark.parametrize("by_ms", [-3_600_000, 3_600_000])
def test_a_clock_change_neither_delays_watermarks_nor_makes_splits_idle(by_ms: int) -> None:
    clock = JumpingClock(10_000_000)
    strategy = EVENT_TIME.with_idleness(Duration.of_seconds(10))
    operator, output = assigned(Splits([[[100], None, None, None, [200]]]), clock, strategy)
    read_all(operator)
    clock.jump(by_ms)
    for _ in range(2):
        clock.set(clock.now_ms() + 100)
        operator.advance_processing_time(clock.now_ms())
        read_all(operator)
    assert output.watermarks == [99]
    assert ("idle", True) not in output.events
    clock.set(clock.now_ms() + 10_000)
    operator.advance_processing_time(clock.now_ms())
    assert output.events[-1] == ("idle", True)


def test_a_reader_is_not_read_before_its_next_record_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock(0)
    requests: list[ReadBounds] = []
    read = GeneratorSplitReader.read
    monkeypatch.setattr(GeneratorSplitReader, "read", lambda self, most: (requests.append(most), read(self, most))[1])
    strategy = EVENT_TIME.with_idleness(Duration.of_seconds(1))
    operator, output = assigned(DataGeneratorSource(lambda n: n, records_per_second=10), clock, strategy)
    read_all(operator)
    for now in (900, 1000, 1100):
        requests.clear()
        clock.set(now)
        read_all(operator)
        assert operator.next_read_at() == now + 100
    assert len(requests) == 1
    assert [value for value, _ in output.records] == list(range(12))
    clock.set(1150)
    assert operator.next_wake() == 1_200  # the next periodic watermark
    clock.set(1_200)
    operator.advance_processing_time(1_200)
    assert operator.next_wake() == 2_100  # then the split is idle, because the last record arrived at 1,100


def test_a_split_that_waits_for_its_turn_is_not_idle_and_holds_the_clock_back() -> None:
    clock = ManualClock(0)
    strategy = EVENT_TIME.with_idleness(Duration.of_seconds(1))
    operator, output = assigned(Splits([[[100], [200]], [[1]]]), clock, strategy)
    for number, _ in enumerate(operator.read(FAR)):
        clock.set(clock.now_ms() + 10_000)
        operator.advance_processing_time(clock.now_ms())
        if number == 0:
            assert not output.watermarks
    assert output.watermarks == [99, MAX_TIMESTAMP]


def test_splits_without_records_become_idle_at_the_same_time_and_return() -> None:
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
def test_the_clock_advances_to_the_split_that_was_idle_last_however_late_idleness_is_detected(
    first: int, last: int, looks: list[int]
) -> None:
    """The first split and one without records are idle since 1,000, the last split since 1,400."""
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


def test_a_split_that_has_returned_all_records_is_not_read_again_immediately(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Batches, "is_caught_up", lambda self: self.position == 3)
    operator, output = assigned(Splits([[[1] * 8, [2], [3], [4], [5]], [[10]]]), ManualClock(0))
    read_all(operator)
    assert sorted({value for value, _ in output.records}) == [1, 2, 3, 10]
    assert operator.next_read_at() == 0
    read_all(operator)
    assert sorted({value for value, _ in output.records}) == [1, 2, 3, 4, 5, 10]


def test_a_reader_with_the_earlier_method_name_is_not_read_again_immediately() -> None:
    with pytest.warns(
        DeprecationWarning, match=r"does not exist from release 0\.5: use SplitReader\.is_caught_up"
    ) as warned:

        class Earlier(Batches):
            def has_given_all(self) -> bool:
                return self.position == 3

    assert warned[0].filename == __file__
    assert [Earlier([], position).is_caught_up() for position in (2, 3)] == [False, True]


def test_a_split_that_has_returned_all_records_is_read_again_next_to_a_busy_split_and_is_not_idle() -> None:
    """A batch takes 1 ms. An excluded split is read again about 20 ms later, and has not become idle in this time."""
    clock = ManualClock(0)

    class Slow(Batches):
        def read(self, bounds: ReadBounds) -> Batch | None:
            clock.set(clock.now_ms() + 1)
            batch = super().read(bounds)
            seen.append((clock.now_ms(), [] if batch is None else batch.rows().values))
            return batch

        def is_caught_up(self) -> bool:
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


def test_a_clock_that_is_set_back_does_not_delay_excluded_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch takes 1 ms. At the first batch of 2 records the machine's clock is set back by one hour."""
    monkeypatch.setattr(Batches, "is_caught_up", lambda self: len(self._batches) == 3)
    clock = JumpingClock(10_000_000)
    operator, output = assigned(Splits([[[1] * 9, [2], [3]], [[10]] * 50]), clock)
    for _ in operator.read(FAR):
        clock.set(clock.now_ms() + 1)
        if output.records[-1][0] == 2:
            clock.jump(-3_600_000)
    values = [value for value, _ in output.records]
    assert values.index(3) < values.index(2) + 25


def test_a_reader_may_have_the_methods_without_the_base_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BatchesReader, "open_split", lambda *_: DuckReader())
    operator, output = assigned(Splits([[[1]]]), ManualClock(0))
    read_all(operator)
    assert [value for value, _ in output.records] == [1, 2, 3]


def test_a_step_returns_its_number_of_records_and_whether_more_are_available() -> None:
    operator, _ = assigned(Splits([[[1, 1], [2]], [[10]]]), ManualClock(0))
    assert list(operator.read(FAR)) == [2, 1, -1]


@given(
    contents=st.lists(
        st.lists(st.none() | st.lists(st.integers(0, 50), min_size=1, max_size=3), max_size=5), max_size=6
    ),
    bound=st.integers(1, 5),
    event_time=st.booleans(),
)
def test_every_record_arrives_once_in_the_order_of_its_split(
    contents: list[list[list[int] | None]], bound: int, event_time: bool
) -> None:
    source = Splits([[batch and [v * 100 + n for v in batch] for batch in split] for n, split in enumerate(contents)])
    operator, output = operator_of(source, ManualClock(0), EVENT_TIME if event_time else None)
    coordinator = SourceCoordinator("in", source)
    coordinator.start_attempt(1, None)
    coordinator.discover(0)
    for epoch in range(100):
        if epoch % 3 == 2:  # fail, and restore the state of the acks
            coordinator.start_attempt(1, coordinator.snapshot())
            operator, _ = operator_of(source, ManualClock(0), operator.strategy)
            operator.output = output
        operator.assign(coordinator.take_assignments().get(0, []), ends=True)
        operator.begin_epoch(bound)
        for _ in operator.read(FAR):
            pass
        coordinator.on_progress(0, operator.progress())
    assert coordinator.exhausted
    for number, split in enumerate(source.contents):
        records = [value for value, _ in output.records if value % 100 == number]
        assert records == [value for batch in split if batch for value in batch]
    assert not output.watermarks or output.watermarks == sorted(output.watermarks)


def test_the_lag_includes_splits_that_are_not_open_yet() -> None:
    operator, _ = assigned(Splits([[[1], [2]], [[3]], [[4]]]), ManualClock(0))
    assert operator.progress().lag == 4
    next(operator.read(FAR))
    assert operator.progress().lag == 3
    read_all(operator)
    assert operator.progress().lag == 0


def test_a_split_is_opened_at_its_first_read() -> None:
    source = Splits([[[1], [2]], [[3]]])
    operator, _ = assigned(source, ManualClock(0))
    assert source.opened == []
    assert operator.progress().positions == {"0": None, "1": None}
    next(operator.read(FAR))
    assert source.opened == ["0"]


def test_the_last_position_of_a_split_is_reported_if_the_source_needs_it() -> None:
    source = Splits([[[1], [2]], [[3], None, [4]]])
    for tells in (False, True):
        source.needs_last_positions = tells
        operator, _ = assigned(source, ManualClock(0))
        operator.progress()
        for _ in range(3):
            read_all(operator)
        progress = operator.progress()
        assert progress.finished == ["0", "1"]
        assert progress.positions == ({"0": 2, "1": 3} if tells else {})


def test_a_position_that_moves_without_records_is_reported_only_after_a_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for moves, expected in ((False, {}), (True, {"0": 3})):
        monkeypatch.setattr(Batches, "moves_without_records", moves)
        operator, _ = assigned(Splits([[[1], None, None, [2]]]), ManualClock(0))
        next(operator.read(FAR))
        assert operator.progress().positions == {"0": 1}
        for _ in range(2):
            next(operator.read(FAR), None)
        assert operator.progress().positions == expected
        assert operator.progress().positions == {}, "the position would count as input"


@pytest.mark.parametrize("strategy", [None, EVENT_TIME, EVENT_TIME.with_idleness(Duration.of_seconds(1))])
def test_the_cost_of_a_split_does_not_depend_on_their_number(strategy: WatermarkStrategy | None) -> None:
    """Compare the CPU seconds per split of 1,000 and of 8,000 splits. A quadratic cost would be 8 times as high."""

    def cost(count: int) -> float:
        source = Splits([[[number]] for number in range(count)])
        coordinator = SourceCoordinator("in", source)
        operator, _ = operator_of(source, ManualClock(0), strategy)
        start = time.process_time()
        coordinator.start_attempt(4, None)
        coordinator.discover(0)
        for assignments in coordinator.take_assignments().values():
            operator.assign(assignments, ends=True)
        while not coordinator.exhausted:
            operator.begin_epoch(100)
            for _ in operator.read(FAR):
                operator.advance_processing_time(0)
                operator.next_read_at()
            progress = operator.progress()
            coordinator.on_progress(0, progress)
            coordinator.take_assignments()
        return (time.process_time() - start) / count

    ratio = lowest_of(lambda: cost(4_000)) / lowest_of(lambda: cost(500))
    assert ratio < 2.5, f"a split costs {ratio:.1f} times as much"


def lowest_of(measure: Callable[[], float]) -> float:
    return min(measure() for _ in range(2))
