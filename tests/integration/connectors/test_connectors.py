"""Each connector loses and repeats nothing, under any fault at any time.

A sink that writes at least once may repeat rows, and loses none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
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


def systems() -> list[Any]:
    """Return the connectors of each server. They run at the same time in the test that takes the server away."""
    servers = dict.fromkeys(kind.server for kind in CONNECTORS if kind.server)
    return [
        pytest.param(kinds, id=server, marks=marks(kinds[0], is_quick=True))
        for server in servers
        if (kinds := [kind for kind in CONNECTORS if kind.server == server])
    ]


def marks(kind: type[Connector], *, is_quick: bool) -> list[pytest.MarkDecorator]:
    if kind.server:
        return [getattr(pytest.mark, kind.marker or kind.server)]
    return [] if is_quick else [pytest.mark.slow]


def set_environment(kind: type[Connector], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in kind.environment.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def job(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    """Return a job with the connector of the test and the shared server. It is not started."""
    kind = request.getfixturevalue("kind")
    set_environment(kind, monkeypatch)
    server = request.getfixturevalue(kind.fixture or kind.server) if kind.server else None
    connector = kind(tmp_path, kind.address_of(server) if kind.server else "")
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


@pytest.mark.parametrize("kinds", systems())
def test_a_killed_or_paused_server_loses_and_repeats_nothing(
    kinds: list[type[Connector]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_environment(kinds[0], monkeypatch)
    folders = {kind: tmp_path / kind.name for kind in kinds}
    for folder in folders.values():
        folder.mkdir()
    ids = [kind(folder).id for kind, folder in folders.items()]
    with kinds[0].own_server(tmp_path, ids) as server, ExitStack() as ends:
        jobs = [Job(kind(folder, kind.address_of(server))) for kind, folder in folders.items()]
        for job in jobs:
            ends.callback(job.end)
            job.connector.set_up()
            job.start(2)
        for fault in ("pause",) if kinds[0].loses_data else ("kill", "pause"):
            for job in jobs:
                job.feed(200)
                job.until_written(len(job.numbers) - 150)
            for job in jobs:
                job.feed(300)
            if fault == "kill":
                server.kill()
                server.restart()
            else:
                server.pause()
                time.sleep(max(kind.pause_s for kind in kinds))
                server.resume()
        for job in jobs:
            job.check()
