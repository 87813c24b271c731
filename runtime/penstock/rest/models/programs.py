"""Programs that clients send to a session cluster. Flink has no such paths, because its clients send graphs and JARs."""

from __future__ import annotations

from typing import Any

from penstock.rest.models.base import Dashed


class ProgramAccepted(Dashed):
    """`POST /programs`."""

    job_id: str


class ProgramFailure(Dashed):
    """Error of Penstock."""

    code: str
    message: str
    remedy: str = ""
    operator: str = ""
    location: str = ""


class ProgramOutcome(Dashed):
    """`GET /programs/:id`."""

    status: str
    """Status of the job."""
    net_runtime: int = 0
    """Time in ms."""
    accumulators: dict[str, Any] = {}
    failure: ProgramFailure | None = None
    """Reason why the job failed or was left."""


class ProgramResults(Dashed):
    """`GET /programs/:id/results`."""

    values: list[str]
    """Serialized records, in base64."""
    is_done: bool
    """Whether these are the last records."""
