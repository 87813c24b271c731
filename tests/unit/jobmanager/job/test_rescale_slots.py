"""A rescale to more slots than exist, unless a local cluster starts workers for it, or above a limit."""

from __future__ import annotations

import pytest

from penstock.common.configuration import Configuration
from penstock.common.errors import NotEnoughSlots
from penstock.common.job_status import JobStatus
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.graph.executor import executing_on
from penstock.jobmanager.job.job_master import JobMaster
from penstock.jobmanager.job.requests import Operation
from penstock.jobmanager.process.session.session import Session
from penstock.jobmanager.runners.in_process import InProcessRunner
from tests.in_process import OneRunner, until


class Growing(InProcessRunner):
    """A runner with 2 slots that adds more up to its limit."""

    def __init__(self, limit: int) -> None:
        super().__init__(min(2, limit))
        self.limit = limit

    def ensure_slots(self, count: int) -> None:
        if count > self.limit >= self._capacity + 1:
            raise NotEnoughSlots(f"{self.limit} of {count} slots came up", remedy="look at the logs")
        self._capacity = max(self._capacity, min(count, self.limit))


def running(limit: int, max_parallelism: int | None = None) -> JobMaster:
    """Start a sum in 2 subtasks, with at most `limit` slots."""
    conf = Configuration()
    conf.set_string("rest.port", "-1")
    env = StreamExecutionEnvironment.get_execution_environment(conf).set_parallelism(2)
    stream = env.from_source(DataGeneratorSource(int, None, 100.0), None, "numbers").key_by(int).sum().name("sums")
    if max_parallelism is not None:
        stream.set_max_parallelism(max_parallelism)
    stream.add_sink(print)
    session = Session(OneRunner(Growing(limit)))
    with executing_on(session):
        env.execute_async("rescaled")
    return session.dispatcher.jobs()[0]


@pytest.mark.parametrize(
    ("limit", "wanted", "failure"),
    [
        (8, 4, None),
        (2, 4, "parallelism 4 needs 4 slots, but the cluster has 2"),
        (3, 4, "3 of 4 slots came up"),
        (200, 150, "not in 1..128"),
    ],
)
def test_a_rescale_beyond_the_available_slots_is_refused(limit: int, wanted: int, failure: str | None) -> None:
    master = running(limit)
    try:
        operation = master.request(Operation("rescale", {"parallelism": wanted}))
        assert operation.wait(30)
        if failure is None:
            assert (operation.failure, operation.result, master.parallelism) == (None, wanted, wanted)
        else:
            assert operation.failure is not None
            assert failure in operation.failure
            assert master.parallelism == 2
    finally:
        master.request(Operation("cancel"))
        master.wait(30)


@pytest.mark.parametrize("limit", [8, 2])
def test_a_rescale_above_an_operators_max_parallelism_is_refused_and_the_job_keeps_running(limit: int) -> None:
    master = running(limit, max_parallelism=3)
    try:
        until(lambda: master.history.status is JobStatus.RUNNING, master)
        slots = master.runner.available_slots()
        refused = master.request(Operation("rescale", {"parallelism": 5}))
        assert refused.wait(30)
        assert refused.failure is not None
        assert "operator 'sums' has parallelism 5, above its max parallelism 3" in refused.failure
        assert "raise set_max_parallelism" in refused.failure
        assert master.runner.available_slots() == slots
        checkpoint = master.request(Operation("checkpoint"))
        assert checkpoint.wait(30)
        assert (checkpoint.failure, master.history.status, master.attempt) == (None, JobStatus.RUNNING, 1)
        assert (master.parallelism, master.scheduler.wanted) == (2, 2)
    finally:
        master.request(Operation("cancel"))
        master.wait(30)


def test_a_rescale_of_a_job_that_waits_for_its_slots_is_refused_as_well() -> None:
    master = running(1, max_parallelism=3)
    try:
        until(lambda: any("waiting for slots" in event.text for event in master.history.events), master)
        refused = master.request(Operation("rescale", {"parallelism": 5}))
        assert refused.wait(30)
        assert refused.failure is not None
        assert "above its max parallelism 3" in refused.failure
        assert not master.is_done
    finally:
        master.request(Operation("cancel"))
        master.wait(30)
