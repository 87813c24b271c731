"""Tests in one process, without Spark. The test moves event time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from job import Click, Count, build

from penstock.testing import JobHarness

FIRST = Count("home", 0, 1, "first")


@pytest.fixture
def job() -> Iterator[JobHarness]:
    """Return the job after the end of minute 0, which has one click."""
    with JobHarness(parallelism=2) as harness:
        for name, stream in build(harness.source("clicks", type_info=Click)).items():
            harness.collect(stream, name)
        harness.push("clicks", Click("home", 5), timestamp=5_000)
        harness.advance_watermark("clicks", 60_000)
        for name in ("drop", "store", "update"):
            assert harness.take(name) == [FIRST]
        yield harness


def test_a_late_click_is_dropped_or_stored_or_updates_the_count(job: JobHarness) -> None:
    late = Click("home", 50)
    job.push("clicks", late, timestamp=50_000)
    assert job.take("drop") == job.take("store") == []
    assert job.take("store, late") == [late]
    assert job.take("update") == [Count("home", 0, 2, "update")]
    assert job.take("update, too late") == []


def test_a_click_after_the_allowed_lateness_is_too_late_for_an_update(job: JobHarness) -> None:
    late = Click("home", 50)
    job.advance_watermark("clicks", 90_000)
    job.push("clicks", late, timestamp=50_000)
    assert job.take("update") == []
    assert job.take("update, too late") == job.take("store, late") == [late]


def test_no_state_remains_after_the_allowed_lateness(job: JobHarness) -> None:
    job.advance_watermark("clicks", 90_000)
    job.run()
    assert job.state_size("update") == job.state_size("drop") == 0
