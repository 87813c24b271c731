"""Sources of a group wait for the one that is furthest behind."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from penstock.common.errors import InvalidJob
from penstock.common.executor import executing_on
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.datagen import DataGeneratorSource
from penstock.connectors.number_seq import NumberSequenceSource
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.jobmanager.session import Session
from tests.integration.engine.in_process import InProcess

BATCH = 10_000
"""Records of one read."""
STEP = 200
SLOW = 400
"""Records of the slow source; its event time reaches SLOW * STEP."""


def most_ahead(*, drift: timedelta | None) -> int:
    """How far (ms of event time) a source without limits gets ahead of one with a rate."""
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda v, _: v[1])
    if drift is not None:
        strategy = strategy.with_watermark_alignment("both", drift)
    env = StreamExecutionEnvironment.get_execution_environment()
    fast = env.from_source(DataGeneratorSource(lambda i: ("fast", i), SLOW * STEP), strategy, "fast")
    slow = env.from_source(DataGeneratorSource(lambda i: ("slow", i * STEP), SLOW, 80), strategy, "slow")
    reached = ahead = count = 0
    with executing_on(Session(InProcess())), fast.union(slow).execute_and_collect() as records:
        for source, time in records:
            count += 1
            if source == "slow":
                reached = time
            elif reached < (SLOW - 1) * STEP:
                ahead = max(ahead, time - reached)
    assert count == SLOW * STEP + SLOW
    return ahead


def test_a_source_that_is_ahead_waits() -> None:
    assert most_ahead(drift=None) > 4 * BATCH
    assert most_ahead(drift=timedelta(milliseconds=100)) <= 2 * BATCH + 50 * STEP


def test_alignment_behind_the_source_is_refused() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    numbers: Any = env.from_source(NumberSequenceSource(0, 10), None, "numbers")
    strategy = WatermarkStrategy.no_watermarks().with_watermark_alignment("both", 5)
    with pytest.raises(InvalidJob, match="behind the source"):
        numbers.assign_timestamps_and_watermarks(strategy)
