"""Tests in one process, without a table. The test moves event time."""

from __future__ import annotations

from datetime import date, timedelta

from job import Day, Reading, to_reading

from penstock.datastream.window import TumblingEventTimeWindows
from penstock.testing import JobHarness

HOUR = 3_600_000  # ms


def test_a_row_becomes_a_reading_in_celsius_and_a_gap_is_skipped() -> None:
    row = {"origin": "JFK", "temp": 50.0, "time_hour": "1970-01-01T01:00:00Z"}
    assert list(to_reading(row)) == [Reading("JFK", HOUR, 10.0)]
    assert list(to_reading({**row, "temp": None})) == []


def test_a_day_of_a_station_is_one_row_also_after_a_crash() -> None:
    with JobHarness(parallelism=2) as harness:
        by_day = harness.source("readings", type_info=Reading).key_by("station")
        harness.collect(by_day.window(TumblingEventTimeWindows.of(timedelta(days=1))).process(Day()), "days")
        harness.push("readings", Reading("JFK", 0, 10.0), timestamp=0)
        harness.snapshot()
        harness.crash()
        harness.push("readings", Reading("JFK", HOUR, 14.0), timestamp=HOUR)
        assert harness.outputs("days") == []
        harness.advance_watermark("readings", 24 * HOUR)
        day = {"station": "JFK", "day": date(1970, 1, 1), "mean": 12.0, "low": 10.0, "high": 14.0, "readings": 2}
        assert harness.outputs("days") == [day]
