"""Forward and global: all records of a sender go to one subtask."""

from __future__ import annotations

from penstock.graph.job_graph import ExchangeSpec
from penstock.records.batch import Batch
from penstock.taskmanager.exchange.writer import Emit, ExchangeWriter


class SingleTargetWriter(ExchangeWriter):
    """Forward, global, and everything with one target: no choice to make, columns stay columns."""

    def __init__(self, spec: ExchangeSpec, sender: int, emit: Emit, target: int) -> None:
        super().__init__(spec, sender, emit)
        self._target = target

    def reachable(self) -> range:
        return range(self._target, self._target + 1)

    def write(self, batch: Batch) -> None:
        columns = self._as_columns(batch)
        if columns is not None:
            self._tell_watermark(self._target)
            if self._holds(self._target):
                self._cut(self._target)
            self._send(self._target, columns)
        else:
            rows = batch.rows()
            self._append(self._target, rows.values, rows.timestamps)


class GlobalWriter(SingleTargetWriter):
    """Every record to subtask 0; watermarks to all, as Flink's channels go to all (A31)."""

    def __init__(self, spec: ExchangeSpec, sender: int, emit: Emit) -> None:
        super().__init__(spec, sender, emit, 0)

    def reachable(self) -> range:
        return range(self._targets)
