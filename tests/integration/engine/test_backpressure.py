"""A sink that is much slower than its source: the source waits, and the memory of the processes does not grow.

`python -m benchmarks backpressure --records SECONDS` is the long run, with the memory of every process over time.
"""

from __future__ import annotations

import pytest

from benchmarks.measures.backpressure import SIZES, growth, slow_sink

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SECONDS = 40.0
RATE = 100.0
MAX_MB = 300
"""Limit of any process. An executor's heap may have 512 MB, and its off-heap buffers the same."""
GROWTH_MB = 100


@pytest.mark.parametrize("size", SIZES)
def test_a_slow_sink_slows_its_sources(runner: str, size: int) -> None:
    run = slow_sink(runner, size, SECONDS, RATE)
    print(run.result, run.processes_mb)
    assert run.result["restarts"] == 0
    assert run.result["taken"] >= RATE * SECONDS / 4, "the sink did not take records all the time"
    assert growth(run.memory_mb) < GROWTH_MB
    assert max(max(series, default=0) for series in run.processes_mb.values()) < MAX_MB


def test_rows_behind_a_barrier_wait_with_their_sender() -> None:
    """Delay one sender's barriers by seconds. Rows that the other sends during this time belong to the next epoch."""
    run = slow_sink("pipelined", 8_000, SECONDS, rate=1e9, slow_sender=2.0)
    print(run.result, run.processes_mb)
    assert run.result["restarts"] == 0
    assert run.result["longest_epoch_s"] >= 1.0, "no epoch had to wait"
    assert max(max(series, default=0) for series in run.processes_mb.values()) < MAX_MB
