"""HTTP: a server of Python's library that serves a file of lines; httpx without Penstock."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx

from benchmarks.connectors import job
from benchmarks.connectors.case import Case
from benchmarks.connectors.cost import Cost, consumed
from benchmarks.connectors.records import FIELDS, decode, messages
from penstock.datastream.connectors.http import HttpPollSource
from penstock.datastream.formats.json import JsonLinesFormat
from tools.servers.base.process import ServerProcess
from tools.servers.base.server import HOST


@contextmanager
def http(folder: Path) -> Iterator[list[Case]]:
    with _Site(folder) as site:
        yield [
            Case(
                "http.source",
                lambda count: _read(site, count),
                lambda count: consumed(count, _lines(site.filled(count))),
                "httpx.get and a loop over the lines with msgspec",
                share=0.3,
            )
        ]


class _Site(ServerProcess):
    """A server of the files in its folder."""

    title = "http.server"

    def _command(self) -> list[str]:
        return [sys.executable, "-m", "http.server", str(self.port), "--bind", HOST, "--directory", str(self.root)]

    def _responds(self) -> bool:
        try:
            return httpx.get(f"http://{HOST}:{self.port}/", timeout=2).is_success
        except httpx.TransportError:
            return False

    def filled(self, count: int) -> str:
        """Return the URL of this many readings."""
        path = self.root / f"{count}.jsonl"
        if not path.exists():
            path.write_bytes(b"\n".join(messages(count)))
        return f"http://{HOST}:{self.port}/{path.name}"


def _read(site: _Site, count: int) -> Cost:
    """Read one response. The source has sent another request before the job started."""
    source = HttpPollSource(site.filled(count), JsonLinesFormat(FIELDS), interval=timedelta(seconds=1), polls=1)
    return job.read(source, count)


def _lines(url: str) -> Iterator[list[Any]]:
    yield [decode(line) for line in httpx.get(url, timeout=30).content.splitlines()]
