"""Tests of the job in one process, without Spark. The test moves event time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from job import Reading, build

from penstock.testing import JobHarness

MINUTE = 60_000  # ms


@pytest.fixture
def job() -> Iterator[JobHarness]:
    with JobHarness(parallelism=2) as harness:
        for name, stream in build(harness.source("readings")).items():
            harness.collect(stream, name)
        yield harness


def push(job: JobHarness, *readings: Reading) -> None:
    for reading in readings:
        job.push("readings", reading, timestamp=reading.time)


def test_only_a_new_maximum_of_a_sensor_is_emitted(job: JobHarness) -> None:
    first, lower, higher = Reading("a", 20.0, 1), Reading("a", 19.0, 2), Reading("a", 21.0, 3)
    other = Reading("b", 5.0, 4)
    push(job, first, lower, higher, other)
    assert job.outputs("maximum") == [first, higher, other]


def test_the_maximum_survives_a_crash(job: JobHarness) -> None:
    push(job, Reading("a", 20.0, 1))
    job.snapshot()
    job.crash()
    push(job, Reading("a", 19.0, 2), Reading("a", 20.5, 3))
    assert job.outputs("maximum") == [Reading("a", 20.0, 1), Reading("a", 20.5, 3)]


def test_the_mean_is_emitted_at_the_end_of_the_minute(job: JobHarness) -> None:
    push(job, Reading("a", 10.0, 0), Reading("a", 20.0, 59_000))
    assert job.outputs("mean") == []
    job.advance_watermark("readings", MINUTE)
    assert job.outputs("mean") == [("a", MINUTE, 15.0)]


def test_an_invalid_reading_goes_to_the_side_output(job: JobHarness) -> None:
    broken = Reading("a", 999.0, 1)
    push(job, broken)
    assert (job.outputs("invalid"), job.outputs("maximum")) == ([broken], [])
