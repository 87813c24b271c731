"""Each connector loses and repeats nothing, under any fault at any time.

A sink that writes at least once may repeat rows, and loses none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.connectors.all_connectors import CONNECTORS
from tests.integration.connectors.connector import Connector
from tests.integration.connectors.job import Job


def cases(holds: Callable[[type[Connector]], bool] = lambda kind: True) -> list[Any]:
    """Return the connectors with a capability, as parameters of a test."""
    return [
        pytest.param(kind, id=kind.name, marks=marks(kind, is_quick=kind.is_quick))
        for kind in CONNECTORS
        if holds(kind)
    ]


def calls() -> list[Any]:
    """Return every connector with each call at which its job is killed."""
    return [
        pytest.param(kind, call, id=f"{kind.name}-{call}", marks=marks(kind, is_quick=call in kind.quick_calls))
        for kind in CONNECTORS
        for call in kind.calls
    ]


def marks(kind: type[Connector], *, is_quick: bool) -> list[pytest.MarkDecorator]:
    if kind.server:
        return [getattr(pytest.mark, kind.marker or kind.server)]
    return [] if is_quick else [pytest.mark.slow]


@pytest.fixture
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Job]:
    """Return a job with the connector of the test and the shared server. It is not started."""
    kind = request.getfixturevalue("kind")
    server = request.getfixturevalue(kind.fixture or kind.server) if kind.server else None
    yield from _prepared(kind(tmp_path, kind.address_of(server) if kind.server else ""))


def _prepared(connector: Connector) -> Iterator[Job]:
    connector.set_up()
    found = Job(connector)
    yield found
    found.end()


@pytest.mark.parametrize(("kind", "call"), calls())
def test_the_successor_of_a_killed_job_loses_and_repeats_nothing(kind: type[Connector], job: Job, call: str) -> None:
    job.run_until_killed(call)
    job.start(1)
    job.feed(50)
    job.check()


@pytest.mark.parametrize("kind", cases())
def test_a_rescale_while_a_function_raises_loses_and_repeats_nothing(kind: type[Connector], job: Job) -> None:
    job.start(1)
    job.feed(200)
    job.until_written(100)
    job.restart_after_failure()
    job.feed(200)
    job.rescale(3)
    job.feed(200)
    job.until_failed("requested by the test")
    job.rescale(2)
    job.check()


@pytest.mark.parametrize("kind", cases())
def test_a_savepoint_is_restored_with_another_parallelism(kind: type[Connector], job: Job) -> None:
    job.start(2)
    job.feed(200)
    job.until_written(100)
    savepoint = job.stop()
    job.feed(100)
    job.start(3, savepoint)
    job.feed(100)
    job.check()


@pytest.mark.parametrize("kind", cases(lambda kind: bool(kind.refused or kind.undecodable)))
def test_a_poison_record_fails_the_job_until_the_program_skips_it(kind: type[Connector], job: Job) -> None:
    job.start(2)
    job.feed(100)
    job.until_written(100)
    text = job.feed_poison()
    job.until_failed(text)
    job.end()
    (job.connector.folder / "healed").touch()
    job.start(2)
    job.feed(100)
    job.check()


@pytest.mark.parametrize("kind", cases(lambda kind: kind.renews_credentials))
def test_a_job_continues_with_renewed_credentials(kind: type[Connector], job: Job) -> None:
    job.start(2)
    job.feed(100)
    job.until_written(100)
    job.connector.renew_credentials()
    job.feed(100)
    job.check()


@pytest.mark.parametrize("kind", cases(lambda kind: bool(kind.server)))
def test_a_killed_or_paused_server_loses_and_repeats_nothing(kind: type[Connector], tmp_path: Path) -> None:
    with kind.own_server(tmp_path) as server:
        for job in _prepared(kind(tmp_path, kind.address_of(server))):
            job.start(2)
            for fault in kind.faults:
                job.feed(200)
                job.until_written(len(job.numbers) - 150)
                job.feed(500)
                if fault == "kill":
                    server.kill()
                    server.restart()
                else:
                    server.pause()
                    time.sleep(kind.pause_s)
                    server.resume()
            job.check()
