"""Requests that arrive at an unfavorable moment."""

from __future__ import annotations

import queue
import threading
from types import SimpleNamespace
from typing import Any

from penstock.common.job_status import JobStatus
from penstock.jobmanager.job.job_history import JobHistory
from penstock.jobmanager.job.job_requests import JobRequests
from penstock.jobmanager.job.requests import Operation


def test_a_request_that_arrives_as_the_job_ends_is_answered() -> None:
    parts: Any = SimpleNamespace(exclusive=None, waiting={}, wake=threading.Event())
    scheduler: Any = None
    history = JobHistory()
    requests = JobRequests("ab" * 16, parts, scheduler, history, threading.Event())
    requests.runner = SimpleNamespace(request_barrier=lambda: None)

    class EndsBeforeThePut(queue.SimpleQueue):
        def put(self, item: Any, *arguments: Any) -> None:
            history.move(JobStatus.FINISHED, 1)
            requests.fail_all(JobStatus.FINISHED)
            super().put(item)

    requests._queue = EndsBeforeThePut()
    operation = Operation("savepoint")
    requests.submit(operation)
    assert operation.wait(0)
    assert operation.failure == f"job {'ab' * 16} is FINISHED"
