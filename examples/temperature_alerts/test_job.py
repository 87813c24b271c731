"""Tests in one process, without Spark. The test moves event time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from job import Reading, build

from penstock.testing import JobHarness


@pytest.fixture
def job() -> Iterator[JobHarness]:
    with JobHarness(parallelism=2) as harness:
        for name, stream in build(harness.source("readings")).items():
            harness.collect(stream, name)
        yield harness


def push(job: JobHarness, sensor: str, first: int, *temperatures: float) -> None:
    """Push a reading every 200 ms, from the time `first` (ms) on."""
    for number, celsius in enumerate(temperatures):
        time = first + number * 200
        job.push("readings", Reading(sensor, time, celsius), timestamp=time)


def alerts(job: JobHarness) -> list[tuple[str, int]]:
    return [(alert.sensor, alert.time) for alert in job.take("alert")]


def test_a_second_of_rising_readings_is_an_alert(job: JobHarness) -> None:
    push(job, "a", 0, 1, 2, 3, 4, 5, 6)  # the first higher reading is that of 200 ms
    job.advance_watermark("readings", 1199)
    assert alerts(job) == []
    job.advance_watermark("readings", 1200)
    assert alerts(job) == [("a", 1200)]


def test_a_reading_that_is_not_higher_cancels_the_alert(job: JobHarness) -> None:
    push(job, "a", 0, 1, 2, 3, 3, 4, 5)
    job.advance_watermark("readings", 1500)
    assert alerts(job) == []


def test_a_late_watermark_does_not_change_the_alerts(job: JobHarness) -> None:
    push(job, "a", 0, 1, 2, 3, 4, 5, 6, 7, 1)  # lower again, before the watermark moves
    push(job, "b", 0, 9, 8, 7)
    job.advance_watermark("readings", 5000)
    assert alerts(job) == [("a", 1200)]


def test_the_alert_survives_a_crash(job: JobHarness) -> None:
    push(job, "a", 0, 1, 2)
    job.snapshot()
    job.crash()
    push(job, "a", 400, 3, 4, 5, 6)
    job.advance_watermark("readings", 1200)
    assert alerts(job) == [("a", 1200)]


def test_frost_goes_to_the_side_output(job: JobHarness) -> None:
    push(job, "a", 0, 0.0, -0.1)
    assert job.outputs("frost") == [Reading("a", 200, -0.1)]
