"""A rescale to more slots than there are: a local cluster starts workers for it, any other refuses."""

from __future__ import annotations

import pytest

from penstock.common.configuration import Configuration
from penstock.common.errors import NotEnoughSlots
from penstock.common.executor import executing_on
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.jobmanager.in_process import InProcessRunner
from penstock.jobmanager.job_master import JobMaster
from penstock.jobmanager.requests import Operation
from penstock.jobmanager.session import Session
from tests.in_process import OneRunner


class Growing(InProcessRunner):
    """Has 2 slots, and makes more up to a limit."""

    def __init__(self, limit: int) -> None:
        super().__init__(2)
        self.limit = limit

    def ensure_slots(self, count: int) -> None:
        if count > self.limit >= self._capacity + 1:
            raise NotEnoughSlots(f"{self.limit} of {count} slots came up", remedy="look at the logs")
        self._capacity = max(self._capacity, min(count, self.limit))


def running(limit: int) -> JobMaster:
    conf = Configuration()
    conf.set_string("rest.port", "-1")
    env = StreamExecutionEnvironment.get_execution_environment(conf).set_parallelism(2)
    env.from_source(DataGeneratorSource(int, None, 100.0), None, "numbers").key_by(int).sum().add_sink(print)
    session = Session(OneRunner(Growing(limit)))
    with executing_on(session):
        env.execute_async("rescaled")
    return session.dispatcher.jobs()[0]


@pytest.mark.parametrize(
    ("limit", "wanted", "failure"),
    [
        (8, 4, None),
        (2, 4, "parallelism 4 needs 4 slots, the cluster has 2"),
        (3, 4, "3 of 4 slots came up"),
        (200, 150, "not in 1..128"),
    ],
)
def test_rescale_beyond_the_slots_there_are(limit: int, wanted: int, failure: str | None) -> None:
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
