"""Errors of a key selector, a key or a partitioner at an exchange name the operator, the user's line and the record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.common.errors import PenstockError
from penstock.datastream.data_stream import DataStream
from penstock.graph.transformation import Exchange, Partitioning
from penstock.records.batch import Batch, ColumnBatch, RowBatch
from penstock.taskmanager.exchange.writers import create_writer
from tests.in_process import environment
from tests.integration.engine.programs.refusals import refused
from tests.unit.taskmanager.support import exchange

RECORDS = [{"id": number} for number in range(7)]


@dataclass
class Mutable:
    id: int


@dataclass(frozen=True)
class HoldsAList:
    ids: list[int]


class Opaque:
    """A class without any encoding."""


def only_at_three(wrong: Callable[[int], Any]) -> Callable[[dict[str, int]], Any]:
    """Return a key selector that works for every record except `{"id": 3}`."""
    return lambda record: wrong(3) if record["id"] == 3 else record["id"]


def fails(key: int, partitions: int) -> int:
    return [0, 1, 0][key]


KEYS = {
    "a selector that raises": (
        only_at_three(lambda n: {}["nope"]),  # type: ignore[index]
        "USER_FUNCTION",
        "KeyError: 'nope'",
        "every record",
    ),
    "a list": (only_at_three(lambda n: [n]), "STATE_TYPE", "a list cannot be a key", "a tuple"),
    "an unhashable dataclass": (only_at_three(Mutable), "STATE_TYPE", "Mutable cannot be a key", "a frozen dataclass"),
    "a list in a tuple": (only_at_three(lambda n: (n, [n])), "STATE_TYPE", "a list cannot be a key", "a tuple"),
    "a list in a dataclass": (only_at_three(lambda n: HoldsAList([n])), "STATE_TYPE", "a list cannot be", "a tuple"),
    "no encoding": (only_at_three(lambda n: Opaque()), "STATE_TYPE", "Opaque cannot be encoded", "a frozen dataclass"),
    "half a character": (only_at_three(lambda n: "\ud800"), "STATE_TYPE", "surrogate pair", "use bytes"),
}
PARTITIONERS = {
    "raises": (fails, "the partitioner on {'id': 3} raised IndexError", "every key"),
    "chooses too high": (lambda key, n: 7 if key == 3 else 0, "chose subtask 7 for {'id': 3}", "number of partitions"),
    "chooses too low": (lambda key, n: -1 if key == 3 else 0, "chose subtask -1 for {'id': 3}", "number of partitions"),
    "chooses a text": (
        lambda key, n: "0" if key == 3 else 0,
        "chose subtask '0' for {'id': 3}",
        "number of partitions",
    ),
    "chooses a part": (
        lambda key, n: 1.0 if key == 3 else 0,
        "chose subtask 1.0 for {'id': 3}",
        "number of partitions",
    ),
}


@pytest.mark.parametrize(("selector", "code", "message", "remedy"), KEYS.values(), ids=KEYS)
def test_a_wrong_key_is_refused_with_its_record(
    tmp_path: Path, selector: Any, code: str, message: str, remedy: str
) -> None:
    refusal = run(tmp_path, lambda stream: stream.key_by(selector).map(str))
    assert refusal.code == code
    assert message in refusal.message
    assert "{'id': 3}" in refusal.message
    assert remedy in refusal.remedy
    assert refusal.operator == "ids"
    assert refusal.points_to(__file__)


@pytest.mark.parametrize(("partitioner", "message", "remedy"), PARTITIONERS.values(), ids=PARTITIONERS)
def test_a_wrong_partitioner_is_refused_with_its_record(
    tmp_path: Path, partitioner: Any, message: str, remedy: str
) -> None:
    refusal = run(tmp_path, lambda stream: stream.partition_custom(partitioner, "id").map(str))
    assert refusal.code == "USER_FUNCTION"
    assert message in refusal.message
    assert remedy in refusal.remedy
    assert refusal.operator == "ids"
    assert refusal.points_to(__file__)


def run(folder: Path, build: Callable[[DataStream], DataStream]) -> Any:
    """Return the error for the records on their way to two subtasks. It has the line of `build`, not that of the
    operator."""
    env = environment(folder, **{"restart-strategy.type": "none"}).set_parallelism(2)
    stream = env.from_collection(RECORDS).name("ids")
    built = build(stream)
    built.print()
    refusal = refused(env)
    line = int(refusal.location.rpartition(":")[2])
    assert line == build.__code__.co_firstlineno
    return refusal


def test_a_column_of_lists_is_refused_as_key() -> None:
    columns = ColumnBatch(pa.record_batch({"id": [[1], [2]]}), None, lambda batch: batch.to_pylist())
    assert "a list cannot be a key, because it is mutable: [1], the key of {'id': [1]}" in written(columns)


def test_an_error_without_a_wrong_key_names_the_batch() -> None:
    class Uncertain(int):
        def __hash__(self) -> int:
            raise RuntimeError("not today")

    message = written(RowBatch([{"id": Uncertain(1)}], None))
    assert "hashing the keys of a batch of 1 records raised RuntimeError: not today" in message


def written(batch: Batch) -> str:
    """Return the error for the batch when it is sent by `id`."""
    partitioning = Partitioning(Exchange.KEY_GROUP, lambda record: record["id"], "id")
    writer = create_writer(exchange(partitioning, 2), 0, lambda target, row: None)
    with pytest.raises(PenstockError) as caught:
        writer.write(batch)
    return str(caught.value)
