"""Queryable state of a running job as its tasks hold it: by subtask, through crashes and rescales, under many requests."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from penstock.cli.errors import RequestFailed
from penstock.cli.queryable_state import QueryableStateClient
from penstock.common.configuration import Configuration
from penstock.common.errors import NotNow
from penstock.common.job_status import JobStatus
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.datastream.functions import KeyedProcessFunction, RuntimeContext
from penstock.datastream.state import MapStateDescriptor, ReducingStateDescriptor, ValueStateDescriptor
from penstock.graph.executor import executing_on
from tests.in_process import until
from tests.integration.engine.selfcheck.driver import Driver, environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.jobmanager.process.session.embedded import EmbeddedExecutor

pytestmark = pytest.mark.spark

KEYS = 16
REQUESTS = 600
PER_S = 2_000.0


class Counted(KeyedProcessFunction):
    """A function that changes two states together. No look-up may see only one of the changes."""

    def open(self, runtime_context: RuntimeContext) -> None:
        pair = MapStateDescriptor("pair", str, int)
        pair.set_queryable("pairs")
        self.pair = runtime_context.get_map_state(pair)
        self.private = runtime_context.get_state(ValueStateDescriptor("private", int))

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[int]:
        count = (self.pair.get("count") or 0) + 1
        self.pair.put("count", count)
        self.private.update(count)
        self.pair.put("negated", -count)
        yield from ()


@pytest.mark.parametrize(
    ("runner", "backend"),
    [("batched", "hashmap"), ("pipelined", "hashmap"), pytest.param("pipelined", "rocksdb", marks=pytest.mark.slow)],
    indirect=["runner"],
    scope="session",
)
def test_tasks_respond_for_their_keys(executor: EmbeddedExecutor, settings: dict[str, str], backend: str) -> None:
    env = environment({**settings, "state.backend.type": backend}, 2)
    numbers = env.from_source(DataGeneratorSource(int, None, PER_S), None, "numbers").key_by(lambda n: n % KEYS)
    numbers.process(Counted()).print()
    numbers.as_queryable_state("sums", ReducingStateDescriptor("sums", lambda a, b: a + b, None))
    with executing_on(executor):
        env.execute_async(f"counted in {backend}")
    master = executor.session.dispatcher.jobs()[-1]
    driver = Driver(executor, master)
    until(
        lambda: master.history.status is JobStatus.RUNNING and {"pairs", "sums"} <= set(master.metrics.queryable()),
        master,
    )
    server = executor.session.serve(Configuration({"rest.port": "0"}))
    assert server is not None
    try:
        with (
            QueryableStateClient(server.url, consistency="live") as live,
            QueryableStateClient(server.url) as stored,
            QueryableStateClient(server.url, consistency="live", patience=0.0) as hasty,
        ):
            if settings["penstock.runner"] == "batched":
                with pytest.raises(RequestFailed, match="tasks of the batched runner do not support lookups"):
                    live.get(master.job_id, "pairs", 3)
                return
            _is_current(live, stored, master.job_id)
            _refuses(live, master.job_id)
            _bears_many(live, server.url, master)
            _survives(live, hasty, driver)
    finally:
        server.stop()
        driver.ask("cancel")
        master.wait(60)


def _count(client: QueryableStateClient, job: str, key: int) -> int:
    pair: dict[str, int] = client.get(job, "pairs", key)
    assert pair["count"] == -pair["negated"], pair
    return pair["count"]


def _is_current(live: QueryableStateClient, stored: QueryableStateClient, job: str) -> None:
    """Check that values grow for every key, and that they are newer than the checkpoint, which is taken twice a second."""
    ahead = 0
    for key in range(KEYS):
        first = _count(live, job, key)
        deadline = time.monotonic() + 30
        while _count(live, job, key) <= first:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        ahead += live.get(job, "sums", key) > (stored.get(job, "sums", key) or 0)  # a first checkpoint may lack the key
    assert ahead
    found = live.look_up(job, "pairs", 3)
    assert (found.checkpoint_id, found.attempt > 0) == (0, True)
    assert abs(found.timestamp / 1000 - time.time()) < 30


def _refuses(live: QueryableStateClient, job: str) -> None:
    assert live.get(job, "pairs", KEYS + 1) is None
    with pytest.raises(RequestFailed, match="is a text, but the keys of state 'pair' have another type"):
        live.get(job, "pairs", "three")
    with pytest.raises(RequestFailed, match="no state has the queryable name 'private'") as refused:
        live.get(job, "private", 3)
    assert "pairs, sums" in refused.value.remedy


def _bears_many(live: QueryableStateClient, url: str, master: Any) -> None:
    """Send many requests from 32 threads as fast as REST responds. Records and checkpoints continue."""
    completed = master.checkpoints.coordinator.history.overview()["counts"]["completed"]
    before, began = sum(_count(live, master.job_id, key) for key in range(KEYS)), time.monotonic()

    def ask(n: int) -> str:
        try:
            _count(hasty, master.job_id, n % KEYS)
        except RequestFailed as refused:
            return refused.code
        return "answered"

    with (
        QueryableStateClient(url, consistency="live", patience=0.0, timeout=60) as hasty,
        ThreadPoolExecutor(32) as pool,
    ):
        outcomes = list(pool.map(ask, range(REQUESTS)))
    assert set(outcomes) <= {"answered", NotNow.code}
    assert outcomes.count("answered") > 50
    seconds = time.monotonic() - began
    rate = (sum(_count(live, master.job_id, key) for key in range(KEYS)) - before) / seconds
    assert rate > 0.05 * PER_S, (rate, seconds)  # on an idle machine, a single client leaves at least 0.3 of the rate
    assert master.checkpoints.coordinator.history.overview()["counts"]["completed"] > completed


def _survives(live: QueryableStateClient, hasty: QueryableStateClient, driver: Driver) -> None:
    """Crash a task. A client without retries gets an error, and a patient one gets a result of the next attempt. Then rescale."""
    master = driver.master
    attempt = live.look_up(master.job_id, "pairs", 3).attempt
    driver.kill_python_worker()
    refusal = _refusal(lambda: hasty.look_up(master.job_id, "pairs", 3))
    assert refusal.code == NotNow.code
    assert live.look_up(master.job_id, "pairs", 3).attempt > attempt
    assert driver.ask("rescale", parallelism=3).result == 3
    for key in range(KEYS):
        assert _count(live, master.job_id, key) > 0


def _refusal(look: Callable[[], object]) -> RequestFailed:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            look()
        except RequestFailed as refused:
            return refused
    raise AssertionError("no request was refused within 30 s")
