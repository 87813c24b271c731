"""Hypothesis strategies for the values of records: types of Python, of its libraries and of users.

`VALUES` nests them five levels deep. Not all of them support `==`, so `value_difference.difference` compares them.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, IntEnum, IntFlag, StrEnum
from functools import partial
from pathlib import PurePosixPath
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
import pydantic
from hypothesis import strategies as st

from penstock.common.types import Row, RowKind


class Color(Enum):
    RED = "red"
    BLUE = ("b", 1)


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Unit(StrEnum):
    CELSIUS = "C"


class Access(Flag):
    READ = 1
    WRITE = 2


class Bits(IntFlag):
    A = 1
    B = 2


class Text(str):
    __slots__ = ()


class Number(int):
    """A subclass of int whose instances have a dictionary."""


class Real(float):
    __slots__ = ()


class Octets(bytes):
    """A subclass of bytes with a name."""


class Items(list[Any]):
    pass


class Mapping(dict[Any, Any]):
    pass


class Pair(tuple[Any, ...]):
    __slots__ = ()


class Moment(datetime):
    """A subclass of datetime, as pandas' Timestamp is."""


class Length(timedelta):
    """A subclass of timedelta, as pandas' Timedelta is."""


class Reading(NamedTuple):
    sensor: Any
    value: Any


Old = namedtuple("Old", "left right")


class Open(Old):
    """A named tuple that accepts more attributes."""


@dataclass
class Plain:
    left: Any
    right: Any = field(default_factory=list)


@dataclass(frozen=True)
class Frozen:
    only: Any


@dataclass(slots=True)
class Slotted:
    left: Any
    right: Any


@dataclass(frozen=True, slots=True)
class Sealed:
    only: Any


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)

    name: str
    content: Any


class Struct(msgspec.Struct):
    name: str
    content: Any


class Loose:
    """A class that is neither a dataclass nor a model."""

    def __init__(self, content: Any) -> None:
        self.content = content


def _with_attribute(value: Any) -> Any:
    value.note = "kept"
    return value


ZONES = [
    ZoneInfo("Europe/Berlin"),
    ZoneInfo("America/New_York"),
    ZoneInfo("UTC"),
    UTC,
    timezone(timedelta(hours=-3, minutes=7)),
]
_SPECIAL_FLOATS = [math.nan, -math.nan, math.inf, -math.inf, 0.0, -0.0, 5e-324, 1.5]
_DTYPES = [
    "?",
    "i1",
    "<i2",
    ">i4",
    "i8",
    "u1",
    "u8",
    "f2",
    "f4",
    ">f8",
    "g",
    "c8",
    "c16",
    "U3",
    "S2",
    "M8[s]",
    "m8[ns]",
]
_STRUCTURED = np.dtype([("id", "i4"), ("at", "M8[ms]"), ("name", "U4"), ("point", "f8", (2,))])

TIMES = (
    st.times() | st.times(timezones=st.sampled_from([UTC, timezone(timedelta(hours=2))])) | st.just(time(2, 30, fold=1))
)
DATETIMES = (
    st.datetimes()
    | st.datetimes(timezones=st.sampled_from(ZONES), allow_imaginary=True, min_value=datetime(1900, 1, 1))
    | st.sampled_from([datetime(2026, 10, 25, 2, 30, tzinfo=ZONES[0], fold=fold) for fold in (0, 1)])
    | st.just(datetime(2026, 10, 25, 2, 30, fold=1))
)

BUILTIN_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=2**62, max_value=2**70)
    | st.just(-(10**300))
    | st.floats()
    | st.sampled_from(_SPECIAL_FLOATS)
    | st.text(max_size=8)
    | st.binary(max_size=8)
)
"""Types that simple programs use. No component may refuse them."""

OTHER_SCALARS = (
    st.complex_numbers()
    | st.decimals()
    | st.sampled_from([Decimal("0.10"), Decimal("-0"), Decimal("sNaN12"), Decimal("1E+400")])
    | st.uuids()
    | st.fractions()
    | st.dates()
    | TIMES
    | DATETIMES
    | st.timedeltas()
    | st.sampled_from(
        [Color.RED, Color.BLUE, Level.LOW, Unit.CELSIUS, Access.READ, Access.READ | Access.WRITE, Bits.A | Bits.B]
    )
    | st.sampled_from(
        [Ellipsis, NotImplemented, range(3), range(9, 2, -2), slice(1, None), PurePosixPath("/a/b"), int, len]
    )
    | st.builds(Text, st.text(max_size=4))
    | st.builds(Number, st.integers()).map(_with_attribute)
    | st.builds(Real, st.floats())
    | st.builds(Octets, st.binary(max_size=4)).map(_with_attribute)
    | st.builds(Length, st.integers(0, 9))
    | st.builds(Moment.fromtimestamp, st.integers(0, 10**9))
)

NUMPY_SCALARS = (
    st.booleans().map(np.bool_)
    | st.integers(-128, 127).flatmap(lambda n: st.sampled_from([np.int8(n), np.int16(n), np.int32(n), np.int64(n)]))
    | st.integers(0, 255).flatmap(lambda n: st.sampled_from([np.uint8(n), np.uint16(n), np.uint32(n), np.uint64(n)]))
    | st.sampled_from(_SPECIAL_FLOATS).flatmap(
        lambda f: st.sampled_from([np.float16(f), np.float32(f), np.float64(f), np.longdouble(f)])
    )
    | st.sampled_from([np.complex64(1 + 2j), np.complex128(-0.0j), np.str_("é"), np.str_(""), np.bytes_(b"a\0b")])
    | st.sampled_from([np.datetime64("2026-10-25T02:30:00.5"), np.datetime64("NaT"), np.datetime64("2026", "Y")])
    | st.sampled_from([(3, "D"), ("NaT", "s"), (7,)]).map(lambda parts: np.timedelta64(*parts))
    | st.sampled_from([np.void(b"ab"), np.zeros(1, _STRUCTURED)[0]])
)


def _array(dtype: str, shape: tuple[int, ...], order: Any) -> np.ndarray[Any, Any]:
    count = math.prod(shape)
    return np.arange(count).astype(dtype).reshape(shape, order=order)


ARRAYS = (
    st.builds(
        _array, st.sampled_from(_DTYPES), st.sampled_from([(), (0,), (3,), (2, 3), (2, 1, 2)]), st.sampled_from("CF")
    )
    | st.just(np.arange(10)[::3])
    | st.builds(partial(np.zeros, dtype=_STRUCTURED), st.integers(0, 2))
    | st.lists(BUILTIN_SCALARS, max_size=3).map(lambda items: np.array([*items, None], object))
)

BUFFERS = (
    st.binary(max_size=4).map(bytearray)
    | st.binary(max_size=4).map(memoryview)  # type: ignore[arg-type]
    | st.builds(array, st.sampled_from("bBhilqfd"), st.lists(st.integers(0, 9), max_size=3))
)

HASHABLE = (
    BUILTIN_SCALARS
    | st.tuples(BUILTIN_SCALARS, st.integers())
    | st.frozensets(st.integers() | st.text(max_size=2), max_size=3)
)
KEYS_OF_DICTS = (
    HASHABLE
    | st.uuids()
    | st.dates()
    | st.sampled_from([Color.RED, Level.LOW, Unit.CELSIUS, np.int64(3), np.str_("k")])
)


def _builtin_containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    few = st.lists(inner, max_size=3)
    return (
        few
        | few.map(tuple)
        | st.dictionaries(HASHABLE, inner, max_size=3)
        | st.sets(HASHABLE, max_size=3)
        | st.frozensets(HASHABLE, max_size=3)
    )


def _counted(factory: Any, pairs: dict[Any, Any]) -> Any:
    filled = defaultdict(factory)
    filled.update(pairs)
    return filled


def _row(values: list[Any], kind: RowKind, *, named: bool) -> Row:
    row = Row.of(values, [f"f{n}" for n in range(len(values))] if named else None)
    row.set_row_kind(kind)
    return row


def _containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    few = st.lists(inner, max_size=3)
    pairs = st.dictionaries(KEYS_OF_DICTS, inner, max_size=3)
    return (
        _builtin_containers(inner)
        | pairs
        | few.map(Items)
        | few.map(Pair)
        | pairs.map(Mapping)
        | pairs.map(OrderedDict)
        | st.builds(_counted, st.sampled_from([int, list, None]), pairs)
        | st.lists(st.text(max_size=2), max_size=4).map(Counter)
        | st.builds(deque, few, st.sampled_from([None, 2]))
        | st.builds(Reading, inner, inner)
        | st.builds(Old, inner, inner)
        | st.builds(Open, inner, inner).map(_with_attribute)
        | st.builds(Plain, inner, inner)
        | st.builds(Frozen, inner)
        | st.builds(Slotted, inner, inner)
        | st.builds(Sealed, inner)
        | st.builds(Model, name=st.text(max_size=2), content=inner)
        | st.builds(Struct, st.text(max_size=2), inner)
        | st.builds(Loose, inner)
        | st.builds(_row, few, st.sampled_from(RowKind), named=st.booleans())
    )


def nested(
    leaves: st.SearchStrategy[Any],
    containers: Callable[[st.SearchStrategy[Any]], st.SearchStrategy[Any]],
    depth: int = 5,
) -> st.SearchStrategy[Any]:
    """Return containers of containers around the leaves, up to `depth` levels."""
    inner = leaves
    for _ in range(depth):
        inner = leaves | containers(inner)
    return inner


PLAIN_VALUES = nested(BUILTIN_SCALARS, _builtin_containers)
"""Values of builtin types only."""
LEAVES = BUILTIN_SCALARS | OTHER_SCALARS | NUMPY_SCALARS | ARRAYS | BUFFERS
VALUES = nested(LEAVES, _containers)
"""Values of all types, with classes inside of classes."""

SAMPLES: list[Any] = [
    *(True, 0, -0.0, math.nan, -math.inf, 2**70, "", "\ud800", b"a\0", 1 + 2j, ...),
    *(Decimal("0.10"), UUID(int=7), date(2026, 11, 22), timedelta(microseconds=1), time(2, 30, fold=1), range(3)),
    *(datetime(2026, 10, 25, 2, 30, tzinfo=ZONES[0], fold=1), datetime(2026, 1, 1, tzinfo=ZONES[-1])),
    *(np.bool_(False), np.int8(-1), np.uint64(2**64 - 1), np.float16(0.1), np.float64(21.5), np.longdouble(1) / 3),
    *(np.complex64(1j), np.str_("é"), np.bytes_(b"a\0b"), np.datetime64("NaT"), np.timedelta64(3, "D"), np.void(b"ab")),
    *(
        np.arange(6).reshape(2, 3),
        np.asfortranarray(np.eye(3, 2)),
        np.zeros(2, _STRUCTURED),
        np.array([1, "a", None], object),
    ),
    *(np.array(5.0), np.arange(10)[::3], bytearray(b"x"), array("d", [1.5])),
    *(
        Text("t"),
        _with_attribute(Number(1)),
        Real(0.5),
        _with_attribute(Octets(b"x")),
        Items([1]),
        Mapping(a=1),
        Pair((1,)),
    ),
    *(Moment(2026, 1, 1), Length(3), Color.BLUE, Level.HIGH, Unit.CELSIUS, Access.READ | Access.WRITE, Bits.A | Bits.B),
    *(
        Reading("s", np.float32(0.1)),
        Old(1, [2]),
        _with_attribute(Open(1, 2)),
        Plain((1, [2])),
        Frozen(None),
        Sealed({1}),
    ),
    *(Slotted(b"x", bytearray()), Model(name="m", content=(1,)), Struct("s", {2: (3,)}), [Loose(np.int64(1)).content]),
    *(OrderedDict(b=1, a=2), _counted(list, {1: [2]}), Counter("abb"), deque([1, 2], 5), frozenset({(1, "a")})),
    *(
        _row([1, (2,)], RowKind.DELETE, named=True),
        {"deep": [({"er": [(np.float32(1.5), {3})]},)]},
        PurePosixPath("/a"),
    ),
]
"""One value of each kind, for tests that are too slow for thousands of values."""
