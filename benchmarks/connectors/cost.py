"""CPU time and wall clock of a piece of work in this process, all its threads taken together."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.connectors.records import Tally


@dataclass(frozen=True)
class Cost:
    """`cpu_s`: user and system time of this process."""

    records: int
    cpu_s: float
    wall_s: float

    @property
    def cpu_us(self) -> float:
        """Of a record."""
        return self.cpu_s / self.records * 1e6

    @property
    def rate(self) -> float:
        """Records per second."""
        return self.records / self.wall_s


class Watch:
    """Runs from its making, or from `restart`, to `stop`."""

    def __init__(self) -> None:
        gc.collect()
        self.restart()

    def restart(self) -> None:
        self._cpu, self._wall = time.process_time(), time.perf_counter()

    def stop(self, records: int) -> Cost:
        return Cost(records, time.process_time() - self._cpu, time.perf_counter() - self._wall)


def timed(records: int, work: Callable[[], Any]) -> Cost:
    """Of a bare client's work."""
    watch = Watch()
    work()
    return watch.stop(records)


def consumed(count: int, batches: Iterator[list[Any]]) -> Cost:
    """Of a bare reader, which gives readings by the batch; it is left when so many have come.

    Raises:
        Wrong: they were others.
    """
    tally, watch = Tally(), Watch()
    for values in batches:
        tally.take(values)
        if tally.number >= count:
            break
    cost = watch.stop(count)
    tally.check(count)
    return cost
