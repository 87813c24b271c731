"""Limits of request bodies. They apply before authentication, so that an unauthenticated client cannot fill the memory."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY_BYTES = 64 << 10
"""Maximum size of a body in bytes. The largest body that Penstock's clients send contains a few hundred names."""
MAX_TOKEN_BODY_BYTES = 4 << 10
PROGRAM_BYTES = 256 << 20
"""Maximum size in bytes of a program for a session cluster, with the values of its collections. The program is read only after
authentication.
"""
UPLOAD_BYTES = (512 << 20) + (64 << 10)
"""Maximum size in bytes of a form with a program for a session cluster. Starlette keeps large files on disk."""
_LIMITS = {
    "/login": MAX_TOKEN_BODY_BYTES,
    "/logout": MAX_TOKEN_BODY_BYTES,
    "/programs": PROGRAM_BYTES + 1,
    "/v1/programs": PROGRAM_BYTES + 1,
    "/jars/upload": UPLOAD_BYTES,
    "/v1/jars/upload": UPLOAD_BYTES,
}


def limit_of(path: str) -> int:
    """Return the maximum body size in bytes of a request to the path."""
    return _LIMITS.get(path.rstrip("/"), MAX_BODY_BYTES)


class BodyLimit:
    """ASGI middleware that responds with 413 to a body that is too large, without reading it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = limit_of(scope["path"])
        if _declared(scope) > limit:
            await _refusal(scope, limit)(scope, receive, send)
            return
        body = _Body(receive, limit)
        started = False

        async def unless_too_large(message: Message) -> None:
            nonlocal started
            if started or not body.is_too_large:
                started = True
                await send(message)

        with suppress(ClientDisconnect):
            await self._app(scope, body.receive, unless_too_large)
        if body.is_too_large and not started:
            await _refusal(scope, limit)(scope, receive, send)


class _Body:
    """Body of a request. When the body exceeds the limit, the application receives a disconnect instead."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self.is_too_large = False
        self._receive = receive
        self._remaining_bytes = limit

    async def receive(self) -> Message:
        if not self.is_too_large:
            message = await self._receive()
            self._remaining_bytes -= len(message.get("body", b""))
            self.is_too_large = self._remaining_bytes < 0
        return {"type": "http.disconnect"} if self.is_too_large else message


def _declared(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value[:20])
    return 0


def _refusal(scope: Scope, limit: int) -> JSONResponse:
    lines = [
        f"the body has more than {limit} bytes: {scope['method']} {scope['path']}",
        "remedy: send a smaller request",
    ]
    headers = {"X-Penstock-Error": "TOO_LARGE", "Connection": "close"}
    return JSONResponse({"errors": lines}, status_code=413, headers=headers)
