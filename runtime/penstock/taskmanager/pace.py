"""The number of records that go through a chain of operators at once.

Between two batches, a task handles the JobManager's commands, timers, and output for other tasks. So a batch must be
short. `Pace` does not know in advance how long a user function takes and how large its records are. A `Pace` starts
with one record. The next batch has as many records as fit into the time limit at the last batch's speed, but at most
eight times as many. So fast functions reach full batches after about six batches. A function that other processes slow
down gets small batches for a moment only.

A batch of more than some hundred records takes at most `GOOD_S`. A larger batch does not reduce the cost per record. It
raises the cost if the records no longer fit into a core's cache between operators, and all later work waits for the
batch.

A fixed cost per batch, such as a request to an object store, is not a reason for small batches. Smaller batches would
only make a source slower. Two batches with different numbers of records separate the fixed cost from the cost per
record. So if all batches have one record, `Pace` tries two records.

`Pace` cannot know that a fast function becomes slow. The batch in which this happens takes its full
time, and the following batches are small.
"""

from __future__ import annotations

LONGEST_S = 0.2
"""Maximum time of a batch. Commands, timers and output wait for this long."""
GOOD_S = 0.005
"""Target time of a batch with more than `FEW` records."""
GOOD_COLUMNS_S = 0.02
"""Target time of a batch of columns. A call into Arrow costs the same for few and many records. So a batch of 1,000 records takes twice
as long per record as a batch of 4,000."""
FEW = 500
"""Number of records above which the fixed cost of a batch is small."""
_GROWTH = 8


class Pace:
    """The batch size of one source or subtask.

    Args:
        most: maximum records of a batch.
        max_bytes: maximum bytes of a batch; 0 means no limit.

    >>> pace = Pace(10_000)
    >>> pace.record_batch(1, seconds=0.001)
    >>> pace.records
    8
    >>> pace.record_batch(8, seconds=0.8)
    >>> pace.records
    2
    """

    __slots__ = ("_last", "_max_bytes", "_max_records", "_other", "records")

    def __init__(self, most: int, max_bytes: int = 0) -> None:
        self._max_records = most
        self._max_bytes = max_bytes
        self._last = (0, 0.0)
        """Records and seconds of the last batch."""
        self._other = (0, 0.0)
        """Records and seconds of the latest earlier batch whose next batch had a different number of records."""
        self.records = 1
        """Maximum records of the next batch."""

    def record_batch(self, records: int, seconds: float, size: int = 0, *, columns: bool = False) -> None:
        """Record the number of records, the time and the bytes of a batch, and choose the size of the next batch."""
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
        elif fitting < self.records or 2 * records >= self.records:  # readers return about as many records as requested
            limit = min(fitting, _GROWTH * self.records)
        else:
            limit = self.records
        if not is_fixed:
            limit = min(limit, max(FEW, int(records * good / max(seconds, 1e-6))))
        if self._max_bytes and size > 0:
            limit = min(limit, self._max_bytes * records // size)
        self.records = max(1, min(limit, self._max_records))


def _is_fixed(one: tuple[int, float], other: tuple[int, float]) -> bool:
    """Return whether most of the time of the larger batch was fixed cost, not cost of its records."""
    (few, less_s), (many, more_s) = sorted((one, other))
    return 0 < few < many and (more_s - less_s) / (many - few) * many < more_s / 2
