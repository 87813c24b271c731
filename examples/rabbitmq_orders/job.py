"""Orders from one RabbitMQ queue, each counted once; what a customer has spent goes out to an exchange.

An order is `{"customer": "c1", "cents": 1250}`, with a correlation id of its own: an order that comes again is dropped. A total goes to the
exchange `amq.topic` with the customer as routing key, and the number of the order, by which whoever reads it tells repetitions apart.

    eval "$(python tools/rabbitmqserver.py start --state-dir /tmp/rabbitmq --queue orders --queue totals)"
    python examples/rabbitmq_orders/job.py --in-process
    python examples/rabbitmq_orders/write_orders.py 1000     # in another terminal, with RABBITMQ_URI exported, too
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
    """With each order, what its customer has ordered and spent so far."""

    def open(self, runtime_context: Any) -> None:
        self.orders = runtime_context.get_state(ValueStateDescriptor("orders", int))
        self.cents = runtime_context.get_state(ValueStateDescriptor("cents", int))

    def process_element(self, value: Order, ctx: Any) -> Iterator[Total]:
        orders, cents = (self.orders.value() or 0) + 1, (self.cents.value() or 0) + value.cents
        self.orders.update(orders)
        self.cents.update(cents)
        yield Total(value.customer, orders, cents)


def build(env: StreamExecutionEnvironment, config: RMQConnectionConfig) -> None:
    """The job: orders -> by customer -> totals."""
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
    arguments.add_argument("--uri", default=os.environ.get("RABBITMQ_URI", "amqp://localhost"), help="of the broker")
    arguments.add_argument("--password-file", default="", help="holds the password, which is then not in the URI")
    options, _ = arguments.parse_known_args()
    config = RMQConnectionConfig.Builder().set_uri(options.uri).set_password_file(options.password_file).build()
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(1000)
    build(env, config)
    env.execute("rabbitmq orders")


if __name__ == "__main__":
    main()
