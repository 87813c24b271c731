"""Sources of a group wait for the one that is furthest behind."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from penstock.common.errors import InvalidJob
from penstock.common.job_status import JobStatus
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.datagen import DataGeneratorSource
from penstock.connectors.number_seq import NumberSequenceSource
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.taskmanager.operators.connectors.source import READ_RECORDS
from penstock.testing import JobHarness

BATCH = READ_RECORDS
STEP = 200
SLOW = 400
"""Records of the slow source, 80 a second; its event time reaches SLOW * STEP."""
DRIFT = 100


def most_ahead(*, drift: timedelta | None) -> int:
    """How far (ms of event time) a source without limits gets ahead of one with a rate."""
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda v, _: v[1])
    if drift is not None:
        strategy = strategy.with_watermark_alignment("both", drift)
    with JobHarness() as harness:
        env = harness.environment()
        fast = env.from_source(DataGeneratorSource(lambda i: ("fast", i), SLOW * STEP), strategy, "fast")
        slow = env.from_source(DataGeneratorSource(lambda i: ("slow", i * STEP), SLOW, 80), strategy, "slow")
        harness.collect(fast.union(slow), "both")
        harness.advance_processing_time(by=timedelta(seconds=SLOW / 80))
        assert harness.status is JobStatus.FINISHED
        records = harness.outputs("both")
    assert Counter(source for source, _ in records) == {"fast": SLOW * STEP, "slow": SLOW}
    reached = ahead = 0
    for source, time in records:
        if source == "slow":
            reached = time
        else:
            ahead = max(ahead, time - reached)
    return ahead


def test_a_source_that_is_ahead_waits() -> None:
    assert most_ahead(drift=None) == SLOW * STEP - 1
    assert 0 < most_ahead(drift=timedelta(milliseconds=DRIFT)) <= BATCH + DRIFT + STEP


def test_alignment_behind_the_source_is_refused() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    numbers: Any = env.from_source(NumberSequenceSource(0, 10), None, "numbers")
    strategy = WatermarkStrategy.no_watermarks().with_watermark_alignment("both", 5)
    with pytest.raises(InvalidJob, match="behind the source"):
        numbers.assign_timestamps_and_watermarks(strategy)
