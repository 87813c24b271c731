"""A job that is slow because of one operator and one key. It runs on real workers, which import this module."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.simple.datagen import DataGeneratorSource
from penstock.datastream.functions import KeyedProcessFunction, RuntimeContext
from penstock.datastream.state import MapStateDescriptor, ValueStateDescriptor

if TYPE_CHECKING:
    from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment

BIG_CUSTOMER = "customer-0"
"""The key of most records."""
TOOK_S = 0.004
"""Time that the slow operator needs for a record."""


def order(index: int) -> tuple[str, int]:
    """Return the customer and the amount. Three of four orders are those of one customer."""
    return (BIG_CUSTOMER if index % 4 else f"customer-{index % 80}", index % 500)


class Reviews(KeyedProcessFunction):
    """A slow function that fails once for each file that a test creates."""

    def __init__(self, fault: str) -> None:
        self.fault = fault

    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", int))
        self.seen = runtime_context.get_map_state(MapStateDescriptor("orders seen", int, str))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        time.sleep(TOOK_S)
        fault = Path(self.fault)
        if value[0] == BIG_CUSTOMER and fault.exists():
            fault.unlink()
            raise ValueError(f"amount {value[1]} cannot be right")
        total = (self.total.value() or 0) + value[1]
        self.total.update(total)
        self.seen.put(value[1], "x" * 200)
        if value[1] % 50 == 0:
            logging.getLogger("reviews").warning("reviewed %d of %s", value[1], value[0])
        yield (value[0], total)


def build(env: StreamExecutionEnvironment, fault: Path) -> None:
    source = DataGeneratorSource(order, records_per_second=2_000.0)
    orders = env.from_source(source, WatermarkStrategy.no_watermarks(), "Orders").uid("orders")
    orders.key_by(lambda value: value[0]).process(Reviews(str(fault))).name("Reviews").uid("reviews").key_by(
        lambda value: value[1] % 10
    ).reduce(lambda one, other: (one[0], max(one[1], other[1]))).name("Highest").uid("highest").filter(
        lambda value: False
    ).name("Nothing").uid("nothing").print().uid("out").name("Print")
