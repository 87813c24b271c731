"""Export of spans to an OpenTelemetry collector with OTLP over HTTP.

A separate thread sends the spans. The export is only active if an environment variable of OpenTelemetry names a
collector. Only then are OpenTelemetry's packages (`penstock-streaming[otel]`) imported. If they are missing, the operator logs
a warning and sends no traces. The queue holds some thousand spans. Spans that do not fit, or that the collector does
not accept, are dropped.
"""

from __future__ import annotations

import logging
import os
import threading
from typing import TYPE_CHECKING, Any, Protocol

from penstock_operator import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from penstock_operator.process.traces import Span

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
CLOSE_S = 3.0
"""Timeout in seconds for sending the remaining spans when the operator exits."""
_MICROSECOND = 1_000

log = logging.getLogger(__name__)


class SpanSink(Protocol):
    """Receiver of spans. `send` neither waits nor raises an error. `close` may wait for `CLOSE_S`."""

    def send(self, span: Span) -> None: ...

    def close(self) -> None: ...


class NoTraces:
    """Receiver that drops all spans."""

    def send(self, span: Span) -> None:
        """Drop the span."""

    def close(self) -> None:
        """Do nothing."""


def sink_of(env: Mapping[str, str] | None = None, instance: str = "") -> SpanSink:
    """Return the receiver that the environment configures. An error in the configuration does not stop the operator."""
    env = os.environ if env is None else env
    if not any(env.get(name) for name in ENDPOINTS) or env.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return NoTraces()
    try:
        return OtlpSpans(instance)
    except ImportError as error:
        log.warning("no traces are sent: %s; install penstock-streaming[otel]", error)
    except Exception as error:
        log.warning("no traces are sent: %s: %s", type(error).__name__, error)
    return NoTraces()


class OtlpSpans:
    """Sender of spans to the collector in OpenTelemetry's environment variables. The span of an operation and the spans
    of its steps form one trace.

    Args:
        instance: name of this replica of the operator.

    Raises:
        ImportError: OpenTelemetry is not installed.
    """

    def __init__(self, instance: str = "") -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

        attributes = {"service.version": __version__, "service.instance.id": instance}
        if not os.environ.get("OTEL_SERVICE_NAME"):
            attributes["service.name"] = "penstock-operator"
        self._resource = Resource.create({name: value for name, value in attributes.items() if value})
        self._ids = RandomIdGenerator()
        self._processor = BatchSpanProcessor(OTLPSpanExporter())

    def send(self, span: Span) -> None:
        """Put the span into the queue."""
        try:
            for otel_span in self._otlp_span(span, self._ids.generate_trace_id(), None):
                self._processor.on_end(otel_span)
        except Exception:
            log.warning("a trace could not be sent", exc_info=True)

    def _otlp_span(self, span: Span, trace: int, parent: Any) -> Iterator[Any]:
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope
        from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

        flags = TraceFlags(TraceFlags.SAMPLED)
        context = SpanContext(trace, self._ids.generate_span_id(), is_remote=False, trace_flags=flags)
        yield ReadableSpan(
            span.name,
            context,
            parent,
            self._resource,
            dict(span.attributes),
            kind=SpanKind.INTERNAL,
            status=Status(StatusCode.ERROR, span.error) if span.error else Status(StatusCode.OK),
            start_time=_ns(span.start),
            end_time=_ns(span.end),
            instrumentation_scope=InstrumentationScope("penstock-operator", __version__),
        )
        for step in span.steps:
            yield from self._otlp_span(step, trace, context)

    def close(self) -> None:
        """Send the remaining spans, and wait for at most `CLOSE_S`."""
        ending = threading.Thread(target=self._processor.shutdown, name="last-traces", daemon=True)
        ending.start()
        ending.join(CLOSE_S)


def _ns(moment: datetime) -> int:
    return round(moment.timestamp() * 1e6) * _MICROSECOND
