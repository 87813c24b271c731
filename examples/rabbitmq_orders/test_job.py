"""Tests in one process, without RabbitMQ."""

from __future__ import annotations

from job import Order, Total, Totals

from penstock.testing import JobHarness


def test_each_order_emits_the_new_total_of_its_customer_also_after_a_crash() -> None:
    with JobHarness(parallelism=2) as harness:
        orders = harness.source("orders", type_info=Order)
        harness.collect(orders.key_by("customer").process(Totals(), output_type=Total), "totals")
        harness.push("orders", Order("c1", 1250), Order("c2", 5))
        harness.snapshot()
        harness.crash()
        harness.push("orders", Order("c1", 50))
        assert sorted(harness.outputs("totals")) == [Total("c1", 1, 1250), Total("c1", 2, 1300), Total("c2", 1, 5)]
