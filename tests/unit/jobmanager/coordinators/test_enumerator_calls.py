"""Enumerators that hang. An enumerator is user code in the JobManager, which reports the line and abandons the call."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from penstock.checkpoint.files.manifest import SourceState
from penstock.common.errors import EpochFailed, UserFunctionError
from penstock.connectors.core.source import ReaderContext, Source, SourceReader, Split, SplitEnumerator
from penstock.jobmanager.coordinators.source_coordinator import SourceCoordinator
from penstock.jobmanager.failover.failures import JobFailed
from penstock.taskmanager.protocol import STEP_TIMEOUT

HOOKS = ("create_enumerator", "restore", "discover", "snapshot", "close")


class Listing(SplitEnumerator):
    """An enumerator that waits in one of its hooks until the test releases it."""

    def __init__(self, source: Listings) -> None:
        self._source = source
        self.closed = False

    def _wait_in(self, hook: str) -> None:
        if hook == self._source.is_slow_in:
            self._source.go_on.wait(0.5)
        if hook == self._source.waits_in:
            self._source.here.set()
            self._source.go_on.wait(60)

    def restore(self, state: object) -> None:
        self._wait_in("restore")

    def discover(self) -> list[Split]:
        self._wait_in("discover")
        if self._source.waits_in == "raises":
            raise KeyError("no such bucket")
        return [Split("a", {})]

    def snapshot(self) -> None:
        self._wait_in("snapshot")

    def close(self) -> None:
        self._wait_in("close")
        self.closed = True


class Listings(Source):
    def __init__(self, waits_in: str) -> None:
        self.waits_in = waits_in
        self.is_slow_in = ""
        self.here = threading.Event()
        self.go_on = threading.Event()
        self.made: list[Listing] = []

    def create_enumerator(self) -> SplitEnumerator:
        if self.waits_in == "create_enumerator":
            self.here.set()
            self.go_on.wait(60)
        self.made.append(Listing(self))
        return self.made[-1]

    def create_reader(self, context: ReaderContext) -> SourceReader:
        raise NotImplementedError("nothing is read")


@pytest.fixture
def listings(request: pytest.FixtureRequest) -> Iterator[Listings]:
    source = Listings(request.param)
    yield source
    source.go_on.set()


def coordinator(source: Listings, limit_s: float) -> SourceCoordinator:
    return SourceCoordinator("in", source, name="listings", location="job.py:7", call_limit_s=limit_s)


def work(of: SourceCoordinator) -> None:
    of.start_attempt(1, SourceState([], {"state": None}))
    of.discover(0)
    of.snapshot()
    of.close()


@pytest.mark.parametrize("listings", HOOKS, indirect=True)
def test_a_call_that_times_out_is_a_failure_with_the_line(listings: Listings) -> None:
    with pytest.raises(JobFailed) as caught:
        work(coordinator(listings, 0.3))
    failure = caught.value.failure
    assert (failure.kind, failure.name, failure.location) == (STEP_TIMEOUT, "listings", "job.py:7")
    assert "has not ended within 0.3 s" in failure.message
    assert __file__ in failure.message
    assert "go_on.wait(60)" in failure.traceback
    assert "penstock.source.enumerator-timeout" in failure.remedy


@pytest.mark.parametrize("listings", ["discover"], indirect=True)
def test_the_next_attempt_creates_another_enumerator(listings: Listings) -> None:
    source = coordinator(listings, 0.3)
    source.start_attempt(1, None)
    with pytest.raises(JobFailed):
        source.discover(0)
    hung, listings.waits_in = listings.made[-1], "nowhere"
    work(source)
    assert listings.made[-1].closed
    assert not hung.closed, "a thread is still in it"


@pytest.mark.parametrize("listings", HOOKS, indirect=True)
def test_a_job_that_must_end_does_not_wait(listings: Listings) -> None:
    source = coordinator(listings, 600)
    ending = threading.Thread(target=lambda: listings.here.wait(60) and source.give_up())
    ending.start()
    with pytest.raises(EpochFailed, match=r"the enumerator of source 'listings' .* was abandoned"):
        work(source)
    source.close()
    ending.join()
    assert not any(enumerator.closed for enumerator in listings.made)


@pytest.mark.parametrize("listings", ["nowhere"], indirect=True)
def test_a_responsive_enumerator_is_closed_by_a_job_that_must_end(listings: Listings) -> None:
    source = coordinator(listings, 600)
    source.start_attempt(1, None)
    source.give_up()
    listings.is_slow_in = "close"
    source.close(30.0)
    assert listings.made[-1].closed


@pytest.mark.parametrize("listings", ["raises"], indirect=True)
def test_an_exception_of_an_enumerator_names_its_line(listings: Listings) -> None:
    source = coordinator(listings, 600)
    source.start_attempt(1, None)
    with pytest.raises(UserFunctionError, match="no such bucket") as caught:
        source.discover(0)
    assert (caught.value.operator, caught.value.location) == ("listings", "job.py:7")
    assert "in discover" in caught.value.trace
