"""Metrics and traces for an OpenTelemetry collector, by OTLP over HTTP: the reporters named `otel`.

The name of a metric is `penstock.<scope>.<groups>.<name>`, with all variables as attributes, as in Prometheus. A distribution is a gauge
with an attribute `quantile`, and two more metrics, `.count` and `.sum`. If a setting is missing, OpenTelemetry's environment variables
apply (`OTEL_EXPORTER_OTLP_HEADERS` for a token, `…_CERTIFICATE`, `OTEL_RESOURCE_ATTRIBUTES`).
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

import penstock
from penstock.common.errors import InvalidJob
from penstock.common.time import parse_duration
from penstock.metrics.prometheus import QUANTILES, labels_of, scope_parts
from penstock.metrics.reading import Reading
from penstock.metrics.reporter import MetricReporter, Span, TraceReporter
from penstock.metrics.store import ScopeReadings

_SCOPE = InstrumentationScope("penstock", getattr(penstock, "__version__", ""))
_DEFAULT = "http://localhost:4318"
_TIMEOUT_S = 10.0


class OtelMetricReporter(MetricReporter):
    """Reporter of metrics. Settings: `exporter.endpoint` (`http://localhost:4318`), `exporter.timeout` (10 s), `service.name`,
    `service.version`.
    """

    def open(self, settings: Mapping[str, str]) -> None:
        endpoint, timeout_s = exporter_settings(settings, "v1/metrics")
        self._resource = resource_of(settings)
        self._exporter = OTLPMetricExporter(endpoint=endpoint, timeout=timeout_s)
        self._began = time.time_ns()

    def report(self, scopes: Sequence[ScopeReadings]) -> None:
        points: dict[tuple[str, bool], list[NumberDataPoint]] = defaultdict(list)
        now = time.time_ns()
        for scope in scopes:
            for name, is_count, labels, value in _values(scope):
                points[name, is_count].append(NumberDataPoint(labels, self._began, now, value))
        metrics = [
            Metric(name, "", "", _data(of, is_count=is_count))
            for (name, is_count), of in sorted(points.items(), key=_first)
        ]
        within = ResourceMetrics(self._resource, [ScopeMetrics(_SCOPE, metrics, "")], "")
        if self._exporter.export(MetricsData([within])) is not MetricExportResult.SUCCESS:
            raise ConnectionError("the collector did not accept the metrics. The log of opentelemetry has the reason")

    def close(self) -> None:
        self._exporter.shutdown()


def _first(entry: tuple[tuple[str, bool], Any]) -> tuple[str, bool]:
    return entry[0]


def _values(scope: ScopeReadings) -> Iterator[tuple[str, bool, dict[str, str], float]]:
    """Yield each value as (name, whether the value only grows, attributes, value). Values that are not numbers are left out."""
    for reading in scope.readings:
        labels = labels_of(scope, reading)
        parts = ("penstock", *scope_parts(scope, reading), *(g for g, _ in reading.key.groups), reading.key.name)
        name = plain_text(".".join(parts))
        if isinstance(reading, Reading):
            if isinstance(reading.value, int | float):
                yield name, reading.kind == "counter", labels, _number(reading.value)
            continue
        for quantile, field in QUANTILES:
            yield name, False, {**labels, "quantile": quantile}, getattr(reading.recent, field)
        yield f"{name}.count", True, labels, reading.count
        yield f"{name}.sum", False, labels, reading.sum


_WHOLE = range(-(2**63), 2**63)


def _number(value: float) -> float:
    """Convert a number for protobuf, because an invalid value would make the whole report fail. A bool is 1 or 0.

    >>> _number(True), _number(2**63)
    (1, 9.223372036854776e+18)
    """
    if isinstance(value, float):
        return value
    return int(value) if value in _WHOLE else float(value)


def plain_text(text: str) -> str:
    """Replace invalid Unicode in a text, because protobuf refuses it. File names may contain invalid Unicode."""
    return text.encode(errors="replace").decode()


def _data(points: Sequence[NumberDataPoint], *, is_count: bool) -> Gauge | Sum:
    return Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True) if is_count else Gauge(points)


class OtelTraceReporter(TraceReporter):
    """Reporter of traces, with the settings of `OtelMetricReporter`. A span with its steps is one trace."""

    def open(self, settings: Mapping[str, str]) -> None:
        endpoint, timeout_s = exporter_settings(settings, "v1/traces")
        self._resource = resource_of(settings)
        self._exporter = OTLPSpanExporter(endpoint=endpoint, timeout=timeout_s)
        self._ids = RandomIdGenerator()

    def report(self, spans: Sequence[Span]) -> None:
        otel_spans = [one for span in spans for one in self._to_otel(span, self._ids.generate_trace_id(), None)]
        if self._exporter.export(otel_spans) is not SpanExportResult.SUCCESS:
            raise ConnectionError("the collector did not accept the traces. The log of opentelemetry has the reason")

    def _to_otel(self, span: Span, trace: int, parent: SpanContext | None) -> Iterator[ReadableSpan]:
        context = SpanContext(
            trace, self._ids.generate_span_id(), is_remote=False, trace_flags=TraceFlags.get_default()
        )
        yield ReadableSpan(
            plain_text(span.name),
            context,
            parent,
            self._resource,
            dict(span.attributes),
            kind=SpanKind.INTERNAL,
            status=Status(StatusCode.ERROR, plain_text(span.error)) if span.error else Status(StatusCode.OK),
            start_time=span.start * 1_000_000,
            end_time=span.end * 1_000_000,
            instrumentation_scope=_SCOPE,
        )
        for step in span.steps:
            yield from self._to_otel(step, trace, context)

    def close(self) -> None:
        self._exporter.shutdown()  # type: ignore[no-untyped-call]


def resource_of(settings: Mapping[str, str]) -> Resource:
    configured = {key: settings[key] for key in ("service.name", "service.version") if settings.get(key)}
    return Resource.create({"service.name": "penstock"} | configured)


def exporter_settings(settings: Mapping[str, str], path: str) -> tuple[str | None, float]:
    """Return the endpoint (None means from the environment) and the timeout in seconds."""
    protocol = settings.get("exporter.protocol", "http").lower()
    if protocol not in ("http", "http/protobuf"):
        raise InvalidJob(
            f"exporter.protocol of the reporter otel is {protocol!r}",
            remedy="use http, and the port of the collector for http (4318)",
        )
    text = settings.get("exporter.timeout", "")
    try:
        timeout_s = parse_duration(text).total_seconds() if text else _TIMEOUT_S
    except ValueError as error:
        raise InvalidJob(
            f"exporter.timeout of the reporter otel: {error}", remedy="write a duration such as 10s"
        ) from None
    endpoint = settings.get("exporter.endpoint", "")
    if not endpoint:
        return None, timeout_s
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidJob(
            f"exporter.endpoint of the reporter otel is {endpoint!r}", remedy=f"write a URL such as {_DEFAULT}"
        )
    return endpoint if parts.path.strip("/") else f"{endpoint.rstrip('/')}/{path}", timeout_s
