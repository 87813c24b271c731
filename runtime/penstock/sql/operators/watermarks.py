"""Watermarks from the expression of a WATERMARK clause."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.common.watermark_strategy import WatermarkGenerator, WatermarkStrategy
from penstock.sql.expressions.compiler import compile_value
from penstock.sql.operators.rows import EventTime, SqlRow
from penstock.sql.plan.nodes import WatermarkAssigner

_INTERVAL_MS = 200
"""A watermark that is ahead by more than this time is emitted directly after its row, as in Flink."""


class SqlWatermarks(WatermarkGenerator):
    """The highest value of the expression so far."""

    def __init__(self, node: WatermarkAssigner, zone: str) -> None:
        self._watermark = compile_value(node.expression, zone)
        self._highest: int | None = None
        self._emitted: int | None = None

    def on_event(self, value: SqlRow, timestamp: int) -> int | None:
        micros = self._watermark(value)
        if micros is None:
            return None
        millis = micros // 1000
        if self._highest is None or millis > self._highest:
            self._highest = millis
        if self._emitted is not None and self._highest - self._emitted <= _INTERVAL_MS:
            return None
        self._emitted = self._highest
        return self._highest

    def on_periodic_emit(self) -> int | None:
        self._emitted = self._highest
        return self._highest


@dataclass(frozen=True)
class SqlWatermarksFactory:
    node: WatermarkAssigner
    zone: str

    def __call__(self) -> SqlWatermarks:
        return SqlWatermarks(self.node, self.zone)


def strategy_of(node: WatermarkAssigner, zone: str) -> WatermarkStrategy:
    """Return the watermark strategy of the node.

    Raises:
        InvalidJob: Penstock does not have a function of the expression.
    """
    compile_value(node.expression, zone)
    strategy = WatermarkStrategy.for_generator(SqlWatermarksFactory(node, zone))
    return strategy.with_timestamp_assigner(EventTime(node.rowtime))
