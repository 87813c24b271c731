"""A client that calls the application in this process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx

if TYPE_CHECKING:
    from fastapi import FastAPI


class AsgiClient:
    """A client like `httpx.Client`, with the methods that the tests need. It returns 500 if the application raises."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app

    def get(self, path: str, **arguments: Any) -> httpx.Response:
        return self.request("GET", path, **arguments)

    def post(self, path: str, **arguments: Any) -> httpx.Response:
        return self.request("POST", path, **arguments)

    def patch(self, path: str) -> httpx.Response:
        return self.request("PATCH", path)

    def delete(self, path: str) -> httpx.Response:
        return self.request("DELETE", path)

    def request(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self._app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                return await client.request(method, path, **arguments)

        return asyncio.run(ask())
