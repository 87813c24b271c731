"""Polling of a URL, with a real server in this process."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from penstock.common.errors import InvalidJob, RecordFormatError, SourceError
from penstock.connectors.core.source import ReadBounds, ReaderContext
from penstock.connectors.http import source as http
from penstock.datastream.connectors.http import HttpPollSource
from penstock.datastream.formats.json import JsonLinesFormat

FIELDS = {"id": int}


class Site:
    """A server that returns the alerts after a number. `status` has error codes that it returns first, in order."""

    def __init__(self) -> None:
        self.alerts: list[int] = []
        self.status: list[int] = []
        self.etag = ""
        self.most = 1000
        self.requests: list[tuple[str, dict[str, str]]] = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.requests.append((self.path, dict(self.headers)))
                status, body = site.answer(self)
                self.send_response(status)
                if site.etag:
                    self.send_header("ETag", site.etag)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def answer(self, request: Any) -> tuple[int, bytes]:
        if self.status:
            return self.status.pop(0), b"not now"
        if self.etag and request.headers.get("If-None-Match") == self.etag:
            return 304, b""
        query = parse_qs(urlsplit(request.path).query)
        after = int(query.get("after", ["-1"])[0])
        found = [{"id": n} for n in self.alerts if n > after][: self.most]
        if request.path.startswith("/lines"):
            return 200, b"\n".join(json.dumps(one).encode() for one in found)
        return 200, json.dumps({"data": {"alerts": found}}).encode()


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.server.shutdown()
    made.server.server_close()


def by_cursor(site: Site, **options: Any) -> HttpPollSource:
    url = f"{site.url}/alerts?after={{cursor}}"
    sent = {"interval": 10, "records": "data.alerts", "cursor": lambda alert: alert["id"], "start": -1}
    return HttpPollSource(url, JsonLinesFormat(FIELDS), **{**sent, **options})


def read(source: HttpPollSource, count: int, position: Any = None, most: int = 3) -> tuple[list[int], Any]:
    """Return `count` records, and the position after them, converted to JSON and back."""
    [split] = source.create_enumerator().discover()
    reader = source.create_reader(ReaderContext(0, 1, "in")).open_split(split, position)
    values: list[int] = []
    deadline = time.monotonic() + 10
    while len(values) < count and not reader.finished:
        assert time.monotonic() < deadline, values
        batch = reader.read(ReadBounds(max_records=min(most, count - len(values))))
        values += [] if batch is None else [value["id"] for value in batch.rows().values]
        time.sleep(0.001)
    reader.close()
    return values, json.loads(json.dumps(reader.position))


def test_each_record_is_read_once_from_any_position(site: Site) -> None:
    site.alerts, site.most = list(range(40)), 7
    source = by_cursor(site)
    source.validate()
    seen: list[int] = []
    position: Any = None
    while len(seen) < 40:
        values, position = read(source, min(5, 40 - len(seen)), position)
        seen += values
    assert seen == list(range(40))
    site.alerts.append(99)
    assert read(source, 1, position)[0] == [99]


def test_every_response_without_a_cursor_is_read_unless_it_is_unchanged(site: Site) -> None:
    site.alerts = [1, 2]
    source = HttpPollSource(f"{site.url}/lines", JsonLinesFormat(FIELDS), interval=1, polls=3)
    assert source.bounded
    assert read(source, 100)[0] == [1, 2] * 3
    site.etag = '"v1"'
    values, position = read(source, 100)
    assert values == [1, 2]
    assert position == {"cursor": None, "etag": '"v1"', "etag_of": "", "polls": 3}
    assert site.requests[-1][1]["If-None-Match"] == '"v1"'


def test_an_etag_is_sent_only_with_the_cursor_of_its_request(site: Site) -> None:
    site.alerts, site.most, site.etag = list(range(25)), 10, 'W/"v17"'
    source = by_cursor(site, polls=6)
    values, position = read(source, 13)
    rest, position = read(source, 100, position)
    assert values + rest == site.alerts
    sent = [(path.partition("=")[2], headers.get("If-None-Match")) for path, headers in site.requests]
    assert sent == [("-1", None), ("9", None), ("12", None), ("22", None), ("24", None), *[("24", site.etag)] * 2]
    site.alerts, site.etag = list(range(27)), 'W/"v18"'
    position["polls"] = 0
    assert read(source, 2, position)[0] == [25, 26]


def test_a_server_that_is_lost_for_a_while_is_retried(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_PAUSE_S", 0.01)
    site.alerts, site.status = [1], [503, 429, 500]
    source = by_cursor(site)
    assert read(source, 1)[0] == [1]
    monkeypatch.setattr(http, "PATIENCE_S", 0.05)
    site.status = [503] * 1000
    with pytest.raises(SourceError, match="/alerts returned the status 503"):
        read(source, 1)


def test_a_permanent_error_is_raised_at_once(site: Site, tmp_path: Path) -> None:
    site.status = [401]
    with pytest.raises(SourceError, match="returned the status 401: not now"):
        by_cursor(site).validate()
    with pytest.raises(RecordFormatError, match="KeyError: 'items'"):
        by_cursor(site, records="items").validate()
    site.alerts = [1]
    with pytest.raises(RecordFormatError, match="Expected `str`"):
        HttpPollSource(f"{site.url}/lines", JsonLinesFormat({"id": str}), interval=1).validate()
    with pytest.raises(SourceError, match=r"header_files\['Authorization'\]=.* cannot be read"):
        by_cursor(site, header_files={"Authorization": str(tmp_path / "none")}).validate()
    site.server.shutdown()
    site.server.server_close()
    with pytest.raises(SourceError, match="ConnectError"):
        by_cursor(site).validate()
    with pytest.raises(InvalidJob, match="on_error='side-output'"):
        HttpPollSource("http://x/", JsonLinesFormat(FIELDS, on_error="side-output"), interval=1)
    with pytest.raises(InvalidJob, match=r"does not have \{cursor\}"):
        HttpPollSource("http://x/", JsonLinesFormat(FIELDS), interval=1, cursor=str)


def test_secrets_are_read_from_files(site: Site, tmp_path: Path) -> None:
    token = tmp_path / "token"
    source = by_cursor(site, headers={"Accept": "application/json"}, header_files={"Authorization": str(token)})
    for secret in ("Bearer a", "Bearer b"):
        token.write_text(f"{secret}\n")
        source.validate()
        assert site.requests[-1][1]["Authorization"] == secret
    assert site.requests[-1][1]["Accept"] == "application/json"
