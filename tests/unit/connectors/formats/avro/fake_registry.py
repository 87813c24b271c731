"""A fake schema registry that can fail."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Registry:
    """A fake registry that answers like Confluent's."""

    def __init__(self) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.failures = 0
        self.cut_off = 0
        self.requests: list[str] = []
        self.authorization = ""
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                registry.requests.append(f"{self.command} {self.path}")
                code, answer_body = registry.answer(self.command, self.path, json.loads(body or b"{}"), self.headers)
                data = json.dumps(answer_body).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(data) + bool(registry.cut_off)))
                registry.cut_off -= bool(registry.cut_off)
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = answer  # noqa: N815 - the library's names

            def log_message(self, format: str, *arguments: Any) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def add(self, subject: str, schema: str, **more: Any) -> int:
        id = len(self.schemas) + 1
        self.schemas[id] = {"schema": schema, **more}
        self.subjects.setdefault(subject, []).append(id)
        return id

    def answer(self, method: str, path: str, body: dict[str, Any], headers: Any) -> tuple[int, Any]:
        if self.failures:
            self.failures -= 1
            return 503, {"error_code": 50301, "message": "no leader"}
        if self.authorization and headers.get("Authorization") != self.authorization:
            return 401, {"error_code": 401, "message": "Unauthorized"}
        match path.partition("?")[0].strip("/").split("/"):
            case ["schemas", "ids", id] if int(id) in self.schemas:
                return 200, self.schemas[int(id)]
            case ["schemas", "ids", id]:
                return 404, {"error_code": 40403, "message": f"Schema {id} not found"}
            case ["subjects", subject, "versions", version]:
                return 200, self.schemas[self.subjects[subject][int(version) - 1]]
            case ["subjects", subject, *rest]:
                for number in self.subjects.get(subject, ()):
                    if self.schemas[number]["schema"] == body["schema"]:
                        return 200, {"id": number}
                if rest:
                    return 200, {"id": self.add(subject, body["schema"])}
                return 404, {"error_code": 40403, "message": "Schema not found"}
        return 404, {"error_code": 404, "message": f"HTTP 404 Not Found {method}"}
