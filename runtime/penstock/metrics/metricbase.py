"""The metric types for user functions, and the group that creates them.

A function gets its group from its runtime context:

    def open(self, runtime_context):
        group = runtime_context.get_metrics_group().add_group("MyMetrics")
        self.dropped = group.counter("droppedElements")
        group.gauge("watermark", lambda: self.watermark)

The thread that runs the subtask updates the metrics. Penstock reads the metrics at the end of an epoch.
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
"""Types of a gauge's reported value. Any other value is reported as its `str`."""

_FOLD_AT = 4096


_WIRE = range(-(2**63), 2**64)
"""Integers that msgpack can encode."""


def _scalar(value: object) -> Scalar:
    """Return the value as a scalar that a report can contain.

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
    """The base of the metric types. The registry (`task.TaskMetrics`) decides how a metric is reported."""

    __slots__ = ()
    section = ""
    """Section of the snapshot that contains the metric."""

    @abstractmethod
    def version(self) -> object:
        """Return a value that changes when the metric has something new to report."""

    def wire(self, version: object) -> object:
        """Return the reported value, built from builtins only."""
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
    """A value that a function returns when the metric is reported, at most once per epoch.

    If the function raises, the gauge has no value, and one warning is logged. A gauge never fails the job.

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
                logger.warning(
                    "a gauge raised an error. It is reported without a value until it succeeds", exc_info=True
                )
            return None


class Meter(Metric):
    """The number of events per second over the last `time_span_in_seconds`. The reader of the metrics computes the rate.

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
    """The count, min, max, mean, standard deviation and percentiles (within 2 %) of the added values.

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
        """Return all values since the metric was created."""
        self._fold()
        return self._histogram

    def _fold(self) -> None:
        self._histogram.add_all(self._pending)
        self._pending.clear()


class MetricGroup(ABC):
    """A named set of metrics and further groups. A second call with the same name returns the same metric or group."""

    @abstractmethod
    def add_group(self, name: str, extra: str | None = None) -> MetricGroup:
        """Return a group below this one. If `extra` is set, `name` becomes a variable (a label in Prometheus) with that value."""

    @abstractmethod
    def counter(self, name: str) -> Counter: ...

    @abstractmethod
    def gauge(self, name: str, obj: Callable[[], object]) -> None:
        """Report the result of `obj()`. A gauge of the same name is replaced."""

    @abstractmethod
    def meter(self, name: str, time_span_in_seconds: int = 60) -> Meter: ...

    @abstractmethod
    def distribution(self, name: str) -> Distribution: ...

    @abstractmethod
    def get_scope_components(self) -> Sequence[str]:
        """Return system scope and user scope, such as `["host-7", "taskmanager", "tm-2", "count", "my-map", "0"]`."""

    @abstractmethod
    def get_all_variables(self) -> Mapping[str, str]:
        """Return every variable of the scope, such as `{"<host>": "host-7", "<tm_id>": "tm-2"}`."""

    @abstractmethod
    def get_metric_identifier(self, metric_name: str) -> str:
        """Return `<system scope>.<user scope>.<name>`."""
