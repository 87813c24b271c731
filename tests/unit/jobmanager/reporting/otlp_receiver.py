"""A double of a collector: an HTTP server that receives OTLP's protobuf and decodes it with OpenTelemetry's own messages."""

from __future__ import annotations

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

_REQUESTS: dict[str, Any] = {
    "/v1/metrics": ExportMetricsServiceRequest,
    "/v1/traces": ExportTraceServiceRequest,
    "/v1/logs": ExportLogsServiceRequest,
}


class OtlpReceiver:
    """A server that listens until `close`. `refuses` is the number of first requests that it answers with an error."""

    def __init__(self, refuses: int = 0) -> None:
        self.metrics: list[Any] = []
        """The received metrics, each with `resource_metrics`."""
        self.spans: list[Any] = []
        self.logs: list[tuple[str, Any]] = []
        """Pairs of a logger and a record."""
        self.resources: dict[str, list[dict[str, str]]] = {path: [] for path in _REQUESTS}
        """Resources by path, because the reporters of metrics and of traces send in any order."""
        self.refuses = refuses
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(receiver.take(self.path, body, self.headers.get("Content-Encoding", "")))
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def take(self, path: str, body: bytes, encoding: str) -> int:
        if self.refuses:
            self.refuses -= 1
            return 400
        request: Any = _REQUESTS[path]()
        request.ParseFromString(gzip.decompress(body) if encoding == "gzip" else body)
        fields = ("resource_metrics", "resource_spans", "resource_logs")
        for of in next(getattr(request, field) for field in fields if hasattr(request, field)):
            self.resources[path].append(attributes(of.resource))
            for scope in getattr(of, "scope_metrics", ()):
                self.metrics += list(scope.metrics)  # in one step, because the test reads concurrently
            for scope in getattr(of, "scope_spans", ()):
                self.spans += list(scope.spans)
            for scope in getattr(of, "scope_logs", ()):
                self.logs += [(scope.scope.name, record) for record in scope.log_records]
        return 200

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def attributes(of: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in of.attributes}
