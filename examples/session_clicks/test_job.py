"""Tests in one process, without Spark. The test moves event time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from job import Click, Place, Session, build

from penstock.testing import JobHarness

MINUTE, HOUR = 60_000, 3_600_000  # ms


@pytest.fixture
def job() -> Iterator[JobHarness]:
    with JobHarness(parallelism=2) as harness:
        for name, stream in build(harness.source("clicks", type_info=Click)).items():
            harness.collect(stream, name)
        yield harness


def click(job: JobHarness, user: str, *minutes: int, page: str = "home") -> None:
    for minute in minutes:
        job.push("clicks", Click(user, minute * MINUTE, page), timestamp=minute * MINUTE)


def test_a_pause_of_five_minutes_ends_a_session(job: JobHarness) -> None:
    click(job, "ann", 0)
    click(job, "ann", 4, page="shop")
    click(job, "ann", 10)
    job.advance_watermark("clicks", 9 * MINUTE)
    assert job.outputs("session") == [Session("ann", 0, 2, "home > shop")]


def test_a_click_between_two_sessions_joins_them(job: JobHarness) -> None:
    click(job, "ann", 0, 8, 4)
    job.close("clicks")
    assert job.outputs("session") == [Session("ann", 0, 3, "home")]


def test_the_three_longest_sessions_of_an_hour_are_ranked(job: JobHarness) -> None:
    click(job, "ann", 1, 2)
    click(job, "bob", 1, 2, 3)
    click(job, "eve", 1)
    click(job, "joe", 20, 21)
    click(job, "kim", 59)  # the session ends in the next hour
    job.advance_watermark("clicks", HOUR)
    assert sorted(job.take("top")) == [Place(0, 1, "bob", 3), Place(0, 2, "ann", 2), Place(0, 3, "joe", 2)]
    job.close("clicks")
    assert job.take("top") == [Place(1, 1, "kim", 1)]
