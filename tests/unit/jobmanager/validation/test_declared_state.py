"""States that a function cannot have. A job with such a state is refused before it starts, without a call of `open`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from penstock.common.errors import PenstockError
from penstock.common.job_status import JobStatus
from penstock.common.time import Time
from penstock.common.typeinfo import Types
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.datastream.functions import BroadcastProcessFunction, KeyedProcessFunction, MapFunction
from penstock.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.functions.join_functions import ProcessJoinFunction
from penstock.graph.job_graph_builder import JobGraphBuilder
from penstock.jobmanager.job.requests import Operation
from penstock.jobmanager.process.launch import check
from penstock.jobmanager.process.session.session import SubmitOptions
from penstock.jobmanager.validation.declared_state import check_declared_states
from penstock.windowing.time_windows import TumblingProcessingTimeWindows
from tests.in_process import environment, started, until
from tests.integration.engine.programs.refusals import nothing_touched, refused

JOB_ID = "ab" * 16
COUNTS = MapStateDescriptor("counts", str, int)


class Opaque:
    """A class without a known encoding."""


class Passes(KeyedProcessFunction):
    """A function whose `open` is the subject of a test. It must not be called."""

    declared: Any = Opaque

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value


CONNECTED: list[Any] = []


def connect(*arguments: Any) -> Any:
    """Connect to a system. Only tasks may call this."""
    CONNECTED.append(arguments)


class RemembersTwice(Passes):
    def open(self, runtime_context: Any) -> None:
        self.client = connect("db")
        self.counts = runtime_context.get_map_state(COUNTS)
        self.seen = runtime_context.get_list_state(state_descriptor=ListStateDescriptor("counts", list[int]))


class KeepsOpaque(Passes):
    def open(self, ctx: Any) -> None:
        super().open(ctx)
        descriptor = ValueStateDescriptor("kept", Opaque)
        self.kept = ctx.get_state(descriptor)


class KeepsConfiguredState(Passes):
    def __init__(self, declared: Any) -> None:
        self.declared = declared

    def open(self, ctx: Any) -> None:
        self.type = self.declared
        self.kept = ctx.get_state(ValueStateDescriptor("kept", self.type))


class CallsGetterWrongly(Passes):
    def open(self, ctx: Any) -> None:
        self.sum = ctx.get_state(ReducingStateDescriptor("sum", lambda a, b: a + b, Types.LONG()))


class Counts(MapFunction):
    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", int, default=0))

    def map(self, value: Any) -> Any:
        return value


def numbers(folder: Path) -> Any:
    return environment(folder).from_source(DataGeneratorSource(int, None, 100.0), None, "numbers")


def keyed(stream: Any, function: Any) -> None:
    stream.key_by(lambda value: value % 3).process(function).name("bad").print()


class KeepsOpaqueKeys(Passes):
    def open(self, ctx: Any) -> None:
        self.kept = ctx.get_map_state(MapStateDescriptor("kept", Opaque, int))


class HearsOpaque(BroadcastProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        yield value


def broadcast_to(stream: Any, descriptor: MapStateDescriptor) -> None:
    stream.connect(stream.broadcast(descriptor)).process(HearsOpaque()).name("bad").print()


def in_windows(stream: Any) -> Any:
    opaque = stream.map(lambda value: Opaque(), Opaque).key_by(lambda value: 1)
    return opaque.window(TumblingProcessingTimeWindows.of(Time.seconds(1)))


def first(a: Any, b: Any) -> Any:
    return a


def joined(stream: Any) -> Any:
    keyed = stream.map(lambda value: Opaque(), Opaque).key_by(lambda value: 1)
    return keyed.interval_join(keyed).between(Time.seconds(-1), Time.seconds(1)).process(Joins())


class Joins(ProcessJoinFunction):
    def process_element(self, left: Any, right: Any, ctx: Any) -> Any:
        yield left


OPAQUE_KEYS, OPAQUE_VALUES = MapStateDescriptor("rules", Opaque, int), MapStateDescriptor("rules", int, Opaque)


@dataclass
class Mutable:
    id: int


PROGRAMS = {
    "no encoding, map keys": (
        lambda s: keyed(s, KeepsOpaqueKeys()),
        "STATE_TYPE",
        "map keys of state 'kept'",
        "frozen",
    ),
    "no encoding, keys": (
        lambda s: s.key_by(lambda n: Opaque(), key_type=Opaque).process(Passes()).name("bad").print(),
        "STATE_TYPE",
        "the keys are declared with a type that keys cannot have",
        "frozen",
    ),
    "keys that can change": (
        lambda s: s.key_by(Mutable, key_type=Mutable).process(Passes()).name("bad").print(),
        "STATE_TYPE",
        "Mutable can change",
        "frozen",
    ),
    "no encoding, reduced": (
        lambda s: s.map(lambda n: Opaque(), Opaque).key_by(lambda o: 1).reduce(first).name("bad").print(),
        "STATE_TYPE",
        "Opaque has no encoding",
        "dataclass",
    ),
    "no encoding, a window's": (
        lambda s: in_windows(s).reduce(first).name("bad").print(),
        "STATE_TYPE",
        "'window-contents'",
        "dataclass",
    ),
    "no encoding, of joined streams": (
        lambda s: joined(s).name("bad").print(),
        "STATE_TYPE",
        "'left-buffer'",
        "dataclass",
    ),
    "no encoding, broadcast keys": (
        lambda s: broadcast_to(s, OPAQUE_KEYS),
        "STATE_TYPE",
        "broadcast state 'rules'",
        "frozen",
    ),
    "no encoding, broadcast": (lambda s: broadcast_to(s, OPAQUE_VALUES), "STATE_TYPE", "'rules'", "dataclass"),
    "a name used twice": (lambda s: keyed(s, RemembersTwice()), "STATE_NAME_CONFLICT", "'counts'", "another name"),
    "no encoding": (lambda s: keyed(s, KeepsOpaque()), "STATE_TYPE", "Opaque", "dataclass"),
    "no encoding, from __init__": (
        lambda s: keyed(s, KeepsConfiguredState(Opaque)),
        "STATE_TYPE",
        "'kept'",
        "dataclass",
    ),
    "another getter's": (lambda s: keyed(s, CallsGetterWrongly()), "INVALID_JOB", "ValueStateDescriptor", "getter"),
    "no key_by": (lambda s: s.map(Counts()).name("bad").print(), "KEYED_STATE_NOT_AVAILABLE", "'seen'", "key_by"),
}


@pytest.mark.parametrize(("build", "code", "message", "remedy"), PROGRAMS.values(), ids=PROGRAMS)
def test_a_check_has_no_side_effects(tmp_path: Path, build: Any, code: str, message: str, remedy: str) -> None:
    CONNECTED.clear()
    stream = numbers(tmp_path)
    build(stream)
    refusal = refused(stream._env)
    assert not CONNECTED
    assert (refusal.code, refusal.operator) == (code, "bad")
    assert message in refusal.message
    assert remedy in refusal.remedy
    assert refusal.points_to(__file__)
    assert not refusal.was_accepted
    assert nothing_touched(tmp_path)


@pytest.mark.parametrize(("build", "code", "message", "remedy"), PROGRAMS.values(), ids=PROGRAMS)
def test_a_healthy_job_with_the_same_id_keeps_running(
    tmp_path: Path, build: Any, code: str, message: str, remedy: str
) -> None:
    good = numbers(tmp_path)
    good.map(str).print()
    healthy = started(good._env, SubmitOptions(job_id=JOB_ID))
    try:
        until(lambda: healthy.history.status is JobStatus.RUNNING, healthy)
        bad = numbers(tmp_path)
        build(bad)
        assert refused(bad._env, SubmitOptions(job_id=JOB_ID)).code == code
        checkpoint = healthy.request(Operation("checkpoint"))
        assert checkpoint.wait(30)
        assert (checkpoint.failure, healthy.history.status) == (None, JobStatus.RUNNING)
    finally:
        healthy.request(Operation("cancel"))
        assert healthy.wait(30) is JobStatus.CANCELED


def test_penstock_check_reports_the_same_error(tmp_path: Path) -> None:
    report = check(entry=f"{__name__}:main", args=[], parallelism=None, against=None, configuration={})
    assert [problem["code"] for problem in report["problems"]] == ["STATE_TYPE"]


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    keyed(env.from_collection([1]), KeepsOpaque())
    env.execute("bad")


class OnlySometimes(Passes):
    def open(self, ctx: Any) -> None:
        if self.declared is None:
            self.kept = ctx.get_state(ValueStateDescriptor("kept", self.declared))


class AfterAReturn(Passes):
    def open(self, ctx: Any) -> None:
        if self.declared:
            return
        self.kept = ctx.get_state(ValueStateDescriptor("kept", self.declared))


class Prepares(Passes):
    def open(self, ctx: Any) -> None:
        self.prepare()
        self.kept = ctx.get_state(ValueStateDescriptor("kept", self.declared))

    def prepare(self) -> None:
        self.declared = int


class IsPrepared(Passes):
    def open(self, ctx: Any) -> None:
        connect(self)
        self.kept = ctx.get_state(ValueStateDescriptor("kept", self.declared))


class PreparedByItsBase(Prepares):
    def open(self, ctx: Any) -> None:
        super().open(ctx)
        self.more = ctx.get_state(ValueStateDescriptor("more", self.declared))


class Chooses(Passes):
    def open(self, ctx: Any) -> None:
        self.declared = connect("a type")
        self.kept = ctx.get_state(ValueStateDescriptor("kept", self.declared))


class Imports(Passes):
    def open(self, ctx: Any) -> None:
        from decimal import Decimal as Opaque  # a different class from the module's

        self.kept = ctx.get_state(ValueStateDescriptor("kept", Opaque))


class HasAProperty(Passes):
    @property
    def type(self) -> Any:
        return connect("a property")

    def open(self, ctx: Any) -> None:
        self.kept = ctx.get_state(ValueStateDescriptor("kept", self.type))


class Annotates(Passes):
    def open(self, ctx: Any) -> None:
        name: str = "kept"
        self.kept = ctx.get_state(ValueStateDescriptor(name, dict[str, int] | None))
        self.same = ctx.get_state(ValueStateDescriptor(name, dict[str, int] | None))


class TypedAtAPrompt(Passes):
    exec("def open(self, ctx): ctx.get_state(ValueStateDescriptor('kept', Opaque))")


@pytest.mark.parametrize(
    "function",
    [
        *(OnlySometimes, AfterAReturn, Prepares, IsPrepared, PreparedByItsBase, Chooses, Imports),
        *(HasAProperty, Annotates, TypedAtAPrompt),
    ],
)
def test_a_state_that_may_be_valid_is_left_to_the_task(tmp_path: Path, function: Any) -> None:
    stream = numbers(tmp_path)
    keyed(stream, function())
    CONNECTED.clear()
    check_declared_states(JobGraphBuilder(stream._env.get_program("good").transformations).build())
    assert not CONNECTED


def test_a_function_inside_of_a_conversion_to_rows_is_checked(tmp_path: Path) -> None:
    stream = numbers(tmp_path)
    stream.map(Counts(), Types.ROW([Types.INT()])).print()
    with pytest.raises(PenstockError, match="is keyed state"):
        check_declared_states(JobGraphBuilder(stream._env.get_program("bad").transformations).build())
