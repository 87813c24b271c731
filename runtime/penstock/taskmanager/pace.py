"""How many records go through a chain of operators at once.

Between two batches a task looks at what else there is to do: the JobManager's commands, timers, output for others. So a batch
must not take long, and nobody knows beforehand how long a function of the user's takes, or how large its records are. A
`Pace` begins with one record; each batch may have as many as fit into the time at the pace of the one before, but no more
than eight times as many. So fast functions are at full batches after half a dozen of them, and one that was kept waiting by
other processes of the machine gets small batches for a moment only. The time is of processing alone: what it takes to hand
a batch over is the same for a small one, and would make them ever smaller.

What it cannot know is that a function which was fast is slow from now on: the batch in which that happens takes as long as it
takes, and the ones after it are small.
"""

from __future__ import annotations

LONGEST_S = 0.2
"""What a batch may take: commands, timers and output wait for so long."""
_GROWTH = 8


class Pace:
    """Of one source or subtask.

    Args:
        most: records of a batch, however fast they go.
        most_bytes: of a batch; 0: whatever they have.

    >>> pace = Pace(10_000)
    >>> pace.took(1, seconds=0.001)
    >>> pace.records
    8
    >>> pace.took(8, seconds=0.8)
    >>> pace.records
    2
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
        fitting = int(records * LONGEST_S / max(seconds, 1e-6))
        if fitting < self.records or records >= self.records:
            limit = min(fitting, _GROWTH * self.records)
        else:
            limit = self.records
        if self._most_bytes and size > 0:
            limit = min(limit, self._most_bytes * records // size)
        self.records = max(1, min(limit, self._most))
