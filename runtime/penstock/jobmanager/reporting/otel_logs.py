"""Logs for an OpenTelemetry collector, by OTLP over HTTP: the reporter of logs named `otel`. Its settings are those of `reporting.otel`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk._logs.export import LogRecordExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from penstock.jobmanager.reporting.otel import exporter_settings, plain_text, resource_of
from penstock.metrics.reporter import LogEntry, LogReporter

_SEVERITIES = {
    "TRACE": SeverityNumber.TRACE,
    "DEBUG": SeverityNumber.DEBUG,
    "INFO": SeverityNumber.INFO,
    "WARN": SeverityNumber.WARN,
    "WARNING": SeverityNumber.WARN,
    "ERROR": SeverityNumber.ERROR,
    "CRITICAL": SeverityNumber.FATAL,
    "FATAL": SeverityNumber.FATAL,
}
_TRACEBACK = "Traceback (most recent call last)"


class OtelLogReporter(LogReporter):
    """Reporter of logs. The logger is the scope. A traceback is the attribute `exception.stacktrace`."""

    def open(self, settings: Mapping[str, str]) -> None:
        endpoint, timeout_s = exporter_settings(settings, "v1/logs")
        self._resource = resource_of(settings)
        self._exporter = OTLPLogExporter(endpoint=endpoint, timeout=timeout_s)

    def report(self, entries: Sequence[LogEntry]) -> None:
        if self._exporter.export([self._to_otel(entry) for entry in entries]) is not LogRecordExportResult.SUCCESS:
            raise ConnectionError("the collector did not accept the logs. The log of opentelemetry has the reason")

    def _to_otel(self, entry: LogEntry) -> ReadableLogRecord:
        attributes = {name: plain_text(value) for name, value in entry.labels.items()}
        body = entry.message
        if _TRACEBACK in entry.details:
            attributes["exception.stacktrace"] = plain_text(entry.details)
        elif entry.details:
            body = f"{body}\n{entry.details}"
        record = LogRecord(
            timestamp=entry.time * 1_000_000,
            observed_timestamp=time.time_ns(),
            severity_text=entry.level,
            severity_number=_SEVERITIES.get(entry.level, SeverityNumber.UNSPECIFIED),
            body=plain_text(body),
            attributes=attributes,
        )
        return ReadableLogRecord(record, self._resource, InstrumentationScope(plain_text(entry.logger)))

    def close(self) -> None:
        self._exporter.shutdown()  # type: ignore[no-untyped-call]
