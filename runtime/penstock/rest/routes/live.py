"""Live data for a page, as server-sent events. The events are created only while a client reads them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from penstock.common.errors import PenstockError
from penstock.rest import facts
from penstock.rest.clock import now_ms
from penstock.rest.views.dashboard import live_job

if TYPE_CHECKING:
    from penstock.rest.gateway import ClusterGateway

PERIOD_S = 1.0
POLL_S = 0.1
"""Maximum delay in seconds between the stop of the server and the end of a stream."""


def live_routes(gateway: ClusterGateway, closing: threading.Event) -> APIRouter:
    router = APIRouter(prefix="/jobs/{job_id}", tags=["dashboard"])

    @router.get("/live", response_class=StreamingResponse)
    async def live(request: Request, job_id: str) -> StreamingResponse:
        """Send one server-sent event per second, with the state of the job and of its vertices."""

        def look() -> str:
            job = gateway.job(job_id)
            now = now_ms() if job.end == facts.NOT_YET else job.end
            interval = gateway.checkpoint_settings(job_id).interval_ms
            cluster, checkpoints = gateway.cluster(), gateway.checkpoints(job_id)
            seen = live_job(job, checkpoints, interval, cluster, gateway.metrics, now)
            return seen.model_dump_json(by_alias=True)

        first = await run_in_threadpool(look)
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(
            _events(first, look, request, closing), media_type="text/event-stream", headers=headers
        )

    return router


async def _events(
    event: str, look: Callable[[], str], request: Request, closing: threading.Event
) -> AsyncIterator[str]:
    while True:
        yield f"data: {event}\n\n"
        waited = 0.0
        while waited < PERIOD_S:
            if closing.is_set() or await request.is_disconnected():
                return
            await asyncio.sleep(POLL_S)
            waited += POLL_S
        try:
            event = await run_in_threadpool(look)
        except PenstockError:  # the job is no longer kept
            return
