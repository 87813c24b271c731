"""The REST API of a standby master: it passes every request on to the leader.

Clients and the Service of Kubernetes may use any master. A redirect would need an address of the leader that every client can reach, which a
pod does not have. Probes and metrics are those of this process. The leader checks the token of a request.

A frozen leader accepts connections and never answers. So the standby drops a request if another process leads before the answer is complete.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, MutableMapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ssl

    import httpx

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

logger = logging.getLogger(__name__)

FORWARDED = b"x-penstock-forwarded"
"""Header of a request from a standby. A standby does not pass it on again."""
NO_LEADER, LEADER_LOST = b"NO_LEADER", b"LEADER_LOST"
"""Error codes of requests that no leader has executed, and of requests that a lost leader may have executed."""
OWN_PATHS = frozenset({"/healthz", "/readyz", "/metrics"})
"""Paths that each process answers itself."""
_PER_CONNECTION = frozenset(
    [b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade"]
)
"""Headers that belong to one connection (RFC 9110, 7.6.1)."""
_CONNECT_S = 2.0
_CHECK_S = 0.5
"""Interval in seconds of checks whether the leader has changed."""
_PATIENCE_S = 5.0
"""Time in seconds for the previous leader to complete its answers. A master that stops needs it (`server.STOP_SECONDS`)."""
_RETRY_AFTER_S = 1


class LeaderProxy:
    """Application that passes requests on to the leader while this process is on standby.

    Args:
        app: application of this process.
        leader: function that returns the URL of the leader, an empty string if none is known, or None if this process leads.
        tls: TLS settings for requests to the leader.
    """

    def __init__(self, app: App, leader: Callable[[], str | None], tls: ssl.SSLContext | bool = True) -> None:
        self._app = app
        self._leader = leader
        self._tls = tls
        self._clients: dict[bool, httpx.AsyncClient] = {}
        """Client by whether it uses TLS."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OWN_PATHS or (leader := self._leader()) is None:
            await self._app(scope, receive, send)
        elif not leader:
            await _refuse(send, "no JobManager leads at the moment")
        elif not scope.get("raw_path", b"/").startswith(b"/"):  # the path must not become a part of the host
            await _refuse(send, "the path of the request does not start with /", status=400)
        elif any(name == FORWARDED for name, _ in scope["headers"]):
            await _refuse(send, "the leader changes at the moment")
        else:
            await self._forward(leader, scope, receive, send)

    def _client(self, leader: str) -> httpx.AsyncClient:
        import httpx

        is_tls = leader.startswith("https:")
        if is_tls not in self._clients:
            timeout = httpx.Timeout(None, connect=_CONNECT_S)
            limits = httpx.Limits(
                max_connections=None
            )  # requests to a frozen leader must not block those to the next one
            verify = self._tls if is_tls else False  # loading CAs takes long, and http needs none
            self._clients[is_tls] = httpx.AsyncClient(verify=verify, timeout=timeout, limits=limits, trust_env=False)
        return self._clients[is_tls]

    async def _forward(self, leader: str, scope: Scope, receive: Receive, send: Send) -> None:
        import httpx

        client = self._client(leader)
        query = scope["query_string"].decode("ascii")
        path = (scope.get("raw_path") or scope["path"].encode()).decode("ascii")
        headers = [(name, value) for name, value in scope["headers"] if name not in _PER_CONNECTION]
        has_body = any(name in (b"content-length", b"transfer-encoding") for name, _ in scope["headers"])
        request = client.build_request(
            scope["method"],
            f"{leader}{path}{f'?{query}' if query else ''}",
            headers=[*headers, (FORWARDED, b"1")],
            content=_body(receive) if has_body else None,
        )
        sending = asyncio.ensure_future(client.send(request, stream=True))
        try:
            await _first(_settled(sending), self._until_superseded(leader))
            if not sending.done():
                await _refuse(
                    send, f"the leader {leader} has not responded, and another process leads", code=LEADER_LOST
                )
                return
            response = sending.result()
        except httpx.HTTPError as error:
            is_unsent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
            code = NO_LEADER if is_unsent else LEADER_LOST
            await _refuse(send, f"the leader {leader} does not respond: {type(error).__name__}", code=code)
            return
        except _ClientGone:
            return
        finally:
            sending.cancel()
        try:
            await _first(_answer(response, send), _until_disconnected(receive), self._until_superseded(leader))
        finally:
            await response.aclose()

    async def _until_superseded(self, leader: str) -> None:
        """Wait until another process has led for some seconds."""
        while self._leader() == leader:
            await asyncio.sleep(_CHECK_S)
        await asyncio.sleep(_PATIENCE_S)


class _ClientGone(Exception):
    """The client has closed the connection before it has sent the whole body."""


async def _settled(task: asyncio.Future[Any]) -> None:
    await asyncio.wait([task])


async def _first(*works: Coroutine[Any, Any, None]) -> None:
    """Run until the first coroutine ends, then cancel the others. The response may be endless, so the client's disconnection must end it."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                logger.info("the leader's response was cut off: %s", result)


async def _until_disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _answer(response: httpx.Response, send: Send) -> None:
    headers = [(n.lower(), v) for n, v in response.headers.raw if n.lower() not in _PER_CONNECTION]
    await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
    async for part in response.aiter_raw():
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _body(receive: Receive) -> AsyncIterator[bytes]:
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise _ClientGone  # the leader must not take a part of the body for the whole
        yield message.get("body", b"")
        if not message.get("more_body"):
            return


async def _refuse(send: Send, reason: str, status: int = 503, code: bytes = NO_LEADER) -> None:
    """Answer with a failure, with the time in seconds after which the client may repeat the request."""
    lines = [reason, "remedy: repeat the request. A standby master takes over within seconds"]
    headers = [
        (b"content-type", b"application/json"),
        (b"retry-after", str(_RETRY_AFTER_S).encode()),
        (b"x-penstock-error", code),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps({"errors": lines}).encode()})
