"""Programs that are sent to a session cluster. Flink has no such paths: its clients send graphs and JARs."""

from __future__ import annotations

from typing import Any

from penstock.rest.models.base import Dashed


class ProgramAccepted(Dashed):
    """`POST /programs`."""

    job_id: str


class ProgramFailure(Dashed):
    """An error of Penstock."""

    code: str
    message: str
    remedy: str = ""
    operator: str = ""
    location: str = ""


class ProgramOutcome(Dashed):
    """`GET /programs/:id`."""

    status: str
    """Of the job."""
    net_runtime: int = 0
    """ms."""
    accumulators: dict[str, Any] = {}
    failure: ProgramFailure | None = None
    """Why it failed, or was left."""


class ProgramResults(Dashed):
    """`GET /programs/:id/results`."""

    values: list[str]
    """Encoded records, in base64."""
    is_done: bool
    """There will be no more behind these."""
