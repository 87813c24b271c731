"""OpenSearch: a node; bulk requests by httpx without Penstock."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from benchmarks.connectors import job
from benchmarks.connectors.case import Case
from benchmarks.connectors.cost import Cost, timed
from benchmarks.connectors.records import encode, expect, parts, rows
from penstock.datastream.connectors.opensearch import OpenSearchSink
from tools.servers.opensearch import OpenSearchServer

AT_A_TIME = 1_000
"""Actions per bulk request, as in Penstock."""


@contextmanager
def opensearch(folder: Path) -> Iterator[list[Case]]:
    with OpenSearchServer(folder) as server:
        numbers = itertools.count()
        yield [
            Case(
                "opensearch.sink",
                lambda count: _write(server, f"readings-{next(numbers)}", count),
                lambda count: _bare(server, f"readings-{next(numbers)}", count),
                "httpx with msgspec: bulks of 1,000, answers looked through",
                share=0.1,
            )
        ]


def _action(row: dict[str, Any]) -> dict[str, Any]:
    return {"_id": str(row["ts"]), "_source": row}


def _write(server: OpenSearchServer, index: str, count: int) -> Cost:
    cost = job.write(OpenSearchSink([server.url], _action, index=index), count)
    _check(server, index, count)
    return cost


def _bare(server: OpenSearchServer, index: str, count: int) -> Cost:
    with httpx.Client(timeout=60) as client:
        cost = timed(count, partial(_send, client, f"{server.url}/{index}/_bulk", count))
    _check(server, index, count)
    return cost


def _send(client: httpx.Client, url: str, count: int) -> None:
    for part in parts(rows(count), AT_A_TIME):
        lines = [line for row in part for line in (encode({"index": {"_id": str(row["ts"])}}), encode(row))]
        headers = {"Content-Type": "application/x-ndjson"}
        answer = client.post(url, content=b"\n".join(lines) + b"\n", headers=headers)
        failed = [item for item in answer.json()["items"] if item["index"]["status"] >= 300]
        expect(failed, [], "actions that were refused")


def _check(server: OpenSearchServer, index: str, count: int) -> None:
    server.ask("POST", f"/{index}/_refresh")
    expect(server.ask("GET", f"/{index}/_count")["count"], count, "documents written")
    server.ask("DELETE", f"/{index}")
