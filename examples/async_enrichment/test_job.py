"""Tests in one process, without Spark. The service of the example answers."""

from __future__ import annotations

from job import Enriched, Order, Service, build, start_service

from penstock.testing import JobHarness


def test_each_order_gets_its_city_in_order_and_after_a_retry() -> None:
    Service.asked.clear()
    with JobHarness() as harness:
        harness.collect(build(harness.source("orders", type_info=Order), start_service()), "enriched")
        harness.push("orders", Order(2, 5), Order(9, 7), Order(1, 3))
        assert harness.outputs("enriched") == [
            Enriched(2, 5, "Rome"),
            Enriched(9, 7, "unknown"),
            Enriched(1, 3, "Oslo"),
        ]
    assert Service.asked == {"/1", "/2", "/9"}  # the service has refused the first request for each of them
