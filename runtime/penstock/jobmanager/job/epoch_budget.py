"""How many records an epoch may read, so that a barrier is never long in coming.

All that was read before a barrier must be processed before it is through, and a source cannot know how fast the operators
levels away are. So the budget follows what epochs took: the next one may read what takes `LONGEST_S` at the pace of the last.
The first is small, for it has a limit (`start_steps`) that a slow function must not run into; with fast operators the third
is bounded by nothing but the job's settings. What the buffers on the way hold is bounded in bytes, but small records behind a
slow sink would be minutes of work even so; with a budget it is seconds. (Flink's answer to the same is to make buffers
smaller, "buffer debloating".)

Not all that an epoch takes is its records': a Spark job has to be started. So the pace is that of the tasks, as long as the
epoch is short. On a busy machine or a large cluster the start takes seconds, too. What did not get shorter with fewer records, or longer with more, is not made shorter by reading less: then a
job would read next to nothing and pay for starting all the same. Two epochs that read differently tell the one from the other.

A job of one level needs no budget: what its sources read is processed before they look at the clock again.
"""

from __future__ import annotations

LONGEST_S = 4.0
"""What an epoch of the batched runner, or a barrier of the pipelined one, should take at most."""
FIRST_RECORDS = 64
"""Of the first epoch, when nobody knows how slow the operators are: nine seconds each still fit into its ten minutes."""


class EpochBudget:
    """Of one attempt.

    Args:
        most: records a source subtask may read in an epoch however fast it goes.
        levels: of the job's graph.

    >>> budget = EpochBudget(1_000_000, levels=2)
    >>> budget.on_epoch(1_000, took_s=0.5, busy_s=0.1)
    >>> budget.records
    40000
    >>> budget.on_epoch(40_000, took_s=100.0, busy_s=99.0)
    >>> budget.records
    1600
    >>> budget.on_epoch(1_600, took_s=99.0, busy_s=4.0)
    >>> budget.records
    3200
    """

    def __init__(self, most: int, levels: int) -> None:
        self._most = most
        self._levels = levels
        self._last: tuple[int, float] | None = None
        """Records and seconds of the epoch before."""
        self.records = min(most, FIRST_RECORDS) if levels > 1 else most
        """What a source subtask may read in the next epoch."""

    @property
    def is_bound(self) -> bool:
        """Less than the most may be read: a source that has used it up waits for the next epoch."""
        return self.records < self._most

    def on_epoch(self, read: int, *, took_s: float, busy_s: float) -> None:
        """An epoch is over.

        Args:
            read: records of the source subtask that read the most.
            took_s: until everything was processed that had been read.
            busy_s: of that, what the tasks spent on records, one level after the other.
        """
        if not read or self._levels == 1:
            return
        last, self._last = self._last, (read, took_s)
        pace_s = busy_s if took_s <= LONGEST_S else took_s
        fitting = int(read * LONGEST_S / max(pace_s, 1e-3))
        if took_s > LONGEST_S and last is not None and _is_fixed(last, (read, took_s)):
            fitting = 2 * read
            self.records = max(self.records, min(fitting, self._most))
        elif fitting < self.records or read >= self.records:
            self.records = max(1, min(fitting, self._most))


def _is_fixed(one: tuple[int, float], other: tuple[int, float]) -> bool:
    """Whether most of what the longer of two epochs took was not for its records."""
    (few, short_s), (many, long_s) = sorted((one, other))
    return few < many and (long_s - short_s) / (many - few) * many < long_s / 2
