"""Tests in one process, without Spark. The test moves event time."""

from __future__ import annotations

from job import Average, Reading, build

from penstock.testing import JobHarness


def test_the_average_of_a_second_is_in_celsius() -> None:
    with JobHarness(parallelism=2) as harness:
        harness.collect(build(harness.source("readings")), "averages")
        for reading in (
            Reading("a", 0, 32.0),
            Reading("a", 999, 50.0),
            Reading("b", 500, 212.0),
            Reading("a", 1000, 41.0),
        ):
            harness.push("readings", reading, timestamp=reading.time)
        assert harness.outputs("averages") == []
        harness.advance_watermark("readings", 999)
        assert sorted(harness.take("averages")) == [Average("a", 1000, 5.0, 2), Average("b", 1000, 100.0, 1)]
        harness.close("readings")
        assert harness.take("averages") == [Average("a", 2000, 5.0, 1)]
