"""Add up the orders of each customer, from a table of MariaDB or MySQL to another, exactly once.

The job reads orders in the order of their ids. It reads an order some seconds after its insertion (`settle`), so that it
does not miss orders that are committed late. It counts each order once, however often it restarts.

The README has the commands.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from penstock.common.typeinfo import Types
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream.connectors.sql import SqlSink, SqlSource
from penstock.datastream.functions import KeyedProcessFunction, RuntimeContext
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment

ORDERS = {"id": int, "customer": str, "cents": int}
TOTALS = {"customer": str, "orders": int, "cents": int}


class Totals(KeyedProcessFunction):
    """A function that adds an order and emits the customer's new total."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("orders", Types.LONG()))
        self.cents = runtime_context.get_state(ValueStateDescriptor("cents", Types.LONG()))

    def process_element(self, order: dict[str, Any], ctx: Any) -> Iterator[dict[str, Any]]:
        count, cents = (self.count.value() or 0) + 1, (self.cents.value() or 0) + order["cents"]
        self.count.update(count)
        self.cents.update(cents)
        yield {"customer": order["customer"], "orders": count, "cents": cents}


def build(
    env: StreamExecutionEnvironment, server: str, password_file: str = "", settle: timedelta = timedelta(seconds=3)
) -> None:
    """Build the job: orders -> by customer -> totals."""
    orders = SqlSource(
        server, "orders", ORDERS, key="id", follow=timedelta(seconds=1), settle=settle, password_file=password_file
    )
    stream = env.from_source(orders, WatermarkStrategy.no_watermarks(), "orders").uid("orders")
    totals = stream.key_by(lambda order: order["customer"], Types.STRING()).process(Totals()).uid("totals")
    sink = SqlSink(server, "totals", TOTALS, key=["customer"], password_file=password_file)
    totals.sink_to(sink).name("totals table").uid("totals-table")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--server", default="mysql+pymysql://localhost/shop", help="SQLAlchemy URL")
    arguments.add_argument("--password-file", default="", help="file with the password")
    options, _ = arguments.parse_known_args()
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(1000)
    build(env, options.server, options.password_file)
    env.execute("order totals")


if __name__ == "__main__":
    main()
