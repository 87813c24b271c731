"""A check names the states that it could not compare: those that helpers declare, or that follow an `if`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.common.typeinfo import Types
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.jobmanager.job.requests import Operation
from penstock.jobmanager.process import launch
from tests.in_process import environment, started, until


class Counts(KeyedProcessFunction):
    declared: Any = int
    seen: Any

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.seen.update(self.seen.value())
        yield value


class Plainly(Counts):
    def open(self, runtime_context: Any) -> None:
        super().open(runtime_context)
        self.index = runtime_context.get_index_of_this_subtask()
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", int))


class InAHelper(Counts):
    def open(self, runtime_context: Any) -> None:
        self.declare(runtime_context)

    def declare(self, context: Any) -> None:
        self.seen = context.get_state(ValueStateDescriptor("seen", int))


class BehindAnIf(Counts):
    def open(self, runtime_context: Any) -> None:
        if self.declared is not None:
            self.seen = runtime_context.get_state(ValueStateDescriptor("seen", self.declared))


class OfATypeThatIsLookedUp(Counts):
    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", eval("int")))


class Changed(Counts):
    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", str))


def build(env: StreamExecutionEnvironment, function: KeyedProcessFunction) -> StreamExecutionEnvironment:
    numbers = env.from_source(DataGeneratorSource(int, None, 1000.0, type_info=int), None, "numbers").uid("numbers")
    numbers.key_by(lambda v: v % 2).process(function).name("counts").uid("counts").add_sink(str).uid("end")
    return env


def main() -> None:
    function = globals()[os.environ["CHECKED_FUNCTION"]]()
    build(StreamExecutionEnvironment.get_execution_environment(), function).execute("checked")


@pytest.fixture
def savepoint(tmp_path: Path) -> str:
    """Return the path of a savepoint with state of `counts`."""
    master = started(build(environment(tmp_path), Fills()))
    until(lambda: master.checkpoints.coordinator.latest is not None, master)
    operation = master.request(Operation("stop"))
    assert operation.wait(60)
    return str(operation.location)


class Fills(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", int))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.seen.update(value)
        yield value


@pytest.fixture
def check(savepoint: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[type[Counts]], Any]:
    def run(function: type[Counts]) -> Any:
        monkeypatch.setenv("CHECKED_FUNCTION", function.__name__)
        return checked(savepoint)

    return run


def checked(savepoint: str) -> Any:
    return launch.check(entry=f"{__name__}:main", args=[], parallelism=None, against=savepoint, configuration={})


def test_all_states_were_compared(check: Callable[[type[Counts]], Any]) -> None:
    report = check(Plainly)
    assert (report["ok"], report["not_looked_at"]) == (True, [])


@pytest.mark.parametrize(
    ("function", "statement"),
    [
        (InAHelper, "self.declare(runtime_context)"),
        (BehindAnIf, "if self.declared is not None:"),
        (OfATypeThatIsLookedUp, "self.seen = runtime_context.get_state("),
    ],
)
def test_a_state_that_was_not_compared_is_named_with_its_line(
    check: Callable[[type[Counts]], Any], function: type[Counts], statement: str
) -> None:
    report = check(function)
    assert report["ok"]
    (unseen,) = report["not_looked_at"]
    assert unseen["operator"] == "counts"
    place, _, words = unseen["statement"].partition(": ")
    file, _, line = place.rpartition(":")
    assert file == __file__
    assert statement in words
    assert statement in Path(__file__).read_text().splitlines()[int(line) - 1]


def test_an_incompatible_state_is_still_a_problem(check: Callable[[type[Counts]], Any]) -> None:
    report = check(Changed)
    assert [problem["code"] for problem in report["problems"]] == ["STATE_SCHEMA_INCOMPATIBLE"]


def schema(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "Seen", "fields": list(fields)})


NUMBER = {"name": "n", "type": "int"}
SEEN = schema(NUMBER)
WIDER = schema({"name": "n", "type": "long"}, {"name": "more", "type": "string", "default": ""})
OTHER = schema({"name": "n", "type": "int"}, {"name": "more", "type": "string"})


class FillsAvro(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.AVRO(SEEN)))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.seen.update({"n": value})
        yield value


class ReadsWider(Counts):
    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.AVRO(WIDER)))


class NeedsMore(Counts):
    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.AVRO(OTHER)))


def test_an_avro_schema_that_cannot_read_the_stored_values_is_refused_by_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    master = started(build(environment(tmp_path), FillsAvro()))
    until(lambda: master.checkpoints.coordinator.latest is not None, master)
    operation = master.request(Operation("stop"))
    assert operation.wait(60)
    monkeypatch.setenv("CHECKED_FUNCTION", ReadsWider.__name__)
    report = checked(str(operation.location))
    assert (report["ok"], report["not_looked_at"]) == (True, [])
    monkeypatch.setenv("CHECKED_FUNCTION", NeedsMore.__name__)
    report = checked(str(operation.location))
    assert not report["ok"]
    assert "field 'more' of the value is new and has no default" in report["problems"][0]["message"]
