"""The content of a `MetricStore` in Prometheus' text format (version 0.0.4).

Names follow Flink's reporter: `penstock_<scope>_<groups>_<name>`, with all scope variables as labels:

    penstock_taskmanager_job_task_numRecordsIn{job_id="…",job_name="…",task_name="…",subtask_index="0",…} 1234
    penstock_taskmanager_job_task_operator_MyMetrics_hits{…,operator_id="f-1",operator_name="Filter"} 3

Two metrics never share a name by accident. Prometheus allows fewer characters than Penstock, so `a.b` and `a_b` would both become `a_b`. A
name also cannot be a gauge and a summary at the same time. In such a case, the metric whose name needed no change keeps the name. The
others get a suffix that is derived from their real name and type, so the suffix is always the same.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from penstock.metrics.reading import AnyReading, JobManagerScope, JobScope, Reading, TaskManagerScope

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from penstock.metrics.metricbase import Scalar
    from penstock.metrics.store import ScopeReadings

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

QUANTILES = (("0.5", "p50"), ("0.75", "p75"), ("0.95", "p95"), ("0.98", "p98"), ("0.99", "p99"), ("0.999", "p999"))


class _Family(NamedTuple):
    """Series that share a name, before the name is converted for Prometheus."""

    parts: tuple[str, ...]
    kind: str

    @property
    def plain_name(self) -> str:
        return re.sub(r"[^a-zA-Z0-9_]", "_", "_".join(self.parts))

    @property
    def long_name(self) -> str:
        digest = hashlib.sha256("\0".join((*self.parts, self.kind)).encode()).hexdigest()
        return f"{self.plain_name}_{digest[:8]}"

    def occupies(self, name: str) -> set[str]:
        """Return the names of the family's series if the family has the name `name`."""
        return {name, f"{name}_sum", f"{name}_count"} if self.kind == "summary" else {name}


class _Point(NamedTuple):
    suffix: str
    labels: Mapping[str, str]
    value: float


def exposition(scopes: Iterable[ScopeReadings], *, prefix: str = "penstock") -> str:
    """Return the page that Prometheus scrapes. Values that are not numbers are omitted. True and false become 1 and 0."""
    families: dict[_Family, list[_Point]] = defaultdict(list)
    for scope in scopes:
        for reading in scope.readings:
            points = list(_points(reading, labels_of(scope, reading)))
            if points:
                kind = reading.kind if isinstance(reading, Reading) else "summary"
                groups = (name for name, _ in reading.key.groups)
                parts = (prefix, *scope_parts(scope, reading), *groups, reading.key.name)
                families[_Family(parts, kind)] += points
    names = _names(families)
    lines: list[str] = []
    for family in sorted(families, key=names.__getitem__):
        name = names[family]
        lines.append(f"# TYPE {name} {family.kind}")
        lines += (f"{name}{p.suffix}{_label_text(p.labels)} {_number(p.value)}" for p in families[family])
    return "".join(f"{line}\n" for line in lines)


def _names(families: Iterable[_Family]) -> dict[_Family, str]:
    names: dict[_Family, str] = {}
    taken: set[str] = set()
    for family in sorted(families, key=lambda f: (f.plain_name != "_".join(f.parts), f)):
        plain = family.plain_name
        name = family.long_name if family.occupies(plain) & taken else plain
        taken |= family.occupies(name)
        names[family] = name
    return names


def scope_parts(scope: ScopeReadings, reading: AnyReading) -> tuple[str, ...]:
    """Return the parts in front of a metric's own name."""
    if isinstance(scope.scope, JobManagerScope):
        return ("jobmanager",)
    if isinstance(scope.scope, TaskManagerScope):
        return ("taskmanager",)
    if isinstance(scope.scope, JobScope):
        return ("jobmanager", "job")
    task = ("taskmanager", "job", "task")
    return (*task, "operator") if reading.key.operator else task


def _points(reading: AnyReading, labels: Mapping[str, str]) -> Iterator[_Point]:
    if isinstance(reading, Reading):
        value = _numeric(reading.value)
        if value is not None:
            yield _Point("", labels, value)
        return
    for quantile, name in QUANTILES:
        yield _Point("", {**labels, "quantile": quantile}, getattr(reading.recent, name))
    yield _Point("_sum", labels, reading.sum)
    yield _Point("_count", labels, reading.count)


def labels_of(scope: ScopeReadings, reading: AnyReading) -> dict[str, str]:
    """Return all variables as labels with names that Prometheus allows."""
    labels = dict(scope.labels)
    operator = reading.key.operator
    if operator:
        labels["operator_id"] = operator
        labels["operator_name"] = scope.operator_names.get(operator, operator)
    for variable, value in reading.key.groups:
        if value is not None:
            labels[_label_name(variable, labels)] = value
    return labels


def _label_name(variable: str, taken: Mapping[str, str]) -> str:
    """Return a label name that is allowed and unused. Names that start with two underscores belong to Prometheus."""
    name = re.sub(r"[^a-zA-Z0-9_]", "_", variable)
    if not re.match(r"[a-zA-Z]", name) or name in ("quantile", "le"):
        name = f"user_{name}"
    while name in taken:
        name += "_"
    return name


def _label_text(labels: Mapping[str, str]) -> str:
    text = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{text}}}" if text else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _numeric(value: Scalar) -> float | None:
    return value if isinstance(value, (bool, int, float)) else None


def _number(value: float) -> str:
    if isinstance(value, int):
        return str(int(value))
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(value)
