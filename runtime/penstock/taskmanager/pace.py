"""How many records go through a chain of operators at once.

Between two batches a task looks at what else there is to do: the JobManager's commands, timers, output for others. So a batch
must not take long, and nobody knows beforehand how long a function of the user's takes, or how large its records are. A
`Pace` begins with one record and doubles while batches take less than they may; as soon as one takes longer, or is larger,
the next ones are as small as they have to be. Fast functions are at full batches after a dozen of them.

What it cannot know is that a function which was fast is slow from now on: the batch in which that happens takes as long as it
takes, `most` records at the new pace, and the ones after it are small.
"""

from __future__ import annotations

LONGEST_S = 0.05
"""What a batch may take: commands, timers and output wait for so long."""


class Pace:
    """Of one source or subtask.

    Args:
        most: records of a batch, however fast they go.
        most_bytes: of a batch; 0: whatever they have.

    >>> pace = Pace(10_000)
    >>> for _ in range(3):
    ...     pace.took(pace.records, seconds=0.001)
    >>> pace.records
    8
    >>> pace.took(8, seconds=0.4)
    >>> pace.records
    1
    """

    __slots__ = ("_most", "_most_bytes", "records")

    def __init__(self, most: int, most_bytes: int = 0) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self.records = 1
        """How many the next batch may have."""

    def took(self, records: int, seconds: float, size: int = 0) -> None:
        """So many records, of so many bytes, were a batch and took so long."""
        if records <= 0:
            return
        if seconds > LONGEST_S:
            limit = int(records * LONGEST_S / seconds)
        elif 2 * seconds < LONGEST_S and records >= self.records:
            limit = 2 * self.records
        else:
            limit = self.records
        if self._most_bytes and size > 0:
            limit = min(limit, self._most_bytes * records // size)
        self.records = max(1, min(limit, self._most))
