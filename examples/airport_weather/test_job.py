"""Tests in one process, without Spark. The test moves event time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from job import ALERTS, Alert, DailyStatistics, Reading, RisingTemperature, Statistics, WithDay, to_reading

from penstock.datastream.window import TumblingEventTimeWindows
from penstock.testing import JobHarness

HOUR = 3_600_000  # ms


@pytest.fixture
def job() -> Iterator[JobHarness]:
    with JobHarness(parallelism=2) as harness:
        readings = harness.source("readings", type_info=Reading).key_by("station")
        days = readings.window(TumblingEventTimeWindows.of(timedelta(days=1))).aggregate(Statistics(), WithDay())
        harness.collect(days, "days")
        harness.collect(readings.process(RisingTemperature()).get_side_output(ALERTS), "alerts")
        yield harness


def read(job: JobHarness, *temperatures: float) -> None:
    """Push one reading per hour, from midnight."""
    for hour, celsius in enumerate(temperatures):
        job.push("readings", Reading("JFK", hour * HOUR, celsius), timestamp=hour * HOUR)


def test_a_row_becomes_a_reading_in_celsius_and_a_gap_is_skipped() -> None:
    row = {"origin": "JFK", "temp": 50.0, "time_hour": "1970-01-01T01:00:00Z"}
    assert list(to_reading(row)) == [Reading("JFK", HOUR, 10.0)]
    assert list(to_reading({**row, "temp": None})) == []


def test_a_day_has_its_mean_its_extremes_and_its_readings(job: JobHarness) -> None:
    read(job, 10.0, 9.0, 14.0)
    job.advance_watermark("readings", 24 * HOUR)
    assert job.outputs("days") == [DailyStatistics("JFK", "1970-01-01", 11.0, 9.0, 14.0, 3)]


def test_six_rising_hours_cause_an_alert(job: JobHarness) -> None:
    read(job, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0)
    job.advance_watermark("readings", 6 * HOUR)
    assert job.outputs("alerts") == [Alert("JFK", "1970-01-01T06:00:00+00:00", 7.0, 6)]


def test_a_reading_that_is_not_higher_prevents_the_alert(job: JobHarness) -> None:
    read(job, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 6.0)
    job.advance_watermark("readings", 6 * HOUR)
    assert job.outputs("alerts") == []
