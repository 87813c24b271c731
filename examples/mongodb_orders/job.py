"""Add up the orders of a MongoDB collection by the country of the customer.

An order is `{"_id": ObjectId(…), "customer": "c1", "cents": 1250}`, a customer `{"_id": "c1", "country": "NL"}`. The job ends when
it has read all orders that existed at its start. It can run again: new totals replace the old ones.

The README has the commands.
"""

from __future__ import annotations

import argparse
import os
from datetime import timedelta
from typing import Any, NamedTuple

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream.async_data_stream import AsyncDataStream
from penstock.datastream.connectors.mongodb import MongoLookup, MongoSink, MongoSource
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment

DATABASE = "shop"


class Order(NamedTuple):
    customer: str
    cents: int


class Total(NamedTuple):
    country: str
    orders: int
    cents: int


def with_country(order: Order, customers: list[dict[str, Any]]) -> list[Total]:
    return [Total(customers[0]["country"] if customers else "unknown", 1, order.cents)]


def added(left: Total, right: Total) -> Total:
    return Total(left.country, left.orders + right.orders, left.cents + right.cents)


def document(total: Total) -> dict[str, Any]:
    return {"_id": total.country, "orders": total.orders, "cents": total.cents}


def build(env: StreamExecutionEnvironment, url: str, password_file: str = "") -> None:
    """Build the job: orders -> with their customers' country -> totals by country."""
    source = MongoSource(url, DATABASE, "orders", Order, password_file=password_file)
    orders = env.from_source(source, WatermarkStrategy.no_watermarks(), "orders").uid("orders")
    customers = MongoLookup(
        url,
        DATABASE,
        "customers",
        key=lambda order: order.customer,
        fields=["country"],
        join=with_country,
        password_file=password_file,
    )
    known = AsyncDataStream.unordered_wait(orders, customers, timedelta(seconds=30), 1000, Total).uid("customers")
    totals = known.key_by("country").reduce(added).name("totals").uid("totals")
    sink = MongoSink(url, DATABASE, "totals", document, password_file=password_file)
    totals.sink_to(sink).name("totals to MongoDB").uid("totals-sink")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--url", default=os.environ.get("MONGODB_URL", "mongodb://localhost:27017/"))
    arguments.add_argument("--password-file", default="", help="file with the password of the URL's user")
    options, _ = arguments.parse_known_args()
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(1000)
    build(env, options.url, options.password_file)
    env.execute("mongodb orders")


if __name__ == "__main__":
    main()
