"""An HTTP proxy between a job and its S3 server. It disturbs requests like networks and busy servers do.

    with StorageProxy(server.endpoint_url) as proxy:
        order = proxy.order(Disorder.LOSE_ANSWER, Target.MANIFEST)      # the next manifest is stored without a response
        proxy.order(Disorder.SLOW_DOWN, times=20)
        proxy.order(Disorder.DELAY, seconds=1.0, lasts_s=5.0)

Signatures cover the host name that the client uses, so the proxy forwards requests unchanged, with this name. The proxy does
nothing that S3 never does, such as an old listing or half an object.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import Self

import aiohttp
from aiohttp import HttpVersion11, web
from yarl import URL

_HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "expect", "te", "trailer", "upgrade"})
_ANSWER = """<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>{code}</Code><Message>{message}</Message><RequestId>soak</RequestId></Error>"""


class Disorder(Enum):
    """The possible disturbances of a request."""

    REFUSE = "403 AccessDenied, and it is not carried out"
    SLOW_DOWN = "503 SlowDown, and it is not carried out"
    LOSE_ANSWER = "it is carried out, and the connection ends without an answer"
    LATE = "the connection ends without an answer, and it is carried out some seconds later"
    DELAY = "it is carried out some seconds later, and answered then"
    CUT_REQUEST = "the connection ends in the middle of its body"
    CUT_ANSWER = "the connection ends in the middle of the answer's body"
    GARBLE = "it is answered with some bytes of the body changed"


class Target(Enum):
    """The affected requests, by method, path and query of S3's API."""

    ANY = "any"
    WRITE = "write"
    LEADER = "leader"
    MANIFEST = "manifest"
    STATE = "state"
    COMMIT = "commit"
    OUTPUT = "output"
    LIST = "list"
    READ = "read"
    DELETE = "delete"

    def matches(self, request: web.BaseRequest) -> bool:
        method, path, query = request.method, request.path, request.query
        match self:
            case Target.ANY:
                return True
            case Target.WRITE:
                return method in ("PUT", "POST")
            case Target.LEADER:
                return method == "PUT" and "/leader/" in path
            case Target.MANIFEST:
                return method == "PUT" and path.endswith("/_metadata")
            case Target.STATE:
                return method in ("PUT", "POST") and "/shared/" in path
            case Target.COMMIT:
                return method == "POST" and "uploadId" in query
            case Target.OUTPUT:
                return method in ("PUT", "POST") and "/output/" in path
            case Target.LIST:
                return method == "GET" and ("list-type" in query or "uploads" in query)
            case Target.READ:
                return method == "GET" and "list-type" not in query
            case Target.DELETE:
                return method == "DELETE" or "delete" in query


@dataclass(eq=False)
class Order:
    """One disorder, for the next `times` requests that match, within its time."""

    disorder: Disorder
    target: Target = Target.ANY
    times: int = 1
    seconds: float = 0.0
    """Seconds of delays."""
    until: float = float("inf")
    """End of the order, on the monotonic clock."""
    within: str = ""
    """Part of the path of affected requests."""
    took: int = 0
    """Number of affected requests."""

    def takes(self, request: web.BaseRequest) -> bool:
        is_open = self.took < self.times and time.monotonic() < self.until
        return is_open and self.within in request.path and self._has_body(request) and self.target.matches(request)

    def _has_body(self, request: web.BaseRequest) -> bool:
        """Return whether the request has a body to cut, if the disorder needs one."""
        match self.disorder:
            case Disorder.CUT_REQUEST:
                return request.method in ("PUT", "POST") and (request.content_length or 0) > 1
            case Disorder.CUT_ANSWER:
                return request.method == "GET"
            case _:
                return True


class StorageProxy:
    """The proxy, which runs in a separate thread for as long as the `with` block."""

    def __init__(self, upstream: str) -> None:
        self.upstream = upstream.rstrip("/")
        self.port = 0
        self.requests = 0
        self.done: Counter[Disorder] = Counter()
        """Number of disturbed requests, by disorder."""
        self._orders: list[Order] = []
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="storage-proxy", daemon=True)
        self._runner: web.ServerRunner | None = None
        self._site: web.TCPSite | None = None
        self._client: aiohttp.ClientSession | None = None
        self._late: set[asyncio.Task[None]] = set()

    @property
    def endpoint_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    # --- orders -----------------------------------------------------------------------------------------------

    def order(
        self,
        disorder: Disorder,
        target: Target = Target.ANY,
        *,
        times: int = 1,
        seconds: float = 0.0,
        lasts_s: float = float("inf"),
        within: str = "",
    ) -> Order:
        order = Order(disorder, target, times, seconds, time.monotonic() + lasts_s, within)
        with self._lock:
            self._orders.append(order)
        return order

    def withdraw(self, order: Order) -> int:
        """Withdraw an order, and return the number of affected requests."""
        with self._lock, contextlib.suppress(ValueError):
            self._orders.remove(order)
        return order.took

    def close_port(self) -> None:
        """Close the port: new connections are refused, and open ones end."""
        self._run(self._close_port())

    def open_port(self) -> None:
        self._run(self._open_port())

    def wait_for_late(self, timeout_s: float = 30.0) -> None:
        """Wait until all late requests are executed."""
        until = time.monotonic() + timeout_s
        while self._late and time.monotonic() < until:
            time.sleep(0.05)

    # --- requests ---------------------------------------------------------------------------------------------

    def _take(self, request: web.BaseRequest) -> Order | None:
        with self._lock:
            for order in self._orders:
                if order.takes(request):
                    order.took += 1
                    self.done[order.disorder] += 1
                    return order
        return None

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests += 1
        order = self._take(request)
        if order is None:
            return await self._answer(request, await request.read())
        match order.disorder:
            case Disorder.REFUSE:
                await request.read()
                return _error(403, "AccessDenied", "Access Denied.")
            case Disorder.SLOW_DOWN:
                await request.read()
                return _error(503, "SlowDown", "Please reduce your request rate.")
            case Disorder.LOSE_ANSWER:
                await self._forward(request, await request.read())
                return _cut(request)
            case Disorder.LATE:
                task = asyncio.create_task(self._carry_out_late(request, await request.read(), order.seconds))
                self._late.add(task)
                task.add_done_callback(self._late.discard)
                return _cut(request)
            case Disorder.DELAY:
                body = await request.read()
                await asyncio.sleep(order.seconds)
                return await self._answer(request, body)
            case Disorder.CUT_REQUEST:
                await request.content.read(max(1, (request.content_length or 2) // 2))
                return _cut(request)
            case Disorder.CUT_ANSWER:
                return await self._cut_answer(request, await request.read())
            case Disorder.GARBLE:
                return await self._garbled_answer(request, await request.read())

    async def _answer(self, request: web.BaseRequest, body: bytes) -> web.StreamResponse:
        status, headers, content = await self._forward(request, body)
        response = web.Response(status=status, headers=headers, body=content or None)
        if request.method == "HEAD" and "Content-Length" in headers:
            response.headers["Content-Length"] = headers["Content-Length"]
        return response

    async def _garbled_answer(self, request: web.BaseRequest, body: bytes) -> web.StreamResponse:
        """Change bytes of the body. Length and checksums in the headers stay, as if a disk or a cache had changed the content."""
        status, headers, content = await self._forward(request, body)
        garbled = bytearray(content)
        for place in range(len(garbled) // 2, len(garbled), 97):
            garbled[place] ^= 0x5A
        return web.Response(status=status, headers=headers, body=bytes(garbled) or None)

    async def _cut_answer(self, request: web.BaseRequest, body: bytes) -> web.StreamResponse:
        status, headers, content = await self._forward(request, body)
        response = web.StreamResponse(status=status, headers=headers)
        response.content_length = len(content)
        await response.prepare(request)
        await response.write(content[: len(content) // 2])
        return _cut(request)

    async def _carry_out_late(self, request: web.BaseRequest, body: bytes, seconds: float) -> None:
        await asyncio.sleep(seconds)
        with contextlib.suppress(aiohttp.ClientError):
            await self._forward(request, body)

    async def _forward(self, request: web.BaseRequest, body: bytes) -> tuple[int, dict[str, str], bytes]:
        assert self._client is not None
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP_BY_HOP}
        url = URL(self.upstream + request.raw_path, encoded=True)
        skip = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
        async with self._client.request(
            request.method, url, headers=headers, data=body, allow_redirects=False, skip_auto_headers=skip
        ) as answer:
            content = await answer.read()
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP_BY_HOP}
            return answer.status, kept, content

    # --- the server -------------------------------------------------------------------------------------------

    def _run(self, work: object) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(60)  # type: ignore[arg-type]

    async def _start(self) -> None:
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        self._client = aiohttp.ClientSession(
            connector=connector, auto_decompress=False, timeout=aiohttp.ClientTimeout(total=None)
        )
        await self._open_port()

    async def _open_port(self) -> None:
        self._runner = web.ServerRunner(web.Server(_whole(self._handle), auto_decompress=False), shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        assert site._server is not None
        self.port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]

    async def _close_port(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _stop(self) -> None:
        await self._close_port()
        for task in list(self._late):
            task.cancel()
        if self._client is not None:
            await self._client.close()


def _whole(
    handle: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
) -> Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]:
    """Return a handler that accepts objects of any size, and ignores errors of requests whose client is gone."""

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        request._client_max_size = 1 << 30
        try:
            if request.version >= HttpVersion11 and request.headers.get("Expect", "").lower() == "100-continue":
                await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                request.writer.output_size = 0
            return await handle(request)
        except (aiohttp.ClientError, ConnectionError, asyncio.IncompleteReadError):
            return _cut(request)

    return handler


def _cut(request: web.BaseRequest) -> web.StreamResponse:
    """End the connection. The returned response reaches no client."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


def _error(status: int, code: str, message: str) -> web.Response:
    return web.Response(status=status, text=_ANSWER.format(code=code, message=message), content_type="application/xml")
