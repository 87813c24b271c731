"""Errors of the REST API itself, and the HTTP status of every error of Penstock.

PenstockError
└── RestError
    ├── BadRequest      400
    ├── Unauthorized    401
    ├── Forbidden       403   the token is read-only, or a page of another site may have sent the request
    ├── NotFound        404   the job, vertex, request, checkpoint or TaskManager does not exist
    ├── Conflict        409   the state of the job does not allow the action
    ├── Gone            410   earlier versions of Flink supported the request
    └── Unavailable     503   this JobManager does not lead, or is shutting down
"""

from __future__ import annotations

from penstock.common.errors import (
    JobError,
    PenstockError,
    PlatformError,
    RecoverableError,
    SnapshotNotFound,
)
from penstock.common.logs.redaction import Redaction


class RestError(PenstockError):
    code = "REST"
    status = 500


class BadRequest(RestError):
    code = "BAD_REQUEST"
    status = 400


class Unauthorized(RestError):
    code = "UNAUTHORIZED"
    status = 401


class Forbidden(RestError):
    code = "FORBIDDEN"
    status = 403


class NotFound(RestError):
    code = "NOT_FOUND"
    status = 404


class Conflict(RestError):
    code = "CONFLICT"
    status = 409


class Gone(RestError):
    code = "GONE"
    status = 410


class Unavailable(RestError):
    code = "UNAVAILABLE"
    status = 503


def http_status(error: PenstockError) -> int:
    """Return the HTTP status of a response that failed with `error`.

    >>> http_status(SnapshotNotFound("no savepoint at s3://b/x")), http_status(Conflict("job is FAILED"))
    (404, 409)
    """
    if isinstance(error, RestError):
        return error.status
    if isinstance(error, SnapshotNotFound):
        return 404
    if isinstance(error, JobError):
        return 400
    if isinstance(error, (PlatformError, RecoverableError)):
        return 503
    return 500


def error_lines(error: PenstockError) -> list[str]:
    """Return the lines of the response without secrets: the message, then the operator, the line of the program and the remedy, if they are
    known.
    """
    lines = [error.message]
    if error.operator:
        lines.append(f"operator: {error.operator}")
    if error.location:
        lines.append(f"at: {error.location}")
    if error.remedy:
        lines.append(f"remedy: {error.remedy}")
    redaction = Redaction.of({})
    return [redaction.clean(line) for line in lines]
