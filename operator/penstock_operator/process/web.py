"""The operator's HTTP server for liveness, readiness and metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Callable


def build_app(
    metrics: Callable[[], str], troubles: Callable[[], list[str]], ready: Callable[[], bool]
) -> web.Application:
    """Return the application. `/healthz` fails if a loop is stuck. `/readyz` fails until the process has started. A
    replica on standby is ready.
    """

    async def healthz(_: web.Request) -> web.Response:
        found = troubles()
        return web.Response(text="\n".join(found) or "ok", status=500 if found else 200)

    async def readyz(_: web.Request) -> web.Response:
        return web.Response(text="ok" if ready() else "starting", status=200 if ready() else 503)

    async def page(_: web.Request) -> web.Response:
        return web.Response(text=metrics(), content_type="text/plain", charset="utf-8")

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", page)])
    return app


async def serve(app: web.Application, port: int, host: str = "") -> web.AppRunner:
    """Start the server. Call `cleanup` on the result to stop it."""
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, host or None, port).start()
    return runner
