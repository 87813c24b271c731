"""Fixtures for pytest. They are available when Penstock is installed, without an import or a conftest.

    @pytest.mark.penstock(parallelism=2, backend="rocksdb")
    def test_numbers_are_doubled(job_harness):
        numbers = job_harness.source("numbers")
        job_harness.collect(numbers.map(lambda n: n * 2), "doubled")
        job_harness.push("numbers", 1, 2, 3)
        assert job_harness.outputs("doubled") == [2, 4, 6]

The plugin imports the engine only if a test uses one of these fixtures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from penstock.testing import JobHarness, OperatorHarness

MARK = "penstock"


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark of these fixtures with pytest."""
    config.addinivalue_line("markers", f"{MARK}(**settings): how `job_harness` is made, e.g. parallelism=2")


@pytest.fixture
def job_harness(request: pytest.FixtureRequest) -> Iterator[JobHarness]:
    """A `JobHarness` for one job, with the arguments of the test's mark `penstock`. It is shut down at the end."""
    from penstock.testing import JobHarness

    settings: dict[str, Any] = {}
    for mark in reversed(list(request.node.iter_markers(MARK))):
        settings |= mark.kwargs
    with JobHarness(**settings) as harness:
        yield harness


@pytest.fixture
def operator_harness() -> Iterator[Callable[..., OperatorHarness]]:
    """A function that creates an `OperatorHarness` for a process function. The function may be called several times. All harnesses are
    closed at the end.
    """
    from penstock.testing import OperatorHarness

    with ExitStack() as stack:
        yield lambda *arguments, **settings: stack.enter_context(OperatorHarness(*arguments, **settings))
