"""An invalid key is refused in the same way at every parallelism, by both backends and every operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from penstock.common import Time, Types
from penstock.common.errors import StateTypeError, UserFunctionError
from penstock.datastream import KeyedCoProcessFunction, KeyedProcessFunction
from penstock.datastream.data_stream import DataStream
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.window import EventTimeSessionWindows, TumblingEventTimeWindows
from penstock.graph.transformation import Exchange, Partitioning
from penstock.records.batch import ColumnBatch, RowBatch
from penstock.taskmanager.exchange.writers import create_writer
from penstock.taskmanager.operators.aggregate.rolling import RollingFieldsOperator
from penstock.testing import JobHarness, OperatorHarness
from penstock.testing.operator_run import OperatorRun
from penstock.windowing.aggregates import FieldAggregate
from tests.unit.taskmanager.support import exchange

EVERYWHERE = [(parallelism, backend) for parallelism in (1, 2) for backend in ("hashmap", "rocksdb")]


@dataclass
class Mutable:
    id: int


class Color(Enum):
    RED = "red"


@dataclass(frozen=True)
class Frozen:
    id: int


class Named(NamedTuple):
    id: int


class Opaque:
    def __repr__(self) -> str:
        return "Opaque()"


class Counting(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Iterator[int]:
        self.count.update(1)
        yield value["id"]


class Stateless(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterator[int]:
        yield value["id"]


class WithTimers(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> None:
        ctx.timer_service().register_event_time_timer(5)


class OfTwo(KeyedCoProcessFunction):
    open = Counting.open

    def process_element1(self, value: Any, ctx: Any) -> None:
        self.count.update(1)  # type: ignore[attr-defined]

    process_element2 = process_element1


KEYS: dict[str, tuple[Callable[[int], Any], str, str]] = {
    "list": (lambda n: [n], "a list cannot be a key", "tuple"),
    "dict": (lambda n: {"n": n}, "a dict cannot be a key", "one of its fields"),
    "set": (lambda n: {n}, "a set cannot be a key", "frozenset"),
    "array": (lambda n: np.array([n]), "a numpy.ndarray cannot be a key", "tolist"),
    "mutable": (Mutable, "Mutable cannot be a key", "key_type"),
    "nested": (lambda n: (n, [n]), "a list cannot be a key, because it is mutable: [", "tuple"),
    "opaque": (lambda n: Opaque(), "Opaque cannot be encoded", "key_type"),
}
OPERATORS: dict[str, Callable[[DataStream, Any], DataStream]] = {
    "state": lambda stream, key: stream.key_by(key).process(Counting()),
    "no state": lambda stream, key: stream.key_by(key).process(Stateless()),
    "timers": lambda stream, key: stream.key_by(key).process(WithTimers()),
    "reduce": lambda stream, key: stream.key_by(key).reduce(lambda a, b: a),
    "sum": lambda stream, key: stream.key_by(key).sum("id"),
    "map": lambda stream, key: stream.key_by(key).map(str),
    "window": lambda stream, key: (
        stream.key_by(key).window(TumblingEventTimeWindows.of(Time.seconds(1))).reduce(lambda a, b: a)
    ),
    "session": lambda stream, key: (
        stream.key_by(key).window(EventTimeSessionWindows.with_gap(Time.seconds(1))).reduce(lambda a, b: a)
    ),
    "two inputs": lambda stream, key: stream.connect(stream).key_by(key, key).process(OfTwo()),
}


def refusal(
    build: Callable[[DataStream, Any], DataStream], key: Callable[[int], Any], parallelism: int, backend: str
) -> StateTypeError:
    """Return the error of a job with three records."""
    with JobHarness(parallelism, backend=backend) as harness:
        harness.collect(build(harness.source("ids"), lambda record: key(record["id"])), "out")
        harness.push("ids", {"id": 1}, {"id": 2}, {"id": 3}, timestamp=1)
        with pytest.raises(StateTypeError) as caught:
            harness.outputs("out")
    return caught.value


@pytest.mark.parametrize(("parallelism", "backend"), EVERYWHERE)
@pytest.mark.parametrize("kind", KEYS)
def test_every_kind_of_wrong_key_is_refused(kind: str, parallelism: int, backend: str) -> None:
    key, message, remedy = KEYS[kind]
    error = refusal(OPERATORS["state"], key, parallelism, backend)
    assert message in error.message
    assert error.message.endswith("of {'id': 1}")
    assert remedy in error.remedy
    assert error.operator == "ids"
    assert __file__ in error.location


@pytest.mark.parametrize(("parallelism", "backend"), EVERYWHERE)
@pytest.mark.parametrize("operator", OPERATORS)
def test_a_wrong_key_is_refused_by_every_operator(operator: str, parallelism: int, backend: str) -> None:
    error = refusal(OPERATORS[operator], lambda n: [n], parallelism, backend)
    assert "a list cannot be a key, because it is mutable: [1], the key of {'id': 1}" in error.message


@pytest.mark.parametrize(("parallelism", "backend"), EVERYWHERE)
@pytest.mark.parametrize("operator", [name for name in OPERATORS if name not in ("no state", "map")])
def test_one_wrong_key_among_valid_ones_is_refused(operator: str, parallelism: int, backend: str) -> None:
    error = refusal(OPERATORS[operator], lambda n: n if n < 3 else [n], parallelism, backend)
    assert "a list cannot be a key, because it is mutable: [3], the key of {'id': 3}" in error.message
    assert error.operator
    assert __file__ in error.location


UNTOLD: dict[str, Callable[[int], Any]] = {"enum": lambda n: Color.RED, "frozen": Frozen, "named": Named}


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("key", UNTOLD)
@pytest.mark.parametrize("operator", [name for name in OPERATORS if name not in ("no state", "map")])
def test_a_key_of_an_undeclared_class_is_refused_with_the_first_record(operator: str, key: str, backend: str) -> None:
    error = refusal(OPERATORS[operator], UNTOLD[key], 1, backend)
    assert "cannot be restored from its bytes" in error.message
    assert "key_type" in error.remedy
    assert error.operator


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("key", UNTOLD)
def test_a_key_that_is_not_stored_is_accepted(key: str, backend: str) -> None:
    with JobHarness(1, backend=backend) as harness:
        harness.collect(OPERATORS["no state"](harness.source("ids"), lambda record: UNTOLD[key](record["id"])), "out")
        harness.push("ids", {"id": 1})
        assert harness.outputs("out") == [1]


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_type_error_of_the_function_is_reported_unchanged(backend: str) -> None:
    def adds_text(a: Any, b: Any) -> Any:
        return 1 + "1"  # type: ignore[operator]

    with JobHarness(1, backend=backend) as harness:
        harness.collect(harness.source("ids").key_by(lambda n: n % 2).reduce(adds_text), "out")
        harness.push("ids", 1, 3)
        with pytest.raises(UserFunctionError, match="unsupported operand"):
            harness.outputs("out")


@pytest.mark.parametrize("subtask", [None, 0])
@pytest.mark.parametrize(("parallelism", "backend"), EVERYWHERE)
def test_a_wrong_key_is_refused_in_the_operator_harness(parallelism: int, backend: str, subtask: int | None) -> None:
    def by_id(record: Any) -> Any:
        return [record["id"]]

    with (
        OperatorHarness(Counting(), by_id, parallelism=parallelism, backend=backend) as harness,
        pytest.raises(StateTypeError, match="a list cannot be a key") as caught,
    ):
        harness.push({"id": 1}, subtask=subtask)
    assert caught.value.operator
    assert __file__ in caught.value.location
    assert "the key of {'id': 1}" in caught.value.message


@pytest.mark.parametrize("column", [[[1], [2]], [{"a": 1}, {"a": 2}]], ids=["lists", "structs"])
def test_a_column_of_wrong_keys_is_refused(column: list[Any]) -> None:
    batch = ColumnBatch(pa.record_batch({"id": pa.array(column)}), None, lambda columns: columns.to_pylist())
    partitioning = Partitioning(Exchange.KEY_GROUP, lambda record: record["id"], "id")
    with pytest.raises(StateTypeError, match=r"cannot be a key, because it is mutable: .*, the key of \{'id': "):
        create_writer(exchange(partitioning, 1), 0, lambda target, row: None).write(batch)
    run = OperatorRun(RollingFieldsOperator(FieldAggregate.count(), itemgetter("id")))
    with pytest.raises(StateTypeError, match=r"cannot be a key, because it is mutable: .*, the key of \{'id': "):
        run.push_batch(batch)


def test_one_subtask_computes_the_key_of_few_records() -> None:
    seen: list[Any] = []
    partitioning = Partitioning(Exchange.KEY_GROUP, lambda record: seen.append(record) or record)
    writer = create_writer(exchange(partitioning, 1), 0, lambda target, row: None)
    writer.write(RowBatch(list(range(1000)), None))
    assert seen[0] == 0
    assert len(seen) <= 100  # the sketch of hot keys takes a sample
