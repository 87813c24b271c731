"""State that clients look up by its queryable name over REST, as of the newest checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from penstock.cli.errors import RequestFailed, UsageError
from penstock.cli.queryable_state import QueryableStateClient
from penstock.common.configuration import Configuration
from penstock.common.errors import InvalidJob
from penstock.connectors.simple.datagen import DataGeneratorSource
from penstock.datastream.functions import KeyedProcessFunction, RuntimeContext
from penstock.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from penstock.graph.executor import executing_on
from penstock.jobmanager.job.requests import Operation
from penstock.jobmanager.process.reading.job_insight import JobInsights
from penstock.jobmanager.process.session.session import Session
from penstock.rest.errors import BadRequest, NotFound
from tests.in_process import InProcess, environment, until
from tests.unit.cli.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.jobmanager.job.job_master import JobMaster

RECORDS = [(key, n) for n in range(1, 4) for key in range(8)]


class Sizes(KeyedProcessFunction):
    """A function with two states, one of them queryable."""

    def open(self, runtime_context: RuntimeContext) -> None:
        by_size = MapStateDescriptor("by size", str, int)
        by_size.set_queryable("sizes")
        self.by_size = runtime_context.get_map_state(by_size)
        self.count = runtime_context.get_state(ValueStateDescriptor("count", int, default=0))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        self.by_size.put("small", value[1])
        self.count.update(self.count.value() + 1)  # type: ignore[operator]
        yield value


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    session = Session(InProcess())
    yield session
    session.stop()


@pytest.fixture(scope="module")
def url(session: Session) -> Iterator[str]:
    server = session.serve(Configuration({"rest.port": "0"}))
    assert server is not None
    yield server.url
    server.stop()


@pytest.fixture(scope="module", params=["hashmap", "rocksdb"])
def job(
    request: pytest.FixtureRequest, session: Session, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JobMaster]:
    """Start a job that has read all of its records and has a checkpoint with its state.

    A second source keeps it running.
    """
    folder: Path = tmp_path_factory.mktemp("job")
    env = environment(folder, **{"parallelism.default": "2", "state.backend.type": request.param})
    keyed = env.from_collection(RECORDS).uid("records").key_by(lambda record: record[0])
    keyed.process(Sizes()).uid("sizes").print()
    keyed.as_queryable_state("latest").uid("latest")
    added = ReducingStateDescriptor("added", lambda a, b: (a[0], a[1] + b[1]), None)
    keyed.as_queryable_state("sums", added)
    env.from_source(DataGeneratorSource(lambda index: index, records_per_second=50), None, "Ticks").uid("ticks").print()
    with executing_on(session):
        env.execute_async(f"clicks in {request.param}")
    master = session.dispatcher.jobs()[-1]
    insight = JobInsights(lambda job_id: master)
    until(lambda: {"latest", "sizes", "sums"} <= set(master.metrics.queryable()), master)
    completed = master.checkpoints.coordinator.history.overview()["counts"]["completed"]
    until(lambda: master.checkpoints.coordinator.history.overview()["counts"]["completed"] > completed + 2, master)
    until(lambda: bool(insight.state_entries("", "count", None, "0", 1).entries), master)
    yield master
    master.request(Operation("cancel"))
    master.wait(30)


@pytest.fixture
def insight(job: JobMaster) -> JobInsights:
    return JobInsights(lambda job_id: job)


@pytest.mark.parametrize(
    ("name", "value"), [("latest", [5, 3]), ("sums", [5, 6]), ("added", [5, 6]), ("sizes", {"small": 3}), ("count", 3)]
)
def test_a_state_is_found_by_its_queryable_name_and_by_its_own(insight: JobInsights, name: str, value: Any) -> None:
    found = insight.state_entries("", name, None, "5", 10)
    assert [(entry["key"], entry["value"]) for entry in found.entries] == [(5, value)]


def test_the_list_marks_queryable_states(insight: JobInsights) -> None:
    names = {(state.uid, state.name): state.queryable for state in insight.states("")}
    assert names["sizes", "by size"] == "sizes"
    assert names["sizes", "count"] == ""
    assert names["latest", "latest"] == "latest"


def test_the_error_for_an_unknown_name_lists_the_known_names(insight: JobInsights) -> None:
    with pytest.raises(NotFound) as refused:
        insight.state_entries("", "lastest", None, "5", 1)
    for name in ("latest", "sizes", "sums", "added", "by size", "count"):
        assert name in refused.value.remedy


def test_a_key_of_another_type_is_refused_with_a_valid_example(insight: JobInsights) -> None:
    with pytest.raises(BadRequest, match="the key 'five' is a text") as refused:
        insight.state_entries("", "latest", None, "five", 1)
    assert "write a number as JSON, such as " in refused.value.remedy


def test_a_key_without_a_value_is_not_found(insight: JobInsights) -> None:
    assert insight.state_entries("", "latest", None, "99", 1).entries == []


def test_a_descriptor_is_queryable_under_one_name() -> None:
    descriptor = ValueStateDescriptor("count", int)
    assert not descriptor.is_queryable()
    descriptor.set_queryable("clicks")
    with pytest.raises(InvalidJob, match="queryable already, as 'clicks'"):
        descriptor.set_queryable("hits")
    for name in ("", None):
        with pytest.raises(InvalidJob, match="unique in the job"):
            ValueStateDescriptor("count", int).set_queryable(name)  # type: ignore[arg-type]


def test_only_value_and_reducing_states_are_queryable_streams() -> None:
    from penstock.datastream import StreamExecutionEnvironment

    env = StreamExecutionEnvironment.get_execution_environment(Configuration({}))
    keyed = env.from_collection([1]).key_by(lambda value: value)
    with pytest.raises(InvalidJob, match="set_queryable"):
        keyed.as_queryable_state("all", ListStateDescriptor("all", int))  # type: ignore[arg-type]


def test_a_client_gets_one_or_many_values(job: JobMaster, url: str) -> None:
    with QueryableStateClient(url) as client:
        assert client.get(job.program.name, "latest", 5) == [5, 3]
        assert client.get(job.job_id, "sizes", 5) == {"small": 3}
        assert client.get(job.job_id, "latest", 99) is None
        under_way = {key: client.get_kv_state(job.job_id, "sums", key) for key in range(8)}
        assert {key: future.result(20) for key, future in under_way.items()} == {key: [key, 6] for key in range(8)}
        found = client.look_up(job.job_id, "latest", 5)
        assert found.checkpoint_id > 0


@pytest.mark.parametrize(
    ("name", "key", "says"),
    [
        ("nothing", 5, "no operator has a state 'nothing'"),
        ("latest", "5x", "is a text"),
        ("latest", None, "is a null"),
    ],
)
def test_a_client_receives_the_reason_of_a_missing_answer(
    job: JobMaster, url: str, name: str, key: Any, says: str
) -> None:
    with QueryableStateClient(url) as client, pytest.raises(RequestFailed, match=says):
        client.get(job.job_id, name, key)


def test_a_key_that_json_cannot_represent_is_refused(job: JobMaster, url: str) -> None:
    with (
        QueryableStateClient(url) as client,
        pytest.raises(UsageError, match="a key of type bytes cannot be looked up"),
    ):
        client.get(job.job_id, "latest", b"5")


def test_the_command_line_shows_a_key_the_first_entries_and_the_states(job: JobMaster, url: str) -> None:
    terminal = Terminal({"PENSTOCK_MASTER": url})
    of_key = terminal("state", "get", job.job_id, "latest", "5")
    assert of_key.code == 0, of_key.err
    assert "[5, 3]" in of_key.out
    assert "Checkpoint " in of_key.out
    lines = terminal("state", "get", job.job_id, "sums", "--format", "json", "--limit", "3").lines
    assert len([line for line in lines if line.startswith("{")]) == 3  # the job also prints
    assert "sizes" in terminal("state", "get", job.job_id).out
    refused = terminal("state", "get", job.job_id, "latests", "5")
    assert refused.code != 0
    assert "existing states" in refused.err
