"""Periodic watermarks are emitted at the auto-watermark interval and at the end of input. Records of one interval are
never late."""

from __future__ import annotations

from ast import literal_eval
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream.output_tag import OutputTag
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.records.batch import MIN_TIMESTAMP
from penstock.testing import JobHarness
from tests.in_process import environment, run

LATE = OutputTag("late")
TIMES = [85_000, 75_000, 65_000, 55_000, 45_000, 35_000, 25_000, 24_000, 23_000]
"""Times of nine records in descending order, in seven windows of 10 s."""
WINDOWS = [(20_000, 3), (30_000, 1), (40_000, 1), (50_000, 1), (60_000, 1), (70_000, 1), (80_000, 1)]
STRATEGY = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda time: time)


def counted(stream: Any) -> Any:
    ones = stream.map(lambda time: (time // 10_000 * 10_000, 1))
    windows = ones.key_by(lambda pair: pair[0]).window(TumblingEventTimeWindows.of(timedelta(seconds=10)))
    return windows.side_output_late_data(LATE).reduce(lambda a, b: (a[0], a[1] + b[1]))


@pytest.mark.parametrize("parallelism", [1, 3])
def test_nine_descending_records_give_seven_windows(
    tmp_path: Path, parallelism: int, capsys: pytest.CaptureFixture[str]
) -> None:
    env = environment(tmp_path)
    env.set_parallelism(parallelism)
    counted(env.from_collection(TIMES).assign_timestamps_and_watermarks(STRATEGY)).print()
    run(env)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.endswith(")")]
    assert sorted(literal_eval(line.split("> ")[-1]) for line in lines) == WINDOWS


@pytest.mark.parametrize("in_the_middle", [False, True])
def test_records_pushed_together_belong_to_one_interval(in_the_middle: bool) -> None:
    with JobHarness() as harness:
        stream = harness.source("times", None if in_the_middle else STRATEGY)
        counts = counted(stream.assign_timestamps_and_watermarks(STRATEGY) if in_the_middle else stream)
        harness.collect(counts, "counts")
        harness.collect(counts.get_side_output(LATE), "late")
        harness.push("times", *TIMES)
        assert harness.outputs("counts") == WINDOWS[:-1]
        assert harness.outputs("late") == []
        harness.push("times", 20_000)
        assert harness.outputs("late") == [(20_000, 1)]
        harness.close("times")
        assert harness.outputs("counts") == WINDOWS


def test_an_interval_of_zero_emits_only_the_final_watermark() -> None:
    with JobHarness(configuration={"pipeline.auto-watermark-interval": "0"}) as harness:
        harness.collect(counted(harness.source("times", STRATEGY)), "counts")
        harness.push("times", *TIMES)
        harness.advance_processing_time(by=60_000)
        assert (harness.outputs("counts"), harness.watermark("counts")) == ([], MIN_TIMESTAMP)
        harness.push("times", 20_000)
        harness.close("times")
        assert harness.outputs("counts") == [(20_000, 4), *WINDOWS[1:]]


def test_the_interval_of_the_configuration_is_used() -> None:
    with JobHarness() as harness:
        harness.environment().get_config().set_auto_watermark_interval(7_000)
        harness.collect(counted(harness.source("times", STRATEGY)), "counts")
        program = harness.environment().get_program("looked at")
        assert program.configuration["pipeline.auto-watermark-interval"] == "7s"
