"""The maximum number of records of an epoch, which limits the delay of a barrier.

All records that were read before a barrier must be processed before the barrier completes. A source cannot know the speed of operators that
are several levels away. So the budget follows the duration of previous epochs: at the pace of the last epoch, the next
epoch may read for `LONGEST_S`.

The first budget is small, because the first epoch has a time limit (`start_steps`) that a slow function must not exceed. If operators are
fast, only the job's settings limit the third epoch. The buffers between operators are limited in bytes. Even so, small records before
a slow sink could be minutes of work. The budget reduces this to seconds. (Flink shrinks the buffers instead, "buffer debloating".)

The duration of an epoch includes the start of a Spark job. So the pace of a short epoch is calculated only from the time of its tasks.
On a busy machine or a large cluster, the start takes seconds. Fewer records do not shorten this fixed part. If the budget shrank because of
this fixed part, the job would read next to nothing and still pay for the start. Two epochs with different numbers of records show the fixed
part.

A job of one level needs no budget, because its sources process what they read before they check the clock again.
"""

from __future__ import annotations

from penstock.taskmanager.protocol import LevelAck

LONGEST_S = 4.0
"""Target in seconds of the duration of an epoch (batched runner), or of the time that a barrier takes (pipelined runner)."""
FIRST_RECORDS = 64
"""Records of the first epoch, when the speed of operators is unknown. Even at 9 s per record, the epoch stays below its limit of ten
minutes.
"""


class EpochBudget:
    """Budget of one attempt.

    Args:
        most: maximum number of records that a source subtask may read in an epoch.
        levels: number of levels of the job graph.

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
        """Records and seconds of the previous epoch."""
        self.records = min(most, FIRST_RECORDS) if levels > 1 else most
        """Number of records that a source subtask may read in the next epoch."""

    @property
    def is_bound(self) -> bool:
        """Return whether the budget is below the maximum. A source that uses it up waits for the next epoch."""
        return self.records < self._most

    def on_epoch(self, read: int, *, took_s: float, busy_s: float) -> None:
        """Update the budget after an epoch.

        Args:
            read: number of records of the source subtask that read the most.
            took_s: time in seconds until all these records were processed.
            busy_s: part of that time that the tasks spent on records, one level after the other.
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
    """Return whether most of the longer epoch's time does not depend on its records."""
    (few, short_s), (many, long_s) = sorted((one, other))
    return few < many and (long_s - short_s) / (many - few) * many < long_s / 2


def busy_s(acks: list[LevelAck]) -> float:
    """Return the sum over the levels of the slowest task's busy time. The batched runner runs levels one after the other."""
    by_level: dict[int, float] = {}
    for ack in acks:
        busy_ms = sum(vertex.busy_ms for vertex in ack.vertices.values())
        by_level[ack.level] = max(by_level.get(ack.level, 0.0), busy_ms)
    return sum(by_level.values()) / 1e3
