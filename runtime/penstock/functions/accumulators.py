"""Accumulators: small results that each subtask of a function computes separately and that the JobManager merges.

Accumulators belong to an attempt, and a failover resets them, as in Flink. Use state for values that must survive a failover,
and metrics for values to monitor.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable
from typing import Any, ClassVar


class Accumulator(ABC):
    """A result that `add` builds from values. The final result includes all subtasks."""

    kind: ClassVar[str] = ""

    @abstractmethod
    def add(self, value: Any, /) -> None: ...

    @abstractmethod
    def get_local_value(self) -> Any:
        """Return the result of this subtask."""

    @abstractmethod
    def reset_local(self) -> None: ...

    @abstractmethod
    def parts(self) -> Any:
        """Return this subtask's part of the result, for `merged`. State must be able to encode it without a declared type."""

    @classmethod
    @abstractmethod
    def merged(cls, parts: Iterable[Any], /) -> Any:
        """Return the result of all subtasks, from the `parts` of each subtask."""


class _Sum(Accumulator):
    def __init__(self, value: float = 0) -> None:
        self._value = value

    def add(self, value: float) -> None:
        self._value += value

    def get_local_value(self) -> Any:
        return self._value

    def reset_local(self) -> None:
        self._value = 0

    def parts(self) -> Any:
        return self._value

    @classmethod
    def merged(cls, parts: Iterable[Any]) -> Any:
        return sum(parts)


class IntCounter(_Sum):
    """A sum of integers.

    >>> counter = IntCounter()
    >>> counter.add(2); counter.add(3); counter.get_local_value(), IntCounter.merged([5, 7])
    (5, 12)
    """

    kind = "IntCounter"


class LongCounter(_Sum):
    """A sum of integers, like `IntCounter`. Flink has both."""

    kind = "LongCounter"


class DoubleCounter(_Sum):
    """A sum of floats."""

    kind = "DoubleCounter"


class AverageAccumulator(Accumulator):
    """The mean of the values, or 0.0 if there are no values.

    >>> AverageAccumulator.merged([[2, 10.0], [1, 2.0]])
    4.0
    """

    kind = "AverageAccumulator"

    def __init__(self) -> None:
        self.reset_local()

    def add(self, value: float) -> None:
        self._count += 1
        self._sum += value

    def get_local_value(self) -> float:
        return self._sum / self._count if self._count else 0.0

    def reset_local(self) -> None:
        self._count, self._sum = 0, 0.0

    def parts(self) -> list[float]:
        return [self._count, self._sum]

    @classmethod
    def merged(cls, parts: Iterable[Any]) -> float:
        counts, sums = zip(*parts, strict=True)
        return float(sum(sums) / sum(counts)) if sum(counts) else 0.0


class ListAccumulator(Accumulator):
    """A list of all values. Add few values, because they travel with every report.

    >>> ListAccumulator.merged([["a"], ["b", "c"]])
    ['a', 'b', 'c']
    """

    kind = "ListAccumulator"

    def __init__(self) -> None:
        self._values: list[Any] = []

    def add(self, value: Any) -> None:
        self._values.append(value)

    def get_local_value(self) -> list[Any]:
        return list(self._values)

    def reset_local(self) -> None:
        self._values.clear()

    def parts(self) -> list[Any]:
        return list(self._values)

    @classmethod
    def merged(cls, parts: Iterable[Any]) -> list[Any]:
        return [value for part in parts for value in part]


class Histogram(Accumulator):
    """The number of occurrences of each integer.

    >>> Histogram.merged([[[1, 2]], [[1, 1], [4, 1]]])
    {1: 3, 4: 1}
    """

    kind = "Histogram"

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def add(self, value: int) -> None:
        self._counts[value] += 1

    def get_local_value(self) -> dict[int, int]:
        return dict(sorted(self._counts.items()))

    def reset_local(self) -> None:
        self._counts.clear()

    def parts(self) -> list[list[int]]:
        return [[value, count] for value, count in self._counts.items()]

    @classmethod
    def merged(cls, parts: Iterable[Any]) -> dict[int, int]:
        total: Counter[int] = Counter()
        for part in parts:
            total.update(dict(part))
        return dict(sorted(total.items()))


_KINDS: dict[str, type[Accumulator]] = {
    cls.kind: cls for cls in (IntCounter, LongCounter, DoubleCounter, AverageAccumulator, ListAccumulator, Histogram)
}


def merge_accumulators(kind: str, parts: Iterable[Any]) -> Any:
    """Return the merged result of all subtasks.

    >>> merge_accumulators("LongCounter", [1, 2])
    3
    """
    return _KINDS[kind].merged(parts)


def is_known(accumulator: Accumulator) -> bool:
    """Return whether the accumulator's class is in this module. The JobManager can merge only these classes, and no classes of users."""
    return _KINDS.get(accumulator.kind) is type(accumulator)
