"""Classes of the user's script keep their meaning in a worker: a sentinel that arrives is the sentinel itself.

The classes are defined in a script that runs as `python job.py`. So they belong to `__main__` and travel by value.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CLASSES = """
import dataclasses, enum, sys, typing
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum, Flag, auto
from typing import Generic, NamedTuple, NewType, Optional, ParamSpec, TypedDict, TypeVar

import attrs
import msgspec
import pydantic
import pydantic_core

T = TypeVar("T")
OURS = object()


@dataclass
class Plain:
    name: str
    tags: list[str] = field(default_factory=list)
    size: int = 3
    _: KW_ONLY
    color: str = "red"


@dataclass(frozen=True, slots=True)
class Slotted:
    name: str
    tags: tuple[str, ...] = ()


@dataclass
class Box(Generic[T]):
    content: T
    rest: list[T] = field(default_factory=list)


class Struct(msgspec.Struct):
    name: str
    tags: list[str] = msgspec.field(default_factory=list)
    unset: int | msgspec.UnsetType = msgspec.UNSET


class Model(pydantic.BaseModel):
    name: str
    tags: list[str] = pydantic.Field(default_factory=list)
    size: int | None = None


@attrs.define
class Attrs:
    name: str
    tags: list[str] = attrs.field(factory=list)


class Color(Enum):
    RED = auto()
    BLUE = auto()


class Mode(Flag):
    READ = auto()
    WRITE = auto()


class Pair(NamedTuple):
    name: str
    color: Color = Color.RED


class Typed(TypedDict, total=False):
    name: str


CLASSES = [Plain, Slotted, Box, Struct, Model, Attrs, Color, Mode, Pair, Typed]
"""

CHECKS = """
import dataclasses, enum, inspect, pickle, sys
import attrs, msgspec, pydantic_core

classes, sentinels, ours = pickle.load(sys.stdin.buffer)
Plain, Slotted, Box, Struct, Model, Attrs, Color, Mode, Pair, Typed = classes
theirs = [dataclasses.MISSING, dataclasses.KW_ONLY, msgspec.NODEFAULT, msgspec.UNSET, pydantic_core.PydanticUndefined,
          attrs.NOTHING, inspect.Parameter.empty, enum.auto, None, Ellipsis, NotImplemented]
for got, expected in zip(sentinels, theirs, strict=True):
    assert got is expected, expected
assert ours[0] is ours[1]
for cls in (Plain, Slotted, Box):
    for each in dataclasses.fields(cls):
        assert (each.default is dataclasses.MISSING) == (each.name not in ("size", "color") and (cls, each.name) != (Slotted, "tags")), each
        assert (each.default_factory is dataclasses.MISSING) == (each.name not in ("tags", "rest") or cls is Slotted), each
assert Plain("a") == Plain("a", [], 3, color="red") and Plain("a").tags is not Plain("b").tags
assert dataclasses.replace(Plain("a"), size=4).size == 4 and Slotted("a").tags == () and Box(1).rest == []
assert Struct("a").tags == [] and Struct("a").unset is msgspec.UNSET
assert Model(name="a").tags == [] and Model.model_fields["name"].is_required()
assert Attrs("a").tags == [] and attrs.fields(Attrs).name.default is attrs.NOTHING
assert Color(1) is Color.RED and Mode.READ | Mode.WRITE == Mode(3) and Pair("a").color is Color.RED
for cls, content in ((Plain, {"name": "a"}), (Slotted, {"name": "a"}), (Struct, {"name": "a"})):
    assert msgspec.convert(content, cls) == cls("a"), cls
from penstock.state.encoding.serializers import codec_for
for cls in (Plain, Slotted, Struct):
    codec = codec_for(cls, state="s")
    assert codec.decode(codec.encode(cls("a"))) == cls("a")
    assert {f["name"]: f.get("default") or f.get("optional") for f in codec.schema["fields"]}
from penstock.datastream.formats.json import JsonLinesFormat
for cls in (Plain, Slotted, Struct):
    assert JsonLinesFormat(cls).decoder(b"")(b'{"name":"a"}\\n').rows().values == [cls("a")]
print("as it was")
"""

SEND = """
import inspect, pickle
from penstock.taskmanager.code.pickler import RecordPickler, dumps
from penstock.jobmanager.process.programs.process.shipping import shipped

SENTINELS = [dataclasses.MISSING, dataclasses.KW_ONLY, msgspec.NODEFAULT, msgspec.UNSET, pydantic_core.PydanticUndefined,
             attrs.NOTHING, inspect.Parameter.empty, enum.auto, None, Ellipsis, NotImplemented]
way = {"program": dumps, "record": lambda value: dumps(value, RecordPickler), "shipped": shipped}[sys.argv[1]]
sys.stdout.buffer.write(way((CLASSES, SENTINELS, (OURS, OURS))))
"""


def run(arguments: list[str], content: bytes = b"") -> bytes:
    path = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, *arguments], input=content, capture_output=True, check=False, env=path)
    assert not done.returncode, done.stderr.decode()
    return done.stdout


@pytest.mark.parametrize("way", ["program", "record", "shipped"])
def test_classes_of_the_script_have_the_same_meaning_in_another_process(way: str, tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(CLASSES + SEND)
    assert run(["-c", CHECKS], run([str(script), way])) == b"as it was\n"


JOB = """
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.testing import OperatorHarness


class Keep(KeyedProcessFunction):
    def __init__(self, cls):
        self.cls = cls

    def open(self, runtime_context):
        self.kept = runtime_context.get_state(ValueStateDescriptor("kept", self.cls))

    def process_element(self, value, ctx):
        before = self.kept.value()
        self.kept.update(self.cls(value))
        yield before


@dataclass
class Before:
    name: str


@dataclass
class After:
    name: str
    tags: list[str] = field(default_factory=list)


def key(value):
    return "k"


for backend in ("hashmap", "rocksdb"):
    with OperatorHarness(Keep(Before), key, backend=backend) as harness:
        harness.push("a")
        snapshot = harness.snapshot()
        harness.restore(snapshot, operator=Keep(After))
        harness.push("b")
        (_, kept) = harness.outputs()
    assert (kept.name, kept.tags) == ("a", []), kept
print("as it was")
"""


def test_a_new_field_of_a_dataclass_of_the_script_is_restored_with_its_default(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(CLASSES + JOB)
    assert run([str(script)]) == b"as it was\n"
