"""The `broadcast` exchange, which sends to every subtask."""

from __future__ import annotations

from penstock.records.batch import Batch, RowBatch
from penstock.taskmanager.exchange.rows import retarget
from penstock.taskmanager.exchange.writer import ExchangeWriter


class BroadcastWriter(ExchangeWriter):
    """A writer that sends every record to every subtask. It encodes a record only once."""

    def write(self, batch: Batch) -> None:
        columns = self._as_columns(batch)
        if columns is not None:
            self.flush()
            self._send_all(columns)
            return
        rows = batch.rows()
        self._append(0, rows.values, rows.timestamps)

    def flush(self) -> None:
        if self._rows[0]:
            self._cut(0)
        elif self._sent[0] != (self._watermark, self._idle):
            self._send_all(None)
        self._send_markers(None)

    def _send_watermark(self, target: int) -> None:
        if self._sent[0][0] != self._watermark:
            self.flush()

    def _cut(self, target: int) -> None:
        batch = RowBatch(self._rows[0], self._stamps[0])
        self._rows[0] = []
        self._stamps[0] = None
        self._send_all(batch)

    def _send_all(self, batch: Batch | None) -> None:
        now = (self._watermark, self._idle)
        for part, row in self._encoded(0, batch, self._sent[0], now):
            self.records_out += part * self._targets
            self.bytes_out += len(row) * self._targets
            for target in range(self._targets):
                self._emit(target, row if target == 0 else retarget(row, target))
        self._sent = [now] * self._targets
        self._send_markers(None)
