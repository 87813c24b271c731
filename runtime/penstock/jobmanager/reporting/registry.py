"""The configuration of reporters, as in Flink: names, then settings below each name."""

from __future__ import annotations

import importlib
import logging
import re
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from penstock.common.config import options
from penstock.common.configuration import Configuration
from penstock.common.errors import InvalidJob
from penstock.common.time import parse_duration
from penstock.metrics.reporter import (
    LOGS_GROUP,
    METRICS_GROUP,
    TRACES_GROUP,
    LogReporter,
    MetricReporter,
    Reporter,
    TraceReporter,
)

logger = logging.getLogger(__name__)

R = TypeVar("R", bound=Reporter)

_OURS = {
    METRICS_GROUP: {"otel": "penstock.jobmanager.reporting.otel:OtelMetricReporter"},
    TRACES_GROUP: {"otel": "penstock.jobmanager.reporting.otel:OtelTraceReporter"},
    LOGS_GROUP: {"otel": "penstock.jobmanager.reporting.otel_logs:OtelLogReporter"},
}
"""Reporters that are included in Penstock."""
_FLINKS = {
    "org.apache.flink.metrics.otel.OpenTelemetryMetricReporterFactory": "otel",
    "org.apache.flink.traces.otel.OpenTelemetryTraceReporterFactory": "otel",
}
_SERVED = ("prometheus", "prom", "promgateway", "prometheusreporter", "prometheusreporterfactory")
"""Names of Prometheus reporters in Flink's configurations. `GET /metrics` is always available, so they are ignored."""
_INTERVAL = timedelta(seconds=10)
_CLASS = ("class", "factory.class")


@dataclass(frozen=True)
class Chosen(Generic[R]):
    """Reporter that is open. `interval_s` is the time between two reports in seconds."""

    name: str
    reporter: R
    interval_s: float


def metric_reporters(conf: Configuration) -> list[Chosen[MetricReporter]]:
    """Open the configured reporters of metrics.

    Raises:
        InvalidJob: a reporter does not exist, or a setting is invalid.
    """
    names = _names(conf.get(options.METRICS_REPORTERS))
    found = (_opened(MetricReporter, METRICS_GROUP, f"metrics.reporter.{name}.", name, conf) for name in names)
    return [chosen for chosen in found if chosen is not None]


def trace_reporters(conf: Configuration) -> list[Chosen[TraceReporter]]:
    """Open the configured reporters of traces, with the same errors."""
    names = _names(conf.get(options.TRACES_REPORTERS))
    found = (_opened(TraceReporter, TRACES_GROUP, f"traces.reporter.{name}.", name, conf) for name in names)
    return [chosen for chosen in found if chosen is not None]


def log_reporters(conf: Configuration) -> list[Chosen[LogReporter]]:
    """Open the configured reporters of logs, with the same errors."""
    names = _names(conf.get(options.LOGS_REPORTERS))
    found = (_opened(LogReporter, LOGS_GROUP, f"logs.reporter.{name}.", name, conf) for name in names)
    return [chosen for chosen in found if chosen is not None]


def _names(text: str | None) -> list[str]:
    """Return the names of reporters in a setting, without Prometheus reporters.

    >>> _names("otel, mine;Prom")
    ['otel', 'mine']
    """
    named = [name.strip() for name in re.split("[,;]", text or "") if name.strip()]
    return [name for name in dict.fromkeys(named) if name.lower() not in _SERVED]


def _opened(kind: type[Any], group: str, prefix: str, name: str, conf: Configuration) -> Chosen[Any] | None:
    """Open a reporter. Return None if the reporter cannot be opened and the job is not the cause."""
    settings = {k.removeprefix(prefix): v for k, v in conf.to_dict().items() if k.startswith(prefix)}
    key, name_or_class = next(
        ((f"{prefix}{k}", settings[k]) for k in _CLASS if settings.get(k)), (options.METRICS_REPORTERS.key, name)
    )
    reporter = _create(group, _FLINKS.get(name_or_class, name_or_class), key)
    if not isinstance(reporter, kind):
        raise InvalidJob(
            f"{key} names {name_or_class}, which creates a {type(reporter).__name__}",
            remedy=f"use a class that inherits penstock.metrics.reporter.{kind.__name__}",
        )
    interval = _interval(f"{prefix}interval", settings.pop("interval", ""))
    try:
        reporter.open(settings)
    except InvalidJob:
        raise
    except Exception:
        logger.warning("reporter %s cannot be opened and gets no data", name, exc_info=True)
        return None
    return Chosen(name, reporter, interval)


def _interval(key: str, text: str) -> float:
    try:
        found = (parse_duration(text) if text else _INTERVAL).total_seconds()
    except ValueError as error:
        raise InvalidJob(f"{key} is {text!r}: {error}", remedy="write a duration such as 10s") from None
    if found <= 0:
        raise InvalidJob(f"{key} is {text!r}", remedy="write a duration above 0, such as 10s")
    return found


def _create(group: str, name_or_class: str, key: str) -> object:
    """Create a reporter by the name of an entry point, or from `module:Class`."""
    found = {point.name: point for point in entry_points(group=group)}
    known = {name: EntryPoint(name, where, group) for name, where in _OURS[group].items()} | found
    try:
        if name_or_class in known:
            return known[name_or_class].load()()
        module, colon, name = name_or_class.partition(":")
        if colon:
            return getattr(importlib.import_module(module), name)()
    except (ImportError, AttributeError) as error:
        raise InvalidJob(
            f"{key}: the reporter {name_or_class} cannot be loaded: {error}",
            remedy="install its package where the JobManager runs, also in the image of the job; otel's: pip install 'penstock-streaming[otel]'",
        ) from error
    raise InvalidJob(
        f"{key}: the reporter {name_or_class} does not exist",
        remedy=f"existing reporters: {', '.join(sorted(known))}. Name your own reporter by its entry point in {group}, or as "
        "module:Class",
    )
