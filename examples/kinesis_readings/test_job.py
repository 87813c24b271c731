"""Tests in one process, without Kinesis. The test moves event time."""

from __future__ import annotations

from datetime import timedelta

from job import Mean, Means, Reading

from penstock.datastream.window import TumblingEventTimeWindows
from penstock.testing import JobHarness


def test_a_window_of_a_sensor_has_one_mean_also_after_a_crash() -> None:
    with JobHarness(parallelism=2) as harness:
        readings = harness.source("readings", type_info=Reading).key_by("sensor")
        windows = readings.window(TumblingEventTimeWindows.of(timedelta(seconds=10)))
        harness.collect(windows.process(Means(), output_type=Mean), "means")
        harness.push("readings", Reading("a", 0, 20.0), timestamp=0)
        harness.snapshot()
        harness.crash()
        for reading in (Reading("a", 9_999, 21.0), Reading("b", 1, 5.0), Reading("a", 10_000, 30.0)):
            harness.push("readings", reading, timestamp=reading.time)
        assert harness.outputs("means") == []
        harness.advance_watermark("readings", 9_999)
        assert sorted(harness.take("means")) == [Mean("a", 0, 2, 20.5), Mean("b", 0, 1, 5.0)]
        harness.close("readings")
        assert harness.take("means") == [Mean("a", 10_000, 1, 30.0)]
