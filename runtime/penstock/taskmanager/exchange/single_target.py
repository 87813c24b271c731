"""Forward and global: all records of a sender go to one subtask."""

from __future__ import annotations

from penstock.graph.job_graph import ExchangeSpec
from penstock.records.batch import Batch
from penstock.taskmanager.exchange.writer import Emit, ExchangeWriter


class SingleTargetWriter(ExchangeWriter):
    """A writer for forward and every other exchange with one target. Columns remain columns."""

    def __init__(self, spec: ExchangeSpec, sender: int, emit: Emit, target: int) -> None:
        super().__init__(spec, sender, emit)
        self._target = target

    def reachable(self) -> range:
        return range(self._target, self._target + 1)

    def write(self, batch: Batch) -> None:
        columns = self._as_columns(batch)
        if columns is not None:
            self._send_watermark(self._target)
            if self._has_pending(self._target):
                self._cut(self._target)
            self._send(self._target, columns)
        else:
            rows = batch.rows()
            self._append(self._target, rows.values, rows.timestamps)


class GlobalWriter(SingleTargetWriter):
    """A writer that sends every record to subtask 0. Watermarks go to all subtasks, as in Flink, where every subtask has a channel."""

    def __init__(self, spec: ExchangeSpec, sender: int, emit: Emit) -> None:
        super().__init__(spec, sender, emit, 0)

    def reachable(self) -> range:
        return range(self._targets)
