"""Tests in one process, without MongoDB."""

from __future__ import annotations

from job import Order, Total, added, document, with_country

from penstock.testing import JobHarness


def test_an_order_gets_the_country_of_its_customer() -> None:
    order = Order("c1", 1250)
    assert with_country(order, [{"country": "NL"}]) == [Total("NL", 1, 1250)]
    assert with_country(order, []) == [Total("unknown", 1, 1250)]


def test_totals_of_a_country_are_added_also_after_a_crash() -> None:
    with JobHarness(parallelism=2) as harness:
        orders = harness.source("orders", type_info=Total)
        harness.collect(orders.key_by("country").reduce(added), "totals")
        harness.push("orders", Total("NL", 1, 1000), Total("BE", 1, 5))
        harness.snapshot()
        harness.crash()
        harness.push("orders", Total("NL", 1, 250))
        assert sorted(harness.outputs("totals")) == [Total("BE", 1, 5), Total("NL", 1, 1000), Total("NL", 2, 1250)]


def test_the_country_is_the_id_of_the_document() -> None:
    assert document(Total("NL", 2, 1250)) == {"_id": "NL", "orders": 2, "cents": 1250}
