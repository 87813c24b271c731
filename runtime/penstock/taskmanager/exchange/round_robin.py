"""In turns: `rebalance` over all subtasks, `rescale` over a sender's share of them."""

from __future__ import annotations

from penstock.graph.job_graph import ExchangeSpec
from penstock.records.batch import Batch
from penstock.taskmanager.exchange.writer import Emit, ExchangeWriter


class RoundRobinWriter(ExchangeWriter):
    """Rebalance: record by record over all targets; rescale: over this sender's share of them."""

    def __init__(self, spec: ExchangeSpec, sender: int, emit: Emit, targets: range) -> None:
        super().__init__(spec, sender, emit)
        self._own = targets
        self._next = sender % len(targets)

    def write(self, batch: Batch) -> None:
        rows = batch.rows()
        values, timestamps = rows.values, rows.timestamps
        width = len(self._own)
        for offset in range(min(width, len(values))):
            target = self._own[(self._next + offset) % width]
            self._append(target, values[offset::width], None if timestamps is None else timestamps[offset::width])
        self._next = (self._next + len(values)) % width


def rescale_share(sender: int, senders: int, targets: int) -> range:
    """Flink's rescale: with more targets than senders a sender has a run of them, else several senders share one."""
    if targets >= senders:
        return range(sender * targets // senders, (sender + 1) * targets // senders)
    return range(sender * targets // senders, sender * targets // senders + 1)
