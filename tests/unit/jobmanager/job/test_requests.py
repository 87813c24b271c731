"""Requests that arrive at an unfavorable moment."""

from __future__ import annotations

import queue
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from penstock.common.errors import SourceError
from penstock.common.job_status import JobStatus
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.jobmanager.job.job_history import JobHistory
from penstock.jobmanager.job.job_requests import JobRequests
from penstock.jobmanager.job.requests import Operation
from tests.in_process import environment, started, until


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


class Away(DataGeneratorSource):
    """A source whose validation fails after the start of the job, because its system does not respond."""

    is_away = False

    def validate(self) -> None:
        if Away.is_away:
            raise SourceError("the system does not respond")


class FailsOnRequest:
    is_requested = False

    def __call__(self, value: int) -> int:
        if FailsOnRequest.is_requested:
            FailsOnRequest.is_requested = False
            raise RuntimeError("requested by the test")
        return value


def test_a_rescale_and_a_restart_do_not_validate_connectors_whose_system_is_away(tmp_path: Path) -> None:
    Away.is_away = FailsOnRequest.is_requested = False
    env = environment(tmp_path).set_parallelism(2)
    env.from_source(Away(int, None, 1_000.0), None, "numbers").map(FailsOnRequest()).print()
    master = started(env)
    until(lambda: master.history.status is JobStatus.RUNNING, master)
    Away.is_away = True
    rescale = master.request(Operation("rescale", {"parallelism": 3}))
    assert rescale.wait(30)
    assert rescale.failure is None
    FailsOnRequest.is_requested = True
    until(lambda: master.history.restarts == 1 and master.history.status is JobStatus.RUNNING, master)
    assert [failure.name for failure in master.history.failures] == ["UserFunctionError"]
    master.request(Operation("cancel"))
    assert master.wait(30) is JobStatus.CANCELED
