"""The web application: routes, token, errors, OpenAPI.

Every path exists twice, as `/jobs` and as `/v1/jobs`, because Flink's clients use either. OpenAPI shows each path once.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.exceptions import HTTPException

from penstock import __version__
from penstock.common.errors import NotNow, PenstockError
from penstock.common.logs.redaction import Redaction, is_secret
from penstock.metrics import prometheus
from penstock.rest import models
from penstock.rest.auth import PROBES, AllowedHosts, check_origin, is_open
from penstock.rest.body_limit import BodyLimit
from penstock.rest.errors import Unavailable, error_lines, http_status
from penstock.rest.metric_facts import refresh_metrics
from penstock.rest.routes.actions import action_routes
from penstock.rest.routes.autoscaler import autoscaler_routes
from penstock.rest.routes.checkpoints import checkpoint_routes
from penstock.rest.routes.cluster import cluster_routes, disposal_routes, job_manager_routes, task_manager_routes
from penstock.rest.routes.dashboard import dashboard_routes, state_routes
from penstock.rest.routes.edges import edge_routes
from penstock.rest.routes.jars import application_routes, jar_routes, runs_program
from penstock.rest.routes.jobs import job_routes
from penstock.rest.routes.live import live_routes
from penstock.rest.routes.logs import log_routes
from penstock.rest.routes.page import page_routes
from penstock.rest.routes.programs import program_routes
from penstock.rest.routes.session import session_routes
from penstock.rest.routes.stacks import stack_routes
from penstock.rest.routes.vertices import vertex_routes
from penstock.rest.sessions import Access

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from penstock.rest.auth import TokenFile
    from penstock.rest.gateway import ClusterGateway, Jars, Programs

logger = logging.getLogger(__name__)

_SHOWN = 200
"""Maximum number of characters of a refused value in an error."""
_FAILURES: dict[int | str, dict[str, object]] = {
    "default": {"model": models.Failures, "description": "The failure, then the remedy."}
}


def create_app(
    gateway: ClusterGateway,
    token: TokenFile | None = None,
    hosts: AllowedHosts | None = None,
    *,
    reader: TokenFile | None = None,
    closing: threading.Event | None = None,
    programs: Programs | None = None,
    jars: Jars | None = None,
) -> FastAPI:
    """Return the application for a gateway. If a token is given, every path requires it, except the probes and the page.

    Args:
        hosts: host names that requests may use. None means any.
        reader: token that permits only reading.
        closing: event that is set when the server stops. It ends endless responses.
        programs: receiver of programs in a session cluster. None means that programs are not accepted.
        jars: programs that clients upload to a session cluster. None means that uploads are not accepted.
    """
    access = Access(token, reader)
    app = FastAPI(
        title="Penstock REST API",
        version=__version__,
        description="The subset of Flink's REST API that Penstock supports, and Penstock's own paths. Times and durations are in ms, "
        "and sizes in bytes.",
        docs_url=None,
        redoc_url=None,
    )
    _add_errors(app)
    _add_checks(app, access, hosts)
    app.add_middleware(BodyLimit)
    closing = closing or threading.Event()
    app.add_middleware(_Closing, closing=closing)
    api = _api(gateway, closing, programs, jars)
    app.include_router(api, responses=_FAILURES)
    app.include_router(api, prefix="/v1", include_in_schema=False)
    app.include_router(session_routes(access))
    app.include_router(page_routes(), include_in_schema=False)
    _add_pages(app, gateway)
    return app


def _api(gateway: ClusterGateway, closing: threading.Event, programs: Programs | None, jars: Jars | None) -> APIRouter:
    api = APIRouter()
    api.include_router(cluster_routes(gateway, takes_programs=jars is not None))
    for make in (
        job_manager_routes,
        task_manager_routes,
        log_routes,
        job_routes,
        checkpoint_routes,
        action_routes,
        vertex_routes,
        stack_routes,
        edge_routes,
        disposal_routes,
        dashboard_routes,
        autoscaler_routes,
        state_routes,
    ):
        api.include_router(make(gateway))
    api.include_router(live_routes(gateway, closing))
    if programs is not None:
        api.include_router(program_routes(programs))
    if jars is not None:
        api.include_router(jar_routes(jars))
        api.include_router(application_routes(jars, gateway))
    return api


def _add_pages(app: FastAPI, gateway: ClusterGateway) -> None:
    @app.get("/metrics", tags=["metrics"], response_class=PlainTextResponse)
    def metrics() -> PlainTextResponse:
        """Return all metrics in Prometheus' text format."""
        refresh_metrics(gateway)
        return PlainTextResponse(prometheus.exposition(gateway.metrics.collect()), media_type=prometheus.CONTENT_TYPE)

    @app.get("/healthz", tags=["probes"], response_class=PlainTextResponse)
    def healthy() -> PlainTextResponse:
        """Return 200 while the process responds."""
        return PlainTextResponse("ok\n")

    @app.get("/readyz", tags=["probes"], response_class=PlainTextResponse)
    def ready() -> PlainTextResponse:
        """Return 200 if this JobManager leads and accepts requests, else 503."""
        readiness = gateway.readiness()
        text = "ready" if readiness.ready else f"not ready: {readiness.reason}"
        return PlainTextResponse(f"{text}\n", status_code=200 if readiness.ready else 503)


def _add_checks(app: FastAPI, access: Access, hosts: AllowedHosts | None) -> None:
    @app.middleware("http")
    async def check(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        try:
            if hosts is not None and request.url.path not in PROBES:
                hosts.check(request.headers.get("host"))
            check_origin(request.method, request.headers)
            if not is_open(request.url.path):
                method = "POST" if runs_program(request.url.path) else request.method
                access.check(access.identify(request.headers, request.cookies), method, request.headers)
        except PenstockError as error:
            return _failure(http_status(error), error_lines(error), error.code)
        return await call_next(request)


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(PenstockError)
    def known(request: Request, error: PenstockError) -> JSONResponse:
        status = http_status(error)
        if status >= 500 and not isinstance(error, NotNow):  # too many requests must not fill the log
            logger.warning("%s %s: %s", request.method, request.url.path, error)
        return _failure(status, error_lines(error), error.code)

    @app.exception_handler(RequestValidationError)
    def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        return _failure(400, [_validation_line(found) for found in error.errors()], "BAD_REQUEST")

    @app.exception_handler(HTTPException)
    def http_error(request: Request, error: HTTPException) -> JSONResponse:
        text = f"{error.detail}: {request.method} {request.url.path}"
        return _failure(error.status_code, [text], "NOT_FOUND" if error.status_code == 404 else "BAD_REQUEST")

    @app.exception_handler(Exception)
    def unknown(request: Request, error: Exception) -> JSONResponse:
        logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
        text = Redaction.of({}).clean(f"internal error: {type(error).__name__}: {error}")
        return _failure(
            500,
            [text, "remedy: this is a defect of Penstock. The log of the JobManager has the stack trace"],
            "INTERNAL",
        )


class _Closing:
    """Middleware that responds with 503 to requests during the shutdown, also to those that the end of the server cancels."""

    def __init__(self, app: ASGIApp, closing: threading.Event) -> None:
        self._app, self._closing = app, closing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_started = False

        async def watched(message: Message) -> None:
            nonlocal is_started
            is_started = True
            await send(message)

        if not self._closing.is_set():
            try:
                await self._app(scope, receive, watched)
            except (Exception, asyncio.CancelledError):
                if is_started or not self._closing.is_set():
                    raise
            else:
                return
        error = Unavailable("this JobManager is shutting down", remedy="repeat the request when it has restarted")
        await _failure(http_status(error), error_lines(error), error.code)(scope, receive, send)


def _validation_line(found: dict[str, object]) -> str:
    location = found.get("loc", ())
    where = ".".join(str(part) for part in location) if isinstance(location, (tuple, list)) else str(location)
    if is_secret(where) or where == "body":
        return f"{where}: {found.get('msg')}"
    given = repr(found.get("input"))
    return Redaction.of({}).clean(f"{where}: {found.get('msg')} (given: {given[:_SHOWN]}{'…' * (len(given) > _SHOWN)})")


def _failure(status: int, lines: list[str], code: str) -> JSONResponse:
    headers = {"X-Penstock-Error": code}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse({"errors": lines}, status_code=status, headers=headers)
