"""The changes of a state's type that a restore accepts, and the right values after an accepted change."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, make_dataclass
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec
import pytest
from pydantic import BaseModel

from penstock.common.errors import StateSchemaIncompatible
from penstock.common.typeinfo import Types
from penstock.state.encoding.schema import describe
from penstock.state.encoding.serializers import codec_for

if TYPE_CHECKING:
    from collections.abc import Sequence


class Tree(msgspec.Struct):
    left: Tree | None = None


class Size(Enum):
    S = 1


class MoreSizes(Enum):
    S = 1
    M = 2


class PairV1(NamedTuple):
    a: int
    b: str
    c: float


class PairV2(NamedTuple):
    c: float
    a: int
    d: str = "new"


class PairOther(NamedTuple):
    a: str


class ArrayV1(msgspec.Struct, array_like=True, tag="A"):
    a: int
    b: list[PairV1]


class ArrayV2(msgspec.Struct, array_like=True, tag="A"):
    b: list[PairV2]


@dataclass
class HolderV1:
    pairs: dict[str, PairV1]
    other: PairV1 | None = None


@dataclass
class HolderV2:
    pairs: dict[str, PairV2]
    other: PairV2 | None = None


class KeyedV1(NamedTuple):
    counts: dict[Any, int]
    text: str


class KeyedV2(NamedTuple):
    text: str
    counts: dict[Any, int]


@dataclass(frozen=True)
class Position:
    x: int


class ByRecordV1(NamedTuple):
    a: int
    b: list[dict[Position, int]]


class ByRecordV2(NamedTuple):
    b: list[dict[Position, int]]
    a: int


class ModelV1(BaseModel):
    a: int
    b: str


class ModelV2(BaseModel):
    a: float
    c: int = 5


def record(*fields: Any) -> Any:
    return make_dataclass("Acc", fields)


def migrate(old: Any, new: Any, values: Sequence[Any]) -> list[Any]:
    """Write values as `old` and read them as `new`, singly and by column. The schema passes through JSON as in a
    manifest."""
    writer = codec_for(old, state="s")
    reader = codec_for(new, state="s").reader_of(json.loads(json.dumps(writer.schema)))
    columns = reader.decode_column(*writer.encode_column(writer.freeze(list(values))))
    assert [reader.decode(writer.encode(value)) for value in values] == columns
    return columns


V1 = record(("a", int), ("b", str))

COMPATIBLE: list[tuple[Any, Any, Any, str]] = [
    (int, int, 1, "1"),
    (int, float, 1, "1.0"),
    (int, float, 2**70, repr(float(2**70))),
    (int, Decimal, 1, "Decimal('1')"),
    (float, Decimal, 0.5, "Decimal('0.5')"),
    (int, int | None, 1, "1"),
    (int, None, 1, "1"),
    (str | None, int | str | None, None, "None"),
    (Size, MoreSizes, Size.S, "<MoreSizes.S: 1>"),
    (Literal["a"], Literal["a", "b"], "a", "'a'"),
    (tuple[int, str], tuple[float, str], (1, "a"), "(1.0, 'a')"),
    (list[int], list[float], [1], "[1.0]"),
    (dict[str, int], dict[str, float], {"a": 1}, "{'a': 1.0}"),
    (V1, record(("b", str), ("a", int)), V1(1, "x"), "Acc(b='x', a=1)"),
    (V1, record(("a", int)), V1(1, "x"), "Acc(a=1)"),
    (V1, record(("a", float), ("b", str), ("c", list, field(default_factory=list))), V1(1, "x"), "Acc(a=1.0, b='x', c=[])"),
    (PairV1, PairV2, PairV1(1, "x", 2.5), "PairV2(c=2.5, a=1, d='new')"),
    (ArrayV1, ArrayV2, ArrayV1(1, [PairV1(1, "x", 2.5)]), "ArrayV2(b=[PairV2(c=2.5, a=1, d='new')])"),
    (
        HolderV1, HolderV2, HolderV1({"k": PairV1(1, "x", 2.5)}, PairV1(2, "y", 3.5)),
        "HolderV2(pairs={'k': PairV2(c=2.5, a=1, d='new')}, other=PairV2(c=3.5, a=2, d='new'))",
    ),
    (
        KeyedV1, KeyedV2, KeyedV1({Decimal("1.50"): 1, (1, 2): 2}, "x"),
        "KeyedV2(text='x', counts={Decimal('1.50'): 1, (1, 2): 2})",
    ),
    (ModelV1, ModelV2, ModelV1(a=1, b="x"), "ModelV2(a=1.0, c=5)"),
    (Types.INT(), Types.DOUBLE(), 1, "1.0"),
    (int, Types.LONG(), 1, "1"),
]  # fmt: skip

INCOMPATIBLE: list[tuple[Any, Any, str]] = [
    (float, int, "was float and is int"),
    (int, str, "was int and is str"),
    (int | None, int, "was none and is int"),
    (int | str, float, "was str and is float"),
    (None, int, "was any and is int"),
    (tuple[int, int], tuple[int, int, int], "had 2 items and has 3"),
    (list[int], set[int], "was list and is set"),
    (dict[str, int], dict[int, int], "the keys of the value changed"),
    (MoreSizes, Size, "can no longer be 2"),
    (V1, record(("a", int), ("b", str), ("c", int)), "field 'c' of the value is new and has no default"),
    (V1, record(("a", str), ("b", str)), "field 'a' of the value was int and is str"),
    (list[PairV1], list[PairOther], "field 'a' of an item of the value was int"),
    (PairV1, record(("a", int)), "was a array record"),
    (V1, dict[str, int], "was record and is dict"),
]


@pytest.mark.parametrize(("old", "new", "value", "expected"), COMPATIBLE, ids=lambda v: repr(v)[:50])
def test_compatible_changes_read_old_values(old: Any, new: Any, value: Any, expected: str) -> None:
    assert [repr(v) for v in migrate(old, new, [value, value])] == [expected] * 2


@pytest.mark.parametrize(("old", "new", "says"), INCOMPATIBLE, ids=lambda v: repr(v)[:50])
def test_other_changes_are_refused_with_both_schemas(old: Any, new: Any, says: str) -> None:
    writer, reader = codec_for(old, state="totals"), codec_for(new, state="totals", operator="sum")
    with pytest.raises(StateSchemaIncompatible, match=says) as caught:
        reader.reader_of(writer.schema)
    assert json.dumps(writer.schema) in caught.value.message
    assert json.dumps(reader.schema) in caught.value.message
    assert "'totals'" in caught.value.message
    assert caught.value.operator == "sum"
    assert caught.value.remedy


def test_records_as_keys_with_moved_fields_are_refused() -> None:
    writer, reader = codec_for(ByRecordV1, state="totals"), codec_for(ByRecordV2, state="totals", operator="sum")
    with pytest.raises(StateSchemaIncompatible, match="dictionary with dataclasses") as caught:
        reader.reader_of(writer.schema)
    assert caught.value.operator == "sum"
    assert caught.value.remedy


def test_a_recursive_type_has_a_finite_schema() -> None:
    assert {"type": "ref", "name": "Tree"} in json.loads(json.dumps(describe(Tree)))["fields"][0]["schema"]["of"]
    assert migrate(Tree, Tree, [Tree(Tree())]) == [Tree(Tree())]


def test_the_name_of_a_class_does_not_matter() -> None:
    renamed = make_dataclass("Renamed", [("a", int), ("b", str)])
    assert migrate(V1, renamed, [V1(1, "x")]) == [renamed(1, "x")]
