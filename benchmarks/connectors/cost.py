"""CPU time and wall clock of a piece of work in this process, over all of its threads."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.connectors.records import Tally


@dataclass(frozen=True)
class Cost:
    """The cost of a number of records. `cpu_s` is user and system time of this process."""

    records: int
    cpu_s: float
    wall_s: float

    @property
    def cpu_us(self) -> float:
        """The CPU time per record, µs."""
        return self.cpu_s / self.records * 1e6

    @property
    def rate(self) -> float:
        """Records per second."""
        return self.records / self.wall_s


class Watch:
    """A watch that runs from its creation, or from `restart`, to `stop`."""

    def __init__(self) -> None:
        gc.collect()
        self.restart()

    def restart(self) -> None:
        self._cpu, self._wall = time.process_time(), time.perf_counter()

    def stop(self, records: int) -> Cost:
        return Cost(records, time.process_time() - self._cpu, time.perf_counter() - self._wall)


def timed(records: int, work: Callable[[], Any]) -> Cost:
    """Return the cost of a bare client's work."""
    watch = Watch()
    work()
    return watch.stop(records)


def consumed(count: int, batches: Iterator[list[Any]]) -> Cost:
    """Return the cost of a bare reader that yields readings in batches. Stop reading after this many.

    Raises:
        Wrong: the readings differ from the expected ones.
    """
    tally, watch = Tally(), Watch()
    for values in batches:
        tally.take(values)
        if tally.number >= count:
            break
    cost = watch.stop(count)
    tally.check(count)
    return cost
