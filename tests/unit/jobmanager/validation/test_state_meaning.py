"""Changes of state in an upgrade. `penstock check --against` and the start of a job report the same.

The job's events list the changes.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.datastream.window import FieldAggregate
from penstock.jobmanager.job.requests import Operation
from penstock.jobmanager.process import launch
from penstock.jobmanager.process.session.session import SubmitOptions
from tests.in_process import environment, started, until

AGGREGATES = {
    "sum": FieldAggregate.sum(1),
    "sum and max": FieldAggregate.of(FieldAggregate.sum(1), FieldAggregate.max(1)),
    "max of another field": FieldAggregate.max(0),
}


def build(env: StreamExecutionEnvironment, aggregate: str) -> StreamExecutionEnvironment:
    numbers = DataGeneratorSource(lambda n: (n % 2, n), None, 1000.0)
    stream = env.from_source(numbers, None, "numbers").uid("numbers")
    stream.key_by(0).aggregate(AGGREGATES[aggregate]).name("totals").uid("totals").add_sink(str).uid("end")
    return env


def main() -> None:
    build(StreamExecutionEnvironment.get_execution_environment(), os.environ["CHECKED_AGGREGATE"]).execute("checked")


@pytest.fixture(scope="module")
def savepoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    master = started(build(environment(tmp_path_factory.mktemp("before")), "sum"))
    until(lambda: master.checkpoints.coordinator.latest is not None, master)
    operation = master.request(Operation("stop"))
    assert operation.wait(60)
    return str(operation.location)


def checked(monkeypatch: pytest.MonkeyPatch, savepoint: str, aggregate: str) -> Any:
    monkeypatch.setenv("CHECKED_AGGREGATE", aggregate)
    return launch.check(entry=f"{__name__}:main", args=[], parallelism=None, against=savepoint, configuration={})


def test_a_check_lists_the_changes_of_a_restore(monkeypatch: pytest.MonkeyPatch, savepoint: str) -> None:
    report = checked(monkeypatch, savepoint, "sum and max")
    assert report["ok"]
    assert report["state_changes"] == [{"operator": "totals", "message": "max(1) is new and starts empty"}]
    assert checked(monkeypatch, savepoint, "sum")["state_changes"] == []


def test_the_events_of_a_job_list_the_changes_of_its_restore(tmp_path: Path, savepoint: str) -> None:
    master = started(build(environment(tmp_path), "sum and max"), SubmitOptions(restore_path=savepoint))
    until(lambda: master.checkpoints.coordinator.latest is not None, master)
    events = [str(event) for event in master.history.events]
    assert any("restored with a change: totals: max(1) is new and starts empty" in event for event in events), events
    operation = master.request(Operation("stop"))
    assert operation.wait(60)


def test_a_check_and_a_start_refuse_with_the_same_message(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, savepoint: str
) -> None:
    report = checked(monkeypatch, savepoint, "max of another field")
    (problem,) = report["problems"]
    assert (report["ok"], problem["code"], problem["operator"]) == (False, "RESTORE_REFUSED", "totals")
    assert "uid 'totals'" in problem["message"]
    with pytest.raises(Exception, match="does not fit the operator") as refused:
        started(build(environment(tmp_path), "max of another field"), SubmitOptions(restore_path=savepoint))
    assert problem["message"] in str(refused.value)
