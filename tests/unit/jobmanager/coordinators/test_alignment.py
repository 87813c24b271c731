"""Sources of an alignment group wait for the source with the lowest watermark."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from penstock.common.errors import InvalidJob
from penstock.common.job_status import JobStatus
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.simple.datagen import DataGeneratorSource
from penstock.connectors.simple.number_seq import NumberSequenceSource
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.taskmanager.operators.connectors.source import READ_RECORDS
from penstock.testing import JobHarness

BATCH = READ_RECORDS
STEP = 200
SLOW = 400
"""Records of the slow source, which emits 80 per second. Its event time reaches SLOW * STEP."""
DRIFT = 100


def most_ahead(*, drift: timedelta | None) -> int:
    """Return the maximum lead in ms of event time of a source without limits over a source with a rate."""
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


def test_alignment_downstream_of_the_source_is_refused() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    numbers: Any = env.from_source(NumberSequenceSource(0, 10), None, "numbers")
    strategy = WatermarkStrategy.no_watermarks().with_watermark_alignment("both", 5)
    with pytest.raises(InvalidJob, match="after the source"):
        numbers.assign_timestamps_and_watermarks(strategy)
