"""Tests in one process, without Postgres."""

from __future__ import annotations

from job import ORDERS, Totals

from penstock.common.typeinfo import Types
from penstock.common.types import Row, RowKind
from penstock.testing import JobHarness

TYPE = Types.ROW_NAMED(list(ORDERS), [Types.LONG(), Types.STRING(), Types.LONG()])


def change(kind: RowKind, customer: str, cents: int) -> Row:
    return Row.of_kind(kind, id=1, customer=customer, cents=cents)


def test_totals_follow_inserts_updates_and_deletes_also_after_a_crash() -> None:
    with JobHarness(parallelism=2) as harness:
        orders = harness.source("orders", type_info=TYPE).key_by(lambda order: order.customer, Types.STRING())
        harness.collect(orders.process(Totals()), "totals")
        harness.push("orders", change(RowKind.INSERT, "ann", 1200), change(RowKind.INSERT, "ann", 300))
        harness.snapshot()
        harness.crash()
        harness.push("orders", change(RowKind.UPDATE_BEFORE, "ann", 300), change(RowKind.UPDATE_AFTER, "ann", 250))
        harness.push("orders", change(RowKind.DELETE, "ann", 1200), change(RowKind.DELETE, "ann", 250))
        found = harness.outputs("totals")
        totals = [(row.orders, row.cents) for row in found]
        assert totals == [(1, 1200), (2, 1500), (1, 1200), (2, 1450), (1, 250), (0, 0)]
        assert [row.get_row_kind() for row in found] == [RowKind.UPDATE_AFTER] * 5 + [RowKind.DELETE]
