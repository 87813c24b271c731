"""Tests in one process, without Kafka."""

from __future__ import annotations

from job import Alert, Reading, TooHot, where_it_stood

from penstock.datastream.connectors.kafka import RejectedMessage
from penstock.testing import JobHarness


def test_the_third_hot_reading_in_a_row_is_an_alert_also_after_a_crash() -> None:
    with JobHarness(parallelism=2) as harness:
        readings = harness.source("readings", type_info=Reading)
        harness.collect(readings.key_by("sensor").process(TooHot(), output_type=Alert), "alerts")
        harness.push("readings", Reading("a", 1, 31.0), Reading("b", 2, 31.0), Reading("a", 3, 32.0))
        harness.snapshot()
        harness.crash()
        harness.push("readings", Reading("a", 4, 33.0), Reading("a", 5, 34.0), Reading("b", 6, 30.0))
        harness.push("readings", Reading("b", 7, 31.0), Reading("b", 8, 31.0))
        assert harness.outputs("alerts") == [Alert("a", 4, 33.0)]


def test_a_rejected_message_keeps_its_place_and_its_text() -> None:
    message = RejectedMessage("readings", 2, 7, None, None, b"no \xff", "not JSON")
    expected = {"partition": 2, "offset": 7, "reason": "not JSON", "value": "no \\xff"}
    assert where_it_stood(message) == expected
