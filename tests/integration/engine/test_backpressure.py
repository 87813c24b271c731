"""A sink that is far slower than its source: the source waits, and no process takes more memory for it.

`python -m benchmarks backpressure --records SECONDS` is the long run, with the memory of every process over time.
"""

from __future__ import annotations

import pytest

from benchmarks.measures.backpressure import SIZES, growth, slow_sink

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SECONDS = 40.0
RATE = 100.0
MOST_MB = 300
"""Of any process: an executor's heap may have 512, and its buffers outside of it as much again."""
GROWTH_MB = 100


@pytest.mark.parametrize("size", SIZES)
def test_a_slow_sink_slows_its_sources(runner: str, size: int) -> None:
    run = slow_sink(runner, size, SECONDS, RATE)
    print(run.result, run.processes_mb)
    assert run.result["restarts"] == 0
    assert run.result["taken"] >= RATE * SECONDS / 4, "the sink takes records all the time"
    assert growth(run.memory_mb) < GROWTH_MB
    assert max(max(series, default=0) for series in run.processes_mb.values()) < MOST_MB


def test_rows_behind_a_barrier_wait_with_their_sender() -> None:
    """One sender's barriers are seconds late: what the other sends meanwhile belongs to the next epoch."""
    run = slow_sink("pipelined", 8_000, SECONDS, rate=1e9, slow_sender=2.0)
    print(run.result, run.processes_mb)
    assert run.result["restarts"] == 0
    assert run.result["longest_epoch_s"] >= 1.0, "there was something to wait for"
    assert max(max(series, default=0) for series in run.processes_mb.values()) < MOST_MB
