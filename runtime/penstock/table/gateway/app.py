"""The routes of Flink's SQL gateway, in the versions v1 to v4."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field

from penstock.common.errors import InvalidJob, PenstockError
from penstock.common.logs.redaction import is_secret
from penstock.rest.auth import AllowedHosts, TokenFile, check_origin
from penstock.rest.body_limit import BodyLimit
from penstock.rest.errors import RestError
from penstock.sql.planner.jars import FLINK_VERSION
from penstock.table.gateway.operations import Page, error_text
from penstock.table.gateway.sessions import GatewaySession, Sessions
from penstock.table.gateway.values import dumps, json_value, logical_type
from penstock.table.table_result import shown

VERSIONS = ("v1", "v2", "v3", "v4")
_KINDS = ("INSERT", "UPDATE_BEFORE", "UPDATE_AFTER", "DELETE")
_FORMATS = ("JSON", "PLAIN_TEXT")


class OpenSession(BaseModel):
    sessionName: str | None = None  # noqa: N815 - Flink's name
    properties: dict[str, str] = Field(default_factory=dict, max_length=200)


class Statement(BaseModel):
    statement: str = Field(min_length=1)
    executionConfig: dict[str, str] = Field(default_factory=dict, max_length=200)  # noqa: N815 - Flink's name
    executionTimeout: int | None = None  # noqa: N815 - Flink's name


def create_app(sessions: Sessions, token: TokenFile | None = None, hosts: AllowedHosts | None = None) -> FastAPI:
    """Return the application.

    Args:
        token: bearer token that every request must have; None means none.
        hosts: host names that requests may use; None means any.
    """
    app = FastAPI(title="Penstock SQL gateway", docs_url=None, redoc_url=None)
    api = APIRouter()
    _information(api)
    _sessions(api, sessions)
    _operations(api, sessions)
    app.include_router(api)
    for version in VERSIONS:
        app.include_router(api, prefix=f"/{version}", include_in_schema=False)
    app.add_middleware(BodyLimit)

    @app.middleware("http")
    async def check(request: Request, call_next: Any) -> Response:
        try:
            if hosts is not None:
                hosts.check(request.headers.get("host"))
            check_origin(request.method, request.headers)
            if token is not None:
                token.check(request.headers.get("authorization"))
        except PenstockError as error:
            return _failure(error)
        response: Response = await call_next(request)
        return response

    @app.exception_handler(PenstockError)
    async def refused(request: Request, error: PenstockError) -> Response:
        return _failure(error)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        return JSONResponse({"errors": [f"{'.'.join(map(str, first['loc']))}: {first['msg']}"]}, 400)

    return app


def _failure(error: BaseException) -> JSONResponse:
    status = error.status if isinstance(error, RestError) else 500
    return JSONResponse(
        {"errors": ["Internal server error.", error_text(error)] if status == 500 else [error_text(error)]}, status
    )


def _information(api: APIRouter) -> None:
    @api.get("/info")
    def info() -> dict[str, str]:
        return {"productName": "Apache Flink", "version": FLINK_VERSION}

    @api.get("/api_versions")
    def api_versions() -> dict[str, list[str]]:
        return {"versions": [version.upper() for version in VERSIONS]}


def _sessions(api: APIRouter, sessions: Sessions) -> None:
    @api.post("/sessions")
    def open_session(body: OpenSession | None = None) -> dict[str, str]:
        return {"sessionHandle": sessions.open(body.properties if body else {}).id}

    @api.get("/sessions/{session}")
    def properties(session: str) -> dict[str, Any]:
        found = sessions.session(session)
        options = found.client.options() or found.properties
        return {"properties": {key: "******" if is_secret(key) else value for key, value in options.items()}}

    @api.delete("/sessions/{session}")
    def close_session(session: str) -> dict[str, str]:
        sessions.close(session)
        return {"status": "CLOSED"}

    @api.post("/sessions/{session}/heartbeat")
    def heartbeat(session: str) -> dict[str, str]:
        sessions.session(session)
        return {}

    @api.post("/sessions/{session}/configure-session")
    def configure(session: str, body: Statement) -> dict[str, str]:
        result = sessions.session(session).execute(body.statement.strip().rstrip(";"))
        if result.is_query or result.get_job_client() is not None:
            raise InvalidJob("SQL: this statement does not configure a session", remedy="send it to /statements")
        return {}

    @api.post("/sessions/{session}/statements")
    def statement(session: str, body: Statement) -> dict[str, str]:
        return {"operationHandle": sessions.session(session).submit(body.statement, body.executionConfig).id}


def _operations(api: APIRouter, sessions: Sessions) -> None:
    path = "/sessions/{session}/operations/{operation}"

    @api.get(f"{path}/status")
    def status(session: str, operation: str) -> dict[str, str]:
        return {"status": sessions.session(session).operation(operation).status}

    @api.post(f"{path}/cancel")
    def cancel(session: str, operation: str) -> dict[str, str]:
        found = sessions.session(session).operation(operation)
        found.cancel()
        return {"status": found.status}

    @api.delete(f"{path}/close")
    def close(session: str, operation: str) -> dict[str, str]:
        sessions.session(session).close_operation(operation)
        return {"status": "CLOSED"}

    @api.get(f"{path}/result/{{token}}")
    def result(request: Request, session: str, operation: str, token: int, rowFormat: str = "JSON") -> Response:  # noqa: N803 - Flink's name
        if rowFormat.upper() not in _FORMATS:
            raise InvalidJob(
                f"SQL: the row format {rowFormat} does not exist", remedy=f"use one of {', '.join(_FORMATS)}"
            )
        found = sessions.session(session)
        page = found.operation(operation).fetch(token)
        version = request.url.path.partition("/sessions/")[0]
        return Response(
            dumps(_shape(page, version, found, operation, rowFormat.upper())), media_type="application/json"
        )


def _shape(page: Page, version: str, session: GatewaySession, operation: str, row_format: str) -> dict[str, Any]:
    """Return a page in the shape of Flink's gateway."""
    following = f"{version}/sessions/{session.id}/operations/{operation}/result/{page.next}?rowFormat={row_format}"
    found: dict[str, Any] = {"resultType": page.kind, "nextResultUri": None if page.next is None else following}
    if page.kind == "NOT_READY":
        return found
    convert = json_value if row_format == "JSON" else shown
    columns = [
        {"name": name, "logicalType": logical_type(type), "comment": None}
        for name, type in zip(page.names, page.types, strict=True)
    ]
    data = [
        {"kind": _KINDS[row.get_row_kind().value], "fields": [convert(value) for value in row]} for row in page.rows
    ]
    is_done = page.names == ["result"] and not page.is_query
    return found | {
        "isQueryResult": page.is_query,
        "jobID": page.job_id,
        "resultKind": "SUCCESS" if is_done and page.job_id is None else "SUCCESS_WITH_CONTENT",
        "results": {"columns": columns, "rowFormat": row_format, "data": data},
    }
