"""The task's side of metrics: the metrics of one subtask, and the changed values for an ack.

An ack is sent several times a second. So `TaskMetrics.snapshot` contains only the changes since the last snapshot, as
plain builtins for msgpack:

    {"names": {uid: operator name},    operators that are new
     "c": {key: count},                counters
     "m": {key: [count, span in s]},   meters
     "g": {key: value},                gauges
     "d": {key: histogram}}            distributions, see `histogram.Wire`

Unchanged values can be omitted because no ack of an attempt is ever lost. If an ack is missing, the epoch and its attempt have failed. A
new attempt has a new `TaskMetrics`, whose first snapshot contains everything.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

from penstock.metrics.key import MetricKey, encode_key
from penstock.metrics.metricbase import Counter, Distribution, Gauge, Meter, Metric, MetricGroup
from penstock.metrics.scope import ScopeFormats, ScopeKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

logger = logging.getLogger(__name__)

M = TypeVar("M", bound=Metric)


class TaskMetrics:
    """All metrics of one subtask of one vertex.

    Args:
        variables: values of the scope variables that are the same for the whole subtask, without brackets.
        formats: scope formats, or None for the defaults.

    >>> metrics = TaskMetrics({"job_name": "count"})
    >>> dropped = metrics.operator_group("filter-1", "Filter").counter("droppedElements")
    >>> dropped.inc(3)
    >>> list(metrics.snapshot()["c"].values())
    [3]
    >>> metrics.snapshot()
    {}
    """

    def __init__(self, variables: Mapping[str, str] | None = None, formats: ScopeFormats | None = None) -> None:
        self.variables = dict(variables or {})
        self.formats = formats or ScopeFormats.from_configuration({})
        self._metrics: dict[str, Metric] = {}
        self._sent: dict[str, object] = {}
        self._groups: dict[str, TaskMetricGroup] = {}
        self._names: dict[str, str] = {}

    def operator_group(self, uid: str, name: str) -> TaskMetricGroup:
        """Return the group of an operator. The operator's user function gets this group."""
        if uid not in self._groups:
            self._names[uid] = name
        return self._root(uid, ScopeKind.OPERATOR, {"operator_id": uid, "operator_name": name})

    def _root(self, uid: str, kind: ScopeKind, extra: Mapping[str, str]) -> TaskMetricGroup:
        group = self._groups.get(uid)
        if group is None:
            variables = {**self.variables, **extra}
            group = TaskMetricGroup(self, uid, (), variables, self.formats.components(kind, variables))
            self._groups[uid] = group
        return group

    def register(self, key: MetricKey, metric: M) -> M:
        """Register a metric under its key. If a metric of the same type already has this key, return that metric. A gauge replaces a gauge.

        If a metric of another type has this key, log a warning. The new metric then works but is not reported, because a metric must not
        fail a job.
        """
        text = encode_key(key)
        known = self._metrics.get(text)
        if known is None or (isinstance(metric, Gauge) and isinstance(known, Gauge)):
            self._metrics[text] = metric
            return metric
        if isinstance(known, type(metric)):
            return known
        logger.warning(
            "operator %s: the metric name '%s' is taken by a %s; the %s of that name is not reported",
            key.operator,
            key.name,
            type(known).__name__,
            type(metric).__name__,
        )
        return metric

    def snapshot(self) -> dict[str, dict[str, object]]:
        """Return the changes since the last call, in the form that the module describes. The result is empty if nothing has changed."""
        sent = self._sent
        result: dict[str, dict[str, object]] = {}
        if self._names:
            result["names"] = dict(self._names)
            self._names.clear()
        for key, metric in self._metrics.items():
            version = metric.version()
            if sent.get(key) != version:
                sent[key] = version
                result.setdefault(metric.section, {})[key] = metric.wire(version)
        return result


class TaskMetricGroup(MetricGroup):
    """A group in a `TaskMetrics`."""

    def __init__(
        self,
        metrics: TaskMetrics,
        operator: str,
        groups: tuple[tuple[str, str | None], ...],
        variables: Mapping[str, str],
        components: Sequence[str],
    ) -> None:
        self._metrics = metrics
        self._operator = operator
        self._path = groups
        self._variables = variables
        self._components = list(components)

    def add_group(self, name: str, extra: str | None = None) -> TaskMetricGroup:
        variables = self._variables if extra is None else {**self._variables, name: extra}
        components = [*self._components, name] if extra is None else [*self._components, name, extra]
        return TaskMetricGroup(self._metrics, self._operator, (*self._path, (name, extra)), variables, components)

    def counter(self, name: str) -> Counter:
        return self._metrics.register(self._key(name), Counter())

    def gauge(self, name: str, obj: Callable[[], object]) -> None:
        self._metrics.register(self._key(name), Gauge(obj))

    def meter(self, name: str, time_span_in_seconds: int = 60) -> Meter:
        return self._metrics.register(self._key(name), Meter(time_span_in_seconds))

    def distribution(self, name: str) -> Distribution:
        return self._metrics.register(self._key(name), Distribution())

    def get_scope_components(self) -> list[str]:
        return list(self._components)

    def get_all_variables(self) -> dict[str, str]:
        return {f"<{name}>": value for name, value in self._variables.items()}

    def get_metric_identifier(self, metric_name: str) -> str:
        return self._metrics.formats.identifier(self._components, metric_name)

    def _key(self, name: str) -> MetricKey:
        return MetricKey(self._operator, self._path, name)
