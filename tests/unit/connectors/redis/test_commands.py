"""Mapped records become commands that may be executed twice, with plain values as arguments."""

from __future__ import annotations

from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Any

import numpy as np
import pytest

from penstock.common.errors import SinkError
from penstock.connectors.redis.commands import checked, encoded


class Colour(Enum):
    RED = 1.5


class Level(IntEnum):
    HIGH = 3


class Name(StrEnum):
    ONE = "one"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("ü", "ü".encode()),
        (b"\xff", b"\xff"),
        (7, b"7"),
        (0.1, b"0.1"),
        (float("inf"), b"inf"),
        (np.float64(1.5), b"1.5"),
        (np.float32(0.5), b"0.5"),
        (np.int64(-3), b"-3"),
        (np.str_("a"), b"a"),
        (np.bytes_(b"a"), b"a"),
        (Decimal("1.10"), b"1.10"),
        (Colour.RED, b"1.5"),
        (Level.HIGH, b"3"),
        (Name.ONE, b"one"),
    ],
)
def test_values_of_libraries_are_written_as_plain_values(value: Any, expected: bytes) -> None:
    assert encoded(value) == expected
    assert checked(("SET", "k", value), None, 0) == [("SET", b"k", expected)]


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        np.bool_(True),
        [1],
        "\ud800",
        object(),
        np.datetime64(1, "ns"),
        np.timedelta64(1, "ns"),
        np.void(b"a"),
    ],
)
def test_a_value_that_cannot_be_written_is_named(value: Any) -> None:
    with pytest.raises(SinkError, match="which has no Redis representation"):
        checked(("SET", "k", value), "record", 0)


@pytest.mark.parametrize(
    "command",
    [("INCR", "k"), ("zadd", "k", "NX", "incr", 1, "m"), ("ZADD", "k", b"INCR", 1, "m"), ("XADD", "k", "*", "a", 1)],
)
def test_a_command_that_is_not_idempotent_is_refused(command: Any) -> None:
    with pytest.raises(SinkError, match="would count values twice"):
        checked(command, "record", 0)


def test_a_member_may_have_the_name_of_an_option() -> None:
    assert checked(("ZADD", "k", 1, "incr"), None, 0) == [("ZADD", b"k", b"1", b"incr")]


def test_commands_of_a_single_key_get_a_ttl() -> None:
    assert checked([("SET", "k", 1), ("DEL", "o")], None, 5) == [
        ("SET", b"k", b"1"),
        ("PEXPIRE", b"k", 5),
        ("DEL", b"o"),
    ]
    with pytest.raises(SinkError, match="but ttl= applies to one"):
        checked(("MSET", "a", 1, "b", 2), None, 5)
    assert checked(("MSET", "a", 1, "b", 2), None, 0) == [("MSET", b"a", b"1", b"b", b"2")]
