"""The values that the dashboard shows are those of the job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from penstock.common.errors import StateNotFound
from penstock.datastream.functions import KeyedProcessFunction, RuntimeContext
from penstock.datastream.state import MapStateDescriptor, ValueStateDescriptor
from penstock.jobmanager.job.requests import Operation
from penstock.jobmanager.process.reading import job_insight
from penstock.jobmanager.process.reading.job_insight import JobInsights
from penstock.rest.errors import BadRequest, NotFound
from tests.in_process import environment, started, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.jobmanager.job.job_master import JobMaster

KEYS: list[Any] = ["a", "7", 7, ("a", 1), "b"]


class Keeps(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", int))
        self.by_size = runtime_context.get_map_state(MapStateDescriptor("by size", str, int))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        self.count.update((self.count.value() or 0) + 1)
        self.by_size.put("small", 1)
        yield value


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobMaster]:
    """Start a job that has read all of its records and has a checkpoint with its state.

    A second source keeps it running.
    """
    env = environment(tmp_path_factory.mktemp("job"), **{"parallelism.default": "2"})
    env.from_collection(KEYS).uid("keys").key_by(lambda value: value).process(Keeps()).name("Keeps").uid(
        "keeps"
    ).print()
    from penstock.connectors.simple.datagen import DataGeneratorSource

    env.from_source(DataGeneratorSource(lambda index: index, records_per_second=50), None, "Ticks").uid("ticks").print()
    master = started(env)
    history = master.checkpoints.coordinator.history
    until(lambda: bool(history.overview()["counts"]["completed"] > 2), master)
    yield master
    master.request(Operation("cancel"))
    master.wait(30)


@pytest.fixture
def insight(job: JobMaster) -> JobInsights:
    return JobInsights(lambda job_id: job)


def test_states_are_named_with_their_operator_and_bytes(insight: JobInsights) -> None:
    found = {(state.uid, state.name): state for state in insight.states("")}
    assert {("keeps", "count"), ("keeps", "by size"), ("ticks", "splits")} <= set(found)
    assert found["keeps", "count"].operator == "Keeps"
    assert found["keeps", "count"].operator_bytes > 0


@pytest.mark.parametrize(
    ("message", "keys"),
    [
        ("a", ["a"]),
        ("7", [7, "7"]),
        ('"7"', ["7"]),
        ('["a", 1]', [["a", 1]]),
        ("nothing", []),
        ("NaN", []),
        ('{"a": 1}', []),
        ("[" * 5000, []),
    ],
)
def test_a_key_is_found_as_json_or_as_text(insight: JobInsights, message: str, keys: list[Any]) -> None:
    found = insight.state_entries("", "count", None, message, 10)
    assert [entry["key"] for entry in found.entries] == keys
    assert all(entry["value"] == 1 for entry in found.entries)


def test_a_scan_returns_the_first_entries_and_whether_more_exist(insight: JobInsights) -> None:
    assert len(insight.state_entries("", "count", "keeps", None, 100).entries) == len(KEYS)
    found = insight.state_entries("", "by size", None, None, 2)
    assert (len(found.entries), found.is_truncated) == (2, True)
    assert found.entries[0]["value"] == {"small": 1}


def test_an_unknown_state_is_not_found(insight: JobInsights) -> None:
    with pytest.raises(NotFound, match="no operator has a state 'x'"):
        insight.state_entries("", "x", None, None, 1)
    with pytest.raises(StateNotFound):
        insight.state_entries("", "x", "keeps", None, 1)


def test_state_that_is_too_large_for_this_process_is_refused(
    insight: JobInsights, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_insight, "MAX_BYTES", 0)
    with pytest.raises(BadRequest, match="too much for the memory of the JobManager") as refused:
        insight.state_entries("", "count", None, "a", 1)
    assert "penstock state read" in refused.value.remedy


def test_past_checkpoints_name_the_slowest_subtask(insight: JobInsights) -> None:
    past = insight.past_checkpoints("")
    assert len(past) > 2
    assert [entry.id for entry in past] == sorted(entry.id for entry in past)
    assert past[0].status == "COMPLETED"
    assert past[0].slowest[1] in (0, 1)
    assert past[0].end >= past[0].trigger


def test_sources_report_their_progress(insight: JobInsights) -> None:
    found = insight.connectors("")
    ticks = next(source for source in found.sources if source.uid == "ticks")
    assert (ticks.name, ticks.split_count, sorted(split.owner for split in ticks.splits)) == ("Ticks", 2, [0, 1])
    assert all(int(split.position) > 0 for split in ticks.splits)
    assert len(found.sinks) == 2


def test_the_timeline_keeps_more_checkpoints_than_the_history(insight: JobInsights, job: JobMaster) -> None:
    history = job.checkpoints.coordinator.history
    until(lambda: len(insight.past_checkpoints("")) > 12, job)
    assert len(history.overview()["history"]) < len(insight.past_checkpoints(""))


def test_the_statuses_of_the_job_remain_in_order(job: JobMaster) -> None:
    assert [change.state for change in job.history.states][-1] == "RUNNING"
    times = [change.timestamp for change in job.history.states]
    assert times == sorted(times)


def test_without_a_checkpoint_no_state_can_be_inspected(tmp_path: Path) -> None:
    env = environment(tmp_path, **{"execution.checkpointing.interval": "1 h"})
    env.from_collection([1]).print()
    master = started(env)
    with pytest.raises(StateNotFound, match="no checkpoint is complete yet"):
        JobInsights(lambda job_id: master).states("")
    master.wait(30)
