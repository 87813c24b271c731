"""Add up the orders of each customer from the changes of a Postgres table, exactly once.

A changed order is subtracted in its old form and added in its new form. A deleted order is subtracted. At every commit the
totals therefore equal a past result of `select customer, count(*), sum(cents) from orders group by customer`, however
often the job restarts.

The README has the commands.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from penstock.common.typeinfo import Types
from penstock.common.types import Row, RowKind
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream.connectors.postgres import PostgresCdcSource, PostgresSink
from penstock.datastream.functions import KeyedProcessFunction, RuntimeContext
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment

ORDERS = {"id": int, "customer": str, "cents": int}
TOTALS = {"customer": str, "orders": int, "cents": int}


class Totals(KeyedProcessFunction):
    """A function that adds inserted rows, subtracts deleted rows, and emits the customer's new total."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("orders", Types.LONG()))
        self.cents = runtime_context.get_state(ValueStateDescriptor("cents", Types.LONG()))

    def process_element(self, order: Any, ctx: Any) -> Iterator[Row]:
        sign = 1 if order.get_row_kind() in (RowKind.INSERT, RowKind.UPDATE_AFTER) else -1
        count, cents = (self.count.value() or 0) + sign, (self.cents.value() or 0) + sign * order.cents
        self.count.update(count)
        self.cents.update(cents)
        kind = RowKind.UPDATE_AFTER if count else RowKind.DELETE
        yield Row.of_kind(kind, customer=order.customer, orders=count, cents=cents)


def build(env: StreamExecutionEnvironment, server: str, password_file: str = "") -> None:
    """Build the job: changes of orders -> by customer -> totals."""
    orders = (
        PostgresCdcSource.builder().set_conninfo(server).set_password_file(password_file).set_table("orders", ORDERS)
    )
    orders = orders.set_publication("shop").set_slot_name("order_totals").set_changelog_mode("all").build()
    changes = env.from_source(orders, WatermarkStrategy.no_watermarks(), "orders").uid("orders")
    totals = changes.key_by(lambda order: order.customer, Types.STRING()).process(Totals()).uid("totals")
    sink = PostgresSink(server, "totals", TOTALS, key=["customer"], deletes=True, password_file=password_file)
    totals.sink_to(sink).name("totals table").uid("totals-table")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--server", default="postgresql://localhost/shop", help="libpq's connection string")
    arguments.add_argument("--password-file", default="", help="file with the password")
    options, _ = arguments.parse_known_args()
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(1000)
    build(env, options.server, options.password_file)
    env.execute("order totals")


if __name__ == "__main__":
    main()
