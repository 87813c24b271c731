"""Count each order of one RabbitMQ queue once, and send the customer's total to an exchange.

An order is `{"customer": "c1", "cents": 1250}` with a unique correlation id. The job drops an order that arrives again. A total
goes to the exchange `amq.topic` with the customer as routing key. It has the number of the order, so that a reader can
detect repetitions.

The README has the commands.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream.connectors.rabbitmq import RMQConnectionConfig, RMQSink, RMQSource
from penstock.datastream.formats.json import JsonLinesEncoder, JsonLinesFormat
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment


class Order(NamedTuple):
    customer: str
    cents: int


class Total(NamedTuple):
    customer: str
    orders: int
    cents: int


class Totals(KeyedProcessFunction):
    """A function that emits, for each order, the customer's number of orders and total so far."""

    def open(self, runtime_context: Any) -> None:
        self.orders = runtime_context.get_state(ValueStateDescriptor("orders", int))
        self.cents = runtime_context.get_state(ValueStateDescriptor("cents", int))

    def process_element(self, value: Order, ctx: Any) -> Iterator[Total]:
        orders, cents = (self.orders.value() or 0) + 1, (self.cents.value() or 0) + value.cents
        self.orders.update(orders)
        self.cents.update(cents)
        yield Total(value.customer, orders, cents)


def build(env: StreamExecutionEnvironment, config: RMQConnectionConfig) -> None:
    """Build the job: orders -> by customer -> totals."""
    source = RMQSource(config, "orders", True, JsonLinesFormat(Order))
    orders = env.from_source(source, WatermarkStrategy.no_watermarks(), "orders").uid("orders")
    totals = orders.key_by("customer").process(Totals(), output_type=Total).name("totals").uid("totals")
    sink = RMQSink(
        config,
        "",
        JsonLinesEncoder(),
        exchange="amq.topic",
        routing_key=lambda total: f"totals.{total.customer}",
        properties=lambda total: {"correlation_id": f"{total.customer}-{total.orders}"},
    )
    totals.sink_to(sink).name("totals to RabbitMQ").uid("totals-sink")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument(
        "--uri", default=os.environ.get("RABBITMQ_URI", "amqp://localhost"), help="URI of the broker"
    )
    arguments.add_argument("--password-file", default="", help="file with the password, for a URI without one")
    options, _ = arguments.parse_known_args()
    config = RMQConnectionConfig.Builder().set_uri(options.uri).set_password_file(options.password_file).build()
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(1000)
    build(env, config)
    env.execute("rabbitmq orders")


if __name__ == "__main__":
    main()
