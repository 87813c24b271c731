"""Round-robin exchanges: `rebalance` over all subtasks, `rescale` over the sender's share of the subtasks."""

from __future__ import annotations

from penstock.graph.job_graph import ExchangeSpec
from penstock.records.batch import Batch
from penstock.taskmanager.exchange.writer import Emit, ExchangeWriter


class RoundRobinWriter(ExchangeWriter):
    """A writer that distributes records one by one: rebalance over all targets, rescale over the sender's share of the targets."""

    def __init__(self, spec: ExchangeSpec, sender: int, emit: Emit, targets: range) -> None:
        super().__init__(spec, sender, emit)
        self._own_targets = targets
        self._next = sender % len(targets)

    def write(self, batch: Batch) -> None:
        rows = batch.rows()
        values, timestamps = rows.values, rows.timestamps
        width = len(self._own_targets)
        for offset in range(min(width, len(values))):
            target = self._own_targets[(self._next + offset) % width]
            self._append(target, values[offset::width], None if timestamps is None else timestamps[offset::width])
        self._next = (self._next + len(values)) % width


def rescale_share(sender: int, senders: int, targets: int) -> range:
    """Return a sender's targets, as Flink's rescale does.

    If there are more targets than senders, a sender has a range of targets. Otherwise several senders share a target.
    """
    if targets >= senders:
        return range(sender * targets // senders, (sender + 1) * targets // senders)
    return range(sender * targets // senders, sender * targets // senders + 1)
