"""Logs and standard output of the JobManager and of TaskManagers. The paths are Flink's. `from` and the headers are additions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query, Response
from fastapi.responses import PlainTextResponse, StreamingResponse

from penstock.rest import models
from penstock.rest.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.common.logs.log_file import LogPart
    from penstock.rest.gateway import ClusterGateway

PART_BYTES = 128 * 1024
"""Maximum number of bytes that are read at once."""
From = Annotated[
    int | None, Query(alias="from", description="Position of the first byte. A negative number counts from the end.")
]


def log_routes(gateway: ClusterGateway) -> APIRouter:
    router = APIRouter(tags=["logs"])
    _add(router, gateway, "/jobmanager", "jobmanager")
    _add(router, gateway, "/taskmanagers/{tm_id}", "taskmanager")
    return router


def _add(router: APIRouter, gateway: ClusterGateway, prefix: str, file: str) -> None:
    @router.get(f"{prefix}/logs", response_model=models.LogList)
    def listing(tm_id: str | None = None) -> models.LogList:
        found = gateway.logs(tm_id)
        return models.LogList(logs=[models.LogEntry(name=f.name, size=f.size, mtime=f.modified_at) for f in found])

    @router.get(f"{prefix}/logs/{{name}}", response_class=PlainTextResponse)
    def by_name(name: str, tm_id: str | None = None, start: From = None) -> Response:
        return _text(gateway, tm_id, name, start)

    @router.get(f"{prefix}/log", response_class=PlainTextResponse)
    def log(tm_id: str | None = None, start: From = None) -> Response:
        """Return the log, as far as it is kept."""
        return _text(gateway, tm_id, _named(gateway, tm_id, ".log"), start)

    @router.get(f"{prefix}/stdout", response_class=PlainTextResponse)
    def stdout(tm_id: str | None = None, start: From = None) -> Response:
        """Return the standard output, as far as it is kept."""
        return _text(gateway, tm_id, _named(gateway, tm_id, ".out"), start)


def _named(gateway: ClusterGateway, tm_id: str | None, suffix: str) -> str:
    for file in gateway.logs(tm_id):
        if file.name.endswith(suffix):
            return file.name
    raise NotFound(
        f"no {'stdout' if suffix == '.out' else 'log'} exists for {tm_id or 'the JobManager'}",
        remedy="a program that is its own JobManager (python job.py) prints to the terminal where it was started",
    )


def _text(gateway: ClusterGateway, tm_id: str | None, name: str, start: int | None) -> Response:
    """Return one part and its end position if `from` is given, else everything."""
    part = gateway.read_log(tm_id, name, start or 0, PART_BYTES)
    if start is not None:
        headers = {
            "X-Penstock-Log-Start": str(part.start),
            "X-Penstock-Log-End": str(part.end),
            "X-Penstock-Log-Size": str(part.size),
        }
        return PlainTextResponse(part.data, headers=headers)
    return StreamingResponse(_parts(gateway, tm_id, name, part), media_type="text/plain; charset=utf-8")


def _parts(gateway: ClusterGateway, tm_id: str | None, name: str, part: LogPart) -> Iterator[bytes]:
    size = part.size
    yield part.data
    while part.data and part.end < size:
        part = gateway.read_log(tm_id, name, part.end, PART_BYTES)
        yield part.data
