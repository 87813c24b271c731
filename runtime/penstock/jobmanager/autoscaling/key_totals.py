"""The frequent keys of each exchange, added up over the senders' reports until a sample takes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from heapq import nlargest

from penstock.graph.job_graph import JobGraph, Stage
from penstock.jobmanager.autoscaling.samples import KeyShare
from penstock.state.key_groups import subtask_for_key_group
from penstock.taskmanager.protocol import KeyCounts

MOST = 256
"""Number of keys of an exchange that are kept until the next sample."""
SHOWN = 3
"""Number of keys and of key groups of a sample."""


@dataclass
class KeyTotals:
    """Frequent keys and key groups of one or more exchanges."""

    total: int = 0
    keys: dict[tuple[str, int], int] = field(default_factory=dict)
    groups: dict[int, int] = field(default_factory=dict)

    def add(self, counts: KeyCounts) -> None:
        """Add the report of a sender."""
        self.total += counts.total
        for text, group, records in counts.keys:
            self.keys[text, group] = self.keys.get((text, group), 0) + records
        for group, records in counts.groups:
            self.groups[group] = self.groups.get(group, 0) + records
        if len(self.keys) > 2 * MOST:
            self.keys = dict(self._largest(MOST))

    def _largest(self, count: int) -> list[tuple[tuple[str, int], int]]:
        return nlargest(count, self.keys.items(), key=lambda entry: entry[1])

    def counts(self, keys: int = MOST) -> KeyCounts:
        """Return the totals in the form of a report, with at most this number of keys and of key groups."""
        groups = nlargest(keys, self.groups.items(), key=lambda entry: entry[1])
        return KeyCounts(self.total, [(*key, records) for key, records in self._largest(keys)], groups)


def key_shares(
    totals: Mapping[int, KeyTotals], graph: JobGraph, stage: Stage, clean: Callable[[str], str]
) -> tuple[KeyShare, ...]:
    """Return the largest shares of a stage's input that single keys and key groups have.

    Args:
        totals: totals by exchange.
        clean: returns the text of a key as it may be shown.
    """
    exchanges = [graph.exchanges[exchange] for exchange in stage.inputs if exchange in totals]
    found = KeyTotals()
    for exchange in exchanges:
        found.add(totals[exchange.id].counts())
    if not found.total:
        return ()
    spec, top = exchanges[0], found.counts(SHOWN)
    named: Iterable[tuple[str | None, int, int]] = [
        *((clean(text), group, records) for text, group, records in top.keys),
        *((None, group, records) for group, records in top.groups),
    ]
    return tuple(
        KeyShare(
            key,
            group,
            subtask_for_key_group(group, spec.parallelism, spec.max_parallelism),
            round(min(1.0, records / found.total), 4),
        )
        for key, group, records in named
    )
