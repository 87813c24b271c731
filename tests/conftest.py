"""Fixtures of all tests: one local cluster and one server of each kind for the whole session."""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from penstock.jobmanager.job.requests import Operation
from tests.servers import shared_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.jobmanager.process.session.embedded import EmbeddedExecutor

settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")
EXAMPLES = float(os.environ.get("PENSTOCK_EXAMPLES", "1"))
"""Share of the examples of each Hypothesis test that run. `make test` sets it; all other commands run all examples."""
LEAST_EXAMPLES = 2


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run a share of the examples of property tests, and the tests with Spark processes first, because they take longest.

    At the end of a run, such a test would occupy one xdist worker while the others are idle.
    """
    if EXAMPLES != 1:
        for function in {
            getattr(item.obj, "__func__", item.obj) for item in items if isinstance(item, pytest.Function)
        }:
            _run_fewer_examples(function)
    items.sort(key=lambda item: (0, *_turn(item)) if item.get_closest_marker("spark") else (1,))


def _turn(item: pytest.Item) -> tuple[bool, str, Path]:
    """Sort tests that start their own processes before those that share a cluster, and the latter by runner and file."""
    if not isinstance(item, pytest.Function):
        return False, "", item.path
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    return "executor" in item.fixturenames, str(parameters.get("runner", "")), item.path


def _run_fewer_examples(function: Any) -> None:
    """Limit the examples of a Hypothesis test to its share. The attributes are those that Hypothesis itself sets."""
    if not getattr(function, "is_hypothesis_test", False):
        return
    given = getattr(function, "_hypothesis_internal_use_settings", None) or settings.default
    number = max(min(LEAST_EXAMPLES, given.max_examples), round(given.max_examples * EXAMPLES))
    function._hypothesis_internal_use_settings = settings(given, max_examples=number)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Exempt the imported modules and the tests from garbage collection. They live until the end of the session."""
    gc.collect()
    gc.freeze()


WORKERS = 2
"""Worker processes of the shared cluster. The first job that runs on it sets its number of slots."""


@pytest.fixture(scope="session", params=["batched", "pipelined"])
def runner(request: pytest.FixtureRequest) -> str:
    """Return the name of a runner. A test that runs on a cluster runs once with each of the two."""
    return str(request.param)


@pytest.fixture(scope="session")
def executor() -> Iterator[EmbeddedExecutor]:
    """Start a cluster of real processes with the first job that runs on it. All later jobs share it, whatever their runner is."""
    from penstock.jobmanager.process.session.embedded import EmbeddedExecutor

    executor = EmbeddedExecutor()
    executor.provider.least_workers = WORKERS
    executor.session.on_line = None
    yield executor
    executor.stop()


@pytest.fixture(autouse=True)
def _nothing_runs_on(request: pytest.FixtureRequest) -> Iterator[None]:
    """Cancel the job of a failed test, so that it does not occupy the slots of the next tests."""
    yield
    if "executor" in request.fixturenames and "runner" in request.fixturenames:
        for master in request.getfixturevalue("executor").session.dispatcher.jobs():
            if not master.is_done:
                master.request(Operation("cancel"))
                master.wait(30)


s3 = shared_server("s3", lambda server: server.create_bucket("engine"))
kafka = shared_server("kafka")
postgres = shared_server("postgres")
logical_postgres = shared_server("postgres", is_logical=True)
mariadb = shared_server("mariadb")
cassandra = shared_server("cassandra", passwords=True)
opensearch = shared_server("opensearch")
mongodb = shared_server("mongodb")
sqs = shared_server("sqs")
kinesis = shared_server("kinesis")
rabbitmq = shared_server("rabbitmq")
redis_server = shared_server("redis")
registry_server = shared_server("registry")
iceberg_catalog = shared_server("iceberg_catalog")
