"""Tests in one process, without Kafka and without Iceberg. The test moves event time."""

from __future__ import annotations

from datetime import UTC, datetime

from job import Reading, minutes_of

from penstock.testing import JobHarness

MINUTE = 60_000  # ms


def row(sensor: str, minute: int, mean: float, highest: float, readings: int) -> dict[str, object]:
    start = datetime.fromtimestamp(minute * 60, UTC)
    return {"sensor": sensor, "minute": start, "mean": mean, "highest": highest, "readings": readings}


def test_a_minute_of_a_sensor_is_one_row_also_after_a_crash() -> None:
    with JobHarness(parallelism=2) as harness:
        harness.collect(minutes_of(harness.source("readings", type_info=Reading)), "rows")
        harness.push("readings", Reading("a", 0, 10.0), timestamp=0)
        harness.snapshot()
        harness.crash()
        for reading in (Reading("a", MINUTE - 1, 20.0), Reading("b", 1, 5.0), Reading("a", MINUTE, 30.0)):
            harness.push("readings", reading, timestamp=reading.time)
        assert harness.outputs("rows") == []
        harness.advance_watermark("readings", MINUTE - 1)
        first = sorted(harness.take("rows"), key=lambda found: str(found["sensor"]))
        assert first == [row("a", 0, 15.0, 20.0, 2), row("b", 0, 5.0, 5.0, 1)]
        harness.close("readings")
        assert harness.take("rows") == [row("a", 1, 30.0, 30.0, 1)]
