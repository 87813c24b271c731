"""How many records go through a chain of operators at once.

Between two batches a task looks at what else there is to do: the JobManager's commands, timers, output for others. So a batch
must not take long, and nobody knows beforehand how long a function of the user's takes, or how large its records are. A
`Pace` begins with one record; each batch may have as many as fit into the time at the pace of the one before, but no more
than eight times as many. So fast functions are at full batches after half a dozen of them, and one that was kept waiting by
other processes of the machine gets small batches for a moment only. Beyond some hundred records a batch takes no longer than
`GOOD_S`: more of them cost the same each, or more once they no longer stay in a core's cache from one operator to the next, and
whatever comes behind them waits for all. What a batch takes whatever it has, a request to an
object store, is no reason to make it small: that would make a source ever slower. Two batches that have not the same number
of records tell that part from the one of the records, so where all are of one record a second is tried.

What it cannot know is that a function which was fast is slow from now on: the batch in which that happens takes as long as it
takes, and the ones after it are small.
"""

from __future__ import annotations

LONGEST_S = 0.2
"""What a batch may take: commands, timers and output wait for so long."""
GOOD_S = 0.005
"""What a batch should take that has more than `FEW` records."""
GOOD_COLUMNS_S = 0.02
"""The same of columns: a call into Arrow costs as much for few as for many, so that a batch of a thousand records takes twice as long
for each as one of four thousand."""
FEW = 500
"""Records; what a batch costs by itself is little beside theirs."""
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

    __slots__ = ("_last", "_most", "_most_bytes", "_other", "records")

    def __init__(self, most: int, most_bytes: int = 0) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._last = (0, 0.0)
        """Records and seconds of the batch before."""
        self._other = (0, 0.0)
        """The same of the last one that had not as many records as the one before."""
        self.records = 1
        """How many the next batch may have."""

    def took(self, records: int, seconds: float, size: int = 0, *, columns: bool = False) -> None:
        """So many records, of so many bytes, were a batch (of columns) and took so long."""
        if records <= 0:
            return
        last, self._last = self._last, (records, seconds)
        if last[0] != records:
            self._other = last
        fitting = int(records * LONGEST_S / max(seconds, 1e-6))
        good = GOOD_COLUMNS_S if columns else GOOD_S
        is_fixed = seconds > good and _is_fixed(self._other, self._last)
        if seconds > LONGEST_S / 2 and (last[0] == records == 1 or is_fixed):
            limit = 2 * records
        elif fitting < self.records or 2 * records >= self.records:  # readers give about what they are asked for
            limit = min(fitting, _GROWTH * self.records)
        else:
            limit = self.records
        if not is_fixed:
            limit = min(limit, max(FEW, int(records * good / max(seconds, 1e-6))))
        if self._most_bytes and size > 0:
            limit = min(limit, self._most_bytes * records // size)
        self.records = max(1, min(limit, self._most))


def _is_fixed(one: tuple[int, float], other: tuple[int, float]) -> bool:
    """Whether most of what the larger of two batches took was not for its records."""
    (few, less_s), (many, more_s) = sorted((one, other))
    return 0 < few < many and (more_s - less_s) / (many - few) * many < more_s / 2
