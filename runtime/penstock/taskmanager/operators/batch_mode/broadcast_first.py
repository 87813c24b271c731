"""Batch mode: a stream without keys that is connected with a broadcast stream waits for the end of the broadcast stream, as in Flink."""

from __future__ import annotations

import sys
import time
from collections import deque
from itertools import repeat
from typing import TYPE_CHECKING, Any

from penstock.graph.operator import Operator, OperatorSnapshot
from penstock.records.batch import RowBatch
from penstock.taskmanager.operators.batch_mode.batch_mode_operator import BatchModeOperator
from penstock.taskmanager.operators.two_inputs.broadcast import DATA
from penstock.taskmanager.pace import Pace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.records.batch import Batch

INPUT_STATE = "batch-input"


class BroadcastFirstOperator(BatchModeOperator):
    """An operator that keeps the data side in memory. The data is part of the snapshot as operator state."""

    def __init__(self, inner: Operator) -> None:
        super().__init__(inner)
        self._pending: deque[Batch] = deque()

    def open(self) -> None:
        super().open()
        self._saved: list[Any] = self.context.operator_state.get_list_state(INPUT_STATE)
        for moment, value in self._saved:
            self._pending.append(RowBatch([value], None if moment is None else [moment]))

    def process_batch(self, batch: Batch, input_index: int = DATA) -> None:
        if input_index == DATA:
            self._pending.append(batch)
        else:
            self.inner.process_batch(batch, input_index)

    def process_remaining(self) -> Iterator[None]:
        pending, pace = self._pending, Pace(sys.maxsize)
        while pending:
            batch, most = pending.popleft(), pace.records
            if len(batch) > most:
                pending.appendleft(batch.slice(most, len(batch)))
                batch = batch.slice(0, most)
            began = time.perf_counter()
            self.inner.process_batch(batch, DATA)
            pace.record_batch(len(batch), time.perf_counter() - began)
            yield
        yield from super().process_remaining()

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        self._saved.clear()
        for rows in (batch.rows() for batch in self._pending):
            times: Iterable[int | None] = rows.timestamps or repeat(None, len(rows))
            self._saved += zip(times, rows.values, strict=True)
        return super().snapshot(checkpoint_id)
