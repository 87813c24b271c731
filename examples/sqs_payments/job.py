"""Count the failed payments of an SQS queue, and send alerts to a FIFO queue.

A payment is `{"customer": "c1", "cents": 1250, "ok": false}`. A customer's third failure and each later one cause an alert.
The job drops a repeated payment by the id that SQS gives it. The message group of an alert is its customer, so that a
customer's alerts keep their order. SQS drops repeated alerts by their deduplication ids.

The README has the commands.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream.connectors.sqs import SqsSink, SqsSource
from penstock.datastream.formats.json import JsonLinesEncoder, JsonLinesFormat
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment

MANY = 3


class Payment(NamedTuple):
    customer: str
    cents: int
    ok: bool


class Alert(NamedTuple):
    customer: str
    failed: int


class Failures(KeyedProcessFunction):
    """A function that counts the failed payments of a customer."""

    def open(self, runtime_context: Any) -> None:
        self.failed = runtime_context.get_state(ValueStateDescriptor("failed", int))

    def process_element(self, value: Payment, ctx: Any) -> Iterator[Alert]:
        if value.ok:
            return
        failed = (self.failed.value() or 0) + 1
        self.failed.update(failed)
        if failed >= MANY:
            yield Alert(value.customer, failed)


def build(env: StreamExecutionEnvironment, queues: str) -> None:
    """Build the job: payments -> by customer -> alerts. `queues` is the common prefix of both queues' URLs."""
    source = SqsSource(f"{queues}/payments", JsonLinesFormat(Payment), exactly_once=True)
    payments = env.from_source(source, WatermarkStrategy.no_watermarks(), "payments").uid("payments")
    alerts = payments.key_by("customer").process(Failures(), output_type=Alert).name("alerts").uid("alerts")
    sink = SqsSink(
        f"{queues}/alerts.fifo",
        JsonLinesEncoder(),
        group=lambda alert: alert.customer,
        deduplication=lambda alert: f"{alert.customer}-{alert.failed}",
    )
    alerts.sink_to(sink).name("alerts to SQS").uid("alerts-sink")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    local = f"{os.environ.get('AWS_ENDPOINT_URL_SQS', 'http://localhost:9324')}/000000000000"
    arguments.add_argument("--queues", default=local, help="common prefix of the queues' URLs")
    options, _ = arguments.parse_known_args()
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(1000)
    build(env, options.queues)
    env.execute("sqs payments")


if __name__ == "__main__":
    main()
