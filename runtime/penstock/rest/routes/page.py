"""The dashboard's page and its files, which are part of the package (`rest/dashboard`). The files contain no data."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request, Response

from penstock.rest.errors import NotFound

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def page_routes() -> APIRouter:
    router = APIRouter()

    @router.get("/")
    def page(request: Request) -> Response:
        return _file(request, "index.html")

    @router.get("/favicon.ico")
    def icon(request: Request) -> Response:
        return _file(request, "icon.svg")

    @router.get("/ui/{name:path}")
    def file(request: Request, name: str) -> Response:
        return _file(request, name)

    return router


def _file(request: Request, name: str) -> Response:
    found = _all().get(name)
    if found is None:
        raise NotFound(f"the dashboard has no file {name!r}")
    content, tag = found
    headers = {**_HEADERS, "ETag": tag}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=_TYPES[name.rpartition(".")[2]], headers=headers)


@lru_cache(maxsize=1)
def _all() -> dict[str, tuple[bytes, str]]:
    """Return content and tag of each file. The files have a few hundred kilobytes in total, and are read at the first request."""
    found: dict[str, tuple[bytes, str]] = {}

    def collect(folder: Traversable, prefix: str) -> None:
        for entry in folder.iterdir():
            if entry.is_dir():
                collect(entry, f"{prefix}{entry.name}/")
            elif entry.name.rpartition(".")[2] in _TYPES:
                content = entry.read_bytes()
                found[prefix + entry.name] = (content, f'"{hashlib.sha256(content).hexdigest()[:16]}"')

    collect(files("penstock.rest").joinpath("dashboard"), "")
    return found
