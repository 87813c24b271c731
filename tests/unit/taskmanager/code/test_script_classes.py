"""Classes of the user's script arrive complete in a worker: structs with their fields, and annotations with their
types."""

from __future__ import annotations

import os
import subprocess
import sys
from abc import ABCMeta, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
import pytest

from penstock.taskmanager.code.pickler import dumps
from penstock.taskmanager.exchange.records import encode_object

T = TypeVar("T")


def evaluated_elsewhere(pickled: bytes, expression: str) -> str:
    """Return the text of an expression on the pickled `it`, evaluated in a process that does not have the classes."""
    program = f"import pickle, sys; it = pickle.load(sys.stdin.buffer); print([{expression}])"
    path = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], input=pickled, capture_output=True, check=False, env=path)
    assert not done.returncode, done.stderr.decode()
    return done.stdout.decode().strip()


def a_struct() -> type[Any]:
    class Bid(msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag="bid"):
        bid_price: int
        notes: list[str] = []
        extra: dict[str, int] = msgspec.field(default_factory=dict)
        scale: float = 1.0

        def doubled(self) -> Bid:
            return Bid(bid_price=2 * self.bid_price)

        @property
        def is_high(self) -> bool:
            return self.bid_price > 100

    return Bid


def a_derived_one() -> type[Any]:
    class Base(msgspec.Struct):
        name: str

    class Derived(Base, array_like=True):
        next: Derived | None = None
        size: int = 5

        def __post_init__(self) -> None:
            self.size += 1

    return Derived


def a_generic_one() -> type[Any]:
    class Box(msgspec.Struct, Generic[T]):
        content: T
        label: str = "box"

    return Box


class _Meta(msgspec.StructMeta, ABCMeta): ...


def an_abstract_one() -> type[Any]:
    class Shape(msgspec.Struct, metaclass=_Meta):
        side: int

        @abstractmethod
        def area(self) -> int: ...

    class Square(Shape):
        def area(self) -> int:
            return self.side**2

    return Square


SENT: dict[str, Callable[[Any], bytes]] = {"with the program": dumps, "as a record": encode_object}


@pytest.mark.parametrize("how", SENT)
@pytest.mark.parametrize(
    ("make", "expression", "expected"),
    [
        (a_struct, "it(bid_price=60).doubled(), it(bid_price=60).doubled().is_high", "[Bid(bid_price=120, notes=[], extra={}, scale=1.0), True]"),
        (a_struct, "*__import__('msgspec').to_builtins(it(bid_price=1)).items()", "[('type', 'bid'), ('bidPrice', 1), ('notes', []), ('extra', {}), ('scale', 1.0)]"),
        (a_struct, "it.__struct_config__.frozen, it.__qualname__", "[True, 'a_struct.<locals>.Bid']"),
        (a_derived_one, "it('a', it('b')), it.__struct_fields__", "[Derived(name='a', next=Derived(name='b', next=None, size=6), size=6), ('name', 'next', 'size')]"),
        (a_derived_one, "*__import__('msgspec').to_builtins(it('a'))", "['a', None, 6]"),
        (an_abstract_one, "it(3).area()", "[9]"),
        (a_generic_one, "it(1), it.__parameters__", "[Box(content=1, label='box'), (~T,)]"),
    ],
)  # fmt: skip
def test_a_struct_of_the_script_arrives_complete(
    how: str, make: Callable[[], type], expression: str, expected: str
) -> None:
    assert evaluated_elsewhere(SENT[how](make()), expression) == expected


def test_objects_of_a_struct_arrive_with_its_class() -> None:
    bid = a_struct()
    assert (
        evaluated_elsewhere(dumps([bid(bid_price=1), bid(bid_price=2)]), "*(each.bid_price for each in it)") == "[1, 2]"
    )


SCRIPT = """
from __future__ import annotations
import datetime, enum, sys
from dataclasses import dataclass
from typing import NamedTuple, TypedDict
import msgspec
from penstock.taskmanager.code.pickler import dumps

class Color(enum.Enum):
    RED = 1

class Struct(msgspec.Struct):
    at: datetime.date
    color: Color = Color.RED
    other: Data | None = None

@dataclass
class Data:
    at: datetime.date
    color: Color = Color.RED
    other: Struct | None = None

class Named(NamedTuple):
    at: datetime.date
    color: Color = Color.RED

class Typed(TypedDict):
    at: datetime.date
    color: Color

sys.stdout.buffer.write(dumps({cls.__name__: cls for cls in (Color, Struct, Data, Named, Typed)}))
"""


@pytest.mark.parametrize("name", ["Struct", "Data", "Named", "Typed"])
def test_state_of_a_class_with_annotations_as_text_is_declared_in_a_worker(name: str, tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    path = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    pickled = subprocess.run([sys.executable, script], capture_output=True, check=True, env=path).stdout
    codec = f"__import__('penstock.state.encoding.serializers', fromlist=['x']).codec_for(it['{name}'], state='s')"
    value = f"it['{name}'](at=__import__('datetime').date(2026, 1, 1), color=it['Color'].RED)"
    assert (
        evaluated_elsewhere(
            pickled, f"(lambda codec, value: codec.decode(codec.encode(value)) == value)({codec}, {value})"
        )
        == "[True]"
    )


def test_structs_of_modules_are_sent_by_name() -> None:
    assert len(dumps(msgspec.structs.FieldInfo)) < 100
