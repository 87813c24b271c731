"""The metric types a user function works with, and the group that makes them.

A function gets its group from its runtime context:

    def open(self, runtime_context):
        group = runtime_context.get_metrics_group().add_group("MyMetrics")
        self.dropped = group.counter("droppedElements")
        group.gauge("watermark", lambda: self.watermark)

Metrics are updated by one thread, the one that runs the subtask, and read at the end of an epoch.
"""

from __future__ import annotations

import logging
import numbers
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from penstock.metrics.histogram import LogHistogram, Wire

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

logger = logging.getLogger(__name__)

Scalar = int | float | str | bool | None
"""What a gauge's value is reported as; anything else is reported as its `str`."""

_FOLD_AT = 4096


_WIRE = range(-(2**63), 2**64)
"""Integers that msgpack has."""


def _scalar(value: object) -> Scalar:
    """
    >>> _scalar(2**70), _scalar(True)
    (1.1805916207174113e+21, True)
    """
    if isinstance(value, (bool, float)) or value is None:
        return value
    if isinstance(value, numbers.Integral):
        whole = int(value)
        return whole if whole in _WIRE else float(whole)
    if isinstance(value, numbers.Real):
        return float(value)
    text = str(value)
    return text if text.isascii() else text.encode(errors="replace").decode()


class Metric(ABC):
    """Base of the metric types. How it is reported is the registry's business, see `task.TaskMetrics`."""

    __slots__ = ()
    section = ""
    """Where it stands in a snapshot."""

    @abstractmethod
    def version(self) -> object:
        """Changes when there is something new to report."""

    def wire(self, version: object) -> object:
        """What is reported, of builtins only."""
        return version


class Counter(Metric):
    """A number that goes up and down.

    >>> counter = Counter()
    >>> counter.inc(); counter.inc(5); counter.dec()
    >>> counter.get_count()
    5
    """

    __slots__ = ("_count",)
    section = "c"

    def __init__(self) -> None:
        self._count = 0

    def version(self) -> int:
        return self._count

    def wire(self, version: object) -> object:
        return _scalar(version)

    def inc(self, n: int = 1) -> None:
        self._count += n

    def dec(self, n: int = 1) -> None:
        self._count -= n

    def get_count(self) -> int:
        return self._count


class Gauge(Metric):
    """A value that is asked for when it is reported, once per epoch at most.

    A function that raises is reported as no value and logged once; it never fails the job.

    >>> Gauge(lambda: 3.5).get_value()
    3.5
    """

    __slots__ = ("_function", "_has_failed")
    section = "g"

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function
        self._has_failed = False

    def version(self) -> Scalar:
        return self.get_value()

    def get_value(self) -> Scalar:
        try:
            return _scalar(self._function())
        except Exception:
            if not self._has_failed:
                self._has_failed = True
                logger.warning("a gauge raised; it is reported without a value while it does", exc_info=True)
            return None


class Meter(Metric):
    """Events per second over the last `time_span_in_seconds`; the rate is computed where metrics are read.

    >>> meter = Meter()
    >>> meter.mark_event(); meter.mark_event(10)
    >>> meter.get_count()
    11
    """

    __slots__ = ("_count", "time_span_in_seconds")
    section = "m"

    def __init__(self, time_span_in_seconds: int = 60) -> None:
        self._count = 0
        self.time_span_in_seconds = time_span_in_seconds

    def version(self) -> int:
        return self._count

    def wire(self, version: object) -> tuple[object, int]:
        return _scalar(version), self.time_span_in_seconds

    def mark_event(self, value: int = 1) -> None:
        self._count += value

    def get_count(self) -> int:
        return self._count


class Distribution(Metric):
    """Count, min, max, mean, standard deviation and percentiles (within 2 %) of the values given.

    >>> distribution = Distribution()
    >>> for value in (1, 2, 3): distribution.update(value)
    >>> distribution.histogram().summary().mean
    2.0
    """

    __slots__ = ("_histogram", "_pending")
    section = "d"

    def __init__(self) -> None:
        self._histogram = LogHistogram()
        self._pending: list[float] = []

    def version(self) -> int:
        return self.histogram().count

    def wire(self, version: object) -> Wire:
        return self._histogram.to_wire()

    def update(self, value: float) -> None:
        pending = self._pending
        pending.append(value)
        if len(pending) >= _FOLD_AT:
            self._fold()

    def histogram(self) -> LogHistogram:
        """Everything since the metric was made."""
        self._fold()
        return self._histogram

    def _fold(self) -> None:
        self._histogram.add_all(self._pending)
        self._pending.clear()


class MetricGroup(ABC):
    """A named set of metrics and further groups. Asking twice for a name gives the same metric or group."""

    @abstractmethod
    def add_group(self, name: str, extra: str | None = None) -> MetricGroup:
        """A group below this one. With `extra`, `name` becomes a variable (a label in Prometheus) with that value."""

    @abstractmethod
    def counter(self, name: str) -> Counter: ...

    @abstractmethod
    def gauge(self, name: str, obj: Callable[[], object]) -> None:
        """Report what `obj()` returns. A gauge of the same name is replaced."""

    @abstractmethod
    def meter(self, name: str, time_span_in_seconds: int = 60) -> Meter: ...

    @abstractmethod
    def distribution(self, name: str) -> Distribution: ...

    @abstractmethod
    def get_scope_components(self) -> Sequence[str]:
        """System scope and user scope, such as `["host-7", "taskmanager", "tm-2", "count", "my-map", "0"]`."""

    @abstractmethod
    def get_all_variables(self) -> Mapping[str, str]:
        """Every variable of the scope, such as `{"<host>": "host-7", "<tm_id>": "tm-2"}`."""

    @abstractmethod
    def get_metric_identifier(self, metric_name: str) -> str:
        """`<system scope>.<user scope>.<name>`."""
