"""The guarantees of the harness for the authors of tests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from penstock.common.errors import ClusterError, InvalidJob, UserFunctionError
from penstock.common.job_status import JobStatus
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream.functions import KeyedProcessFunction, ProcessFunction
from penstock.datastream.output_tag import OutputTag
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.records.batch import MIN_TIMESTAMP
from penstock.testing import CRASH, JobHarness
from tests.unit.testing.functions import add, first

ODD = OutputTag("odd", int)


class Split(ProcessFunction):
    def process_element(self, value: int, ctx: Any) -> Iterator[Any]:
        yield (ODD, value) if value % 2 else value


def test_side_outputs_are_collected_for_their_stream() -> None:
    with JobHarness() as harness:
        split = harness.source("numbers").process(Split())
        harness.collect(split, "even")
        harness.collect(split.get_side_output(ODD), "odd")
        harness.push("numbers", 1, 2, 3, 4)
        assert (harness.outputs("even"), harness.outputs("odd")) == ([2, 4], [1, 3])


def test_timestamps_are_those_of_the_pushes() -> None:
    with JobHarness() as harness:
        harness.collect(harness.source("numbers"), "out")
        harness.push("numbers", 1, timestamp=10)
        harness.push("numbers", 2)
        harness.push("numbers", 3, timestamp=7)
        assert harness.outputs_with_timestamps("out") == [(1, 10), (2, None), (3, 7)]


def test_a_window_fires_when_the_watermark_has_passed_its_end() -> None:
    with JobHarness(parallelism=2) as harness:
        pairs = harness.source("pairs")
        windows = pairs.key_by(first).window(TumblingEventTimeWindows.of(timedelta(seconds=1)))
        harness.collect(windows.reduce(add).uid("sums"), "sums")
        assert harness.watermark("sums") == MIN_TIMESTAMP
        harness.push("pairs", ("a", 1), timestamp=100)
        harness.push("pairs", ("a", 2), timestamp=900)
        harness.advance_watermark("pairs", 998)
        assert harness.outputs("sums") == []
        assert harness.watermark("sums") == 998
        harness.advance_watermark("pairs", 999)
        assert harness.outputs_with_timestamps("sums") == [(("a", 3), 999)]
        assert harness.state_size("sums") == 0


def test_a_strategy_makes_watermarks_from_the_records() -> None:
    strategy: Any = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: value[1])
    with JobHarness() as harness:
        pairs = harness.source("pairs", strategy)
        harness.collect(pairs.key_by(first).window(TumblingEventTimeWindows.of(10)).reduce(add), "sums")
        harness.push("pairs", ("a", 1), ("a", 5), ("a", 11))
        assert harness.outputs("sums") == [("a", 6)]


def test_each_split_has_its_watermark_and_an_idle_one_does_not_block() -> None:
    with JobHarness(parallelism=2) as harness:
        harness.collect(harness.source("numbers", splits=2).rebalance(), "out")
        harness.advance_watermark("numbers", 100, split=0)
        assert harness.watermark("out") == MIN_TIMESTAMP
        harness.advance_watermark("numbers", 50, split=1)
        assert harness.watermark("out") == 50
        harness.set_idle("numbers", split=1)
        harness.advance_watermark("numbers", 120, split=0)
        assert harness.watermark("out") == 120


class Every(KeyedProcessFunction):
    """A function that emits the time every 10 s of processing time since the first record of the key."""

    def process_element(self, value: Any, ctx: Any) -> None:
        ctx.timer_service().register_processing_time_timer(ctx.timer_service().current_processing_time() + 10_000)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[tuple[int, int]]:
        yield timestamp, ctx.timer_service().current_processing_time()
        ctx.timer_service().register_processing_time_timer(timestamp + 10_000)


def test_the_clock_stops_at_every_timer() -> None:
    with JobHarness(start_time=1_000) as harness:
        harness.collect(harness.source("keys").key_by(lambda key: key).process(Every()).uid("timers"), "times")
        harness.push("keys", "a")
        harness.advance_processing_time(by=timedelta(seconds=25))
        assert harness.outputs("times") == [(11_000, 11_000), (21_000, 21_000)]
        harness.advance_processing_time(to=31_000)
        assert harness.outputs("times")[2:] == [(31_000, 31_000)]
        harness.snapshot()
        harness.crash()
        harness.advance_processing_time(to=41_000)
        assert harness.outputs("times")[3:] == [(41_000, 41_000)]


def test_a_crash_counts_once_and_outputs_occur_once() -> None:
    with JobHarness() as harness:
        harness.collect(harness.source("numbers").map(lambda n: n), "out")
        harness.push("numbers", 1, CRASH, 2, CRASH, 3)
        assert harness.outputs("out") == [1, 2, 3]
        assert harness.restarts == 2


def test_checkpoints_occur_at_the_interval_of_the_manual_clock() -> None:
    with JobHarness(configuration={"execution.checkpointing.interval": "10s"}) as harness:
        seen: Any = harness.source("numbers").map(lambda n: (0, n)).key_by(first).reduce(add)
        harness.collect(seen, "sums")
        harness.push("numbers", 1)
        harness.advance_processing_time(by=10_000)
        harness.push("numbers", 2)
        assert harness.take("sums") == [(0, 1), (0, 3)]
        harness.crash()
        assert harness._driver.outputs.of("sums") == [((0, 1), None)]
        assert harness.outputs("sums") == [(0, 1), (0, 3)]


def test_a_failing_function_fails_the_test_with_its_own_traceback() -> None:
    def reciprocal(number: int) -> float:
        return 1 / number

    with JobHarness() as harness:
        harness.collect(harness.source("numbers").map(reciprocal).name("reciprocal"), "out")
        harness.push("numbers", 1, 0)
        with pytest.raises(UserFunctionError, match="division by zero") as caught:
            harness.run()
        assert "in reciprocal" in str(caught.value)
        assert harness.status is JobStatus.FAILED
        with pytest.raises(ClusterError, match="FAILED"):
            harness.snapshot()


def test_a_restart_strategy_is_respected() -> None:
    settings = {
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": 2,
        "restart-strategy.fixed-delay.delay": "30s",
    }
    with JobHarness(configuration=settings) as harness:
        harness.collect(harness.source("numbers").map(lambda n: 1 // n), "out")
        harness.push("numbers", 0)
        with pytest.raises(UserFunctionError):
            harness.run()
        assert (harness.restarts, harness.clock.now_ms()) == (2, 60_000)


def test_closed_sources_finish_the_job_and_its_windows() -> None:
    with JobHarness(parallelism=2) as harness:
        pairs = harness.source("pairs")
        harness.collect(pairs.key_by(first).window(TumblingEventTimeWindows.of(10)).reduce(add), "sums")
        harness.push("pairs", ("a", 1), ("b", 2), timestamp=3)
        harness.close("pairs")
        assert sorted(harness.outputs("sums")) == [("a", 1), ("b", 2)]
        assert harness.status is JobStatus.FINISHED


def test_sources_of_the_environment_also_run() -> None:
    with JobHarness() as harness:
        numbers = harness.environment().from_collection([1, 2, 3])
        numbers.print()
        harness.collect(numbers.map(lambda n: n * 10), "out")
        assert harness.outputs("out") == [10, 20, 30]
        assert harness.lines == ["1", "2", "3"]


def test_records_of_classes_defined_in_a_test_are_unchanged() -> None:
    class Point(NamedTuple):
        x: int

    @dataclass
    class Box:
        point: Point

    with JobHarness() as harness:
        harness.collect(harness.source("boxes").map(lambda box: box.point), "points")
        harness.push("boxes", Box(Point(3)))
        assert harness.outputs("points") == [Point(3)]
        assert isinstance(harness.outputs("points")[0], Point)


def test_a_function_that_changes_its_input_does_not_change_repeated_records() -> None:
    def grown(values: list[int]) -> list[int]:
        values.append(0)
        return values

    with JobHarness() as harness:
        harness.collect(harness.source("lists").map(grown), "out")
        harness.push("lists", [1])
        harness.run()
        harness.crash()
        assert harness.outputs("out") == [[1, 0]]


def test_a_missing_name_is_reported() -> None:
    with JobHarness() as harness:
        stream = harness.source("numbers", splits=2)
        harness.collect(stream, "out")
        with pytest.raises(InvalidJob, match="source 'number' does not exist"):
            harness.push("number", 1)
        with pytest.raises(InvalidJob, match="split 2 does not exist"):
            harness.push("numbers", 1, split=2)
        with pytest.raises(InvalidJob, match="output 'ou' does not exist"):
            harness.outputs("ou")
        with pytest.raises(InvalidJob, match="the source 'numbers' already exists"):
            harness.source("numbers")
        with pytest.raises(InvalidJob, match="the output 'out' already exists"):
            harness.collect(stream, "out")
        harness.run()
        with pytest.raises(InvalidJob, match="while the job runs"):
            harness.source("more")
