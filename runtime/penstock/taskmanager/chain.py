"""Outputs inside a stage, which directly call the next operators and the writers of the exchanges."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial

from penstock.graph.operator import Operator
from penstock.records.batch import Batch
from penstock.taskmanager.exchange.writer import ExchangeWriter

logger = logging.getLogger(__name__)

Consumer = Callable[[Batch], None]
_observing = threading.Lock()


class ChainedOutput:
    """The `Output` of one operator.

    Consumers are bound once. A single consumer, which is the usual case, is called directly.
    """

    def __init__(self) -> None:
        self._main: list[Consumer] = []
        self._sides: dict[str, list[Consumer]] = {}
        self._operators: list[Operator] = []
        self._writers: list[ExchangeWriter] = []
        self.records = 0

    def add_operator(self, side_tag: str | None, operator: Operator, input_index: int) -> None:
        self._add(side_tag, partial(operator.process_batch, input_index=input_index))
        self._operators.append(operator)

    def add_writer(self, side_tag: str | None, writer: ExchangeWriter) -> None:
        self._add(side_tag, writer.write)
        self._writers.append(writer)

    def _add(self, side_tag: str | None, consumer: Consumer) -> None:
        if side_tag is None:
            self._main.append(consumer)
        else:
            self._sides.setdefault(side_tag, []).append(consumer)

    def attach(self, side_tag: str | None, observer: Consumer) -> None:
        """Let an observer see each batch before the other consumers. Any thread may call it. The side output must have a consumer."""
        with _observing:  # a new list, because the task's thread may iterate over the former list
            if side_tag is None:
                self._main = [observer, *self._main]
            elif side_tag in self._sides:
                self._sides[side_tag] = [observer, *self._sides[side_tag]]

    def detach(self, side_tag: str | None, observer: Consumer) -> None:
        with _observing:
            if side_tag is None:
                self._main = [consumer for consumer in self._main if consumer is not observer]
            elif side_tag in self._sides:
                self._sides[side_tag] = [consumer for consumer in self._sides[side_tag] if consumer is not observer]

    def emit(self, batch: Batch) -> None:
        size = len(batch)
        if size:
            self.records += size
            for consumer in self._main:
                consumer(batch)

    def emit_side(self, tag_id: str, batch: Batch) -> None:
        if len(batch):
            consumers = self._sides.get(tag_id)
            if consumers is None:
                consumers = self._sides[tag_id] = []
                logger.warning(
                    "records for the side output %r are dropped, because no get_side_output reads it", tag_id
                )
            for consumer in consumers:
                consumer(batch)

    def emit_watermark(self, timestamp: int) -> None:
        for operator in self._operators:
            operator.process_watermark(timestamp)
        for writer in self._writers:
            writer.watermark(timestamp)

    def emit_idle(self, is_idle: bool) -> None:
        for operator in self._operators:
            operator.process_idle(is_idle)
        for writer in self._writers:
            writer.idle(is_idle)
