"""Tests in one process, without a database."""

from __future__ import annotations

from job import Totals

from penstock.common.typeinfo import Types
from penstock.testing import JobHarness


def test_each_order_emits_the_new_total_of_its_customer_also_after_a_crash() -> None:
    with JobHarness(parallelism=2) as harness:
        orders = harness.source("orders").key_by(lambda order: order["customer"], Types.STRING())
        harness.collect(orders.process(Totals()), "totals")
        harness.push("orders", {"id": 1, "customer": "ann", "cents": 1200}, {"id": 2, "customer": "bob", "cents": 300})
        harness.snapshot()
        harness.crash()
        harness.push("orders", {"id": 3, "customer": "ann", "cents": 50})
        assert sorted(tuple(total.values()) for total in harness.outputs("totals")) == [
            ("ann", 1, 1200),
            ("ann", 2, 1250),
            ("bob", 1, 300),
        ]
