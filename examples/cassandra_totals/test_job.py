"""Tests in one process, without Cassandra."""

from __future__ import annotations

from job import Reading, Total, Totals

from penstock.testing import JobHarness


def test_each_reading_emits_the_total_of_its_station_and_day_also_after_a_crash() -> None:
    with JobHarness(parallelism=2) as harness:
        readings = harness.source("readings", type_info=Reading)
        days = readings.key_by(lambda reading: f"{reading.station} {reading.day}")
        harness.collect(days.process(Totals()), "totals")
        harness.push("readings", Reading("north", "2013-07-01", 3), Reading("north", "2013-07-02", 1))
        harness.snapshot()
        harness.crash()
        harness.push("readings", Reading("north", "2013-07-01", 4))
        assert sorted(harness.outputs("totals")) == [
            Total("north", "2013-07-01", 1, 3),
            Total("north", "2013-07-01", 2, 7),
            Total("north", "2013-07-02", 1, 1),
        ]
