"""Values of a declared type are written in the same way as in Flink."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pytest

from penstock.common.time import Instant
from penstock.common.type_info.flink_text import text_of
from penstock.common.typeinfo import TypeInformation, Types
from penstock.common.types import Row, RowKind


@pytest.mark.parametrize(
    ("type_info", "value", "text"),
    [
        (Types.STRING(), "a", "a"),
        (Types.STRING(), None, "null"),
        (Types.BOOLEAN(), True, "true"),
        (Types.DOUBLE(), 1e10, "1.0E10"),
        (Types.DOUBLE(), 3, "3.0"),
        (Types.DOUBLE(), 9999999.0, "9999999.0"),
        (Types.DOUBLE(), 1e7, "1.0E7"),
        (Types.DOUBLE(), -0.00012, "-1.2E-4"),
        (Types.DOUBLE(), float("nan"), "NaN"),
        (Types.FLOAT(), 1.1, "1.1"),
        (Types.BIG_DEC(), Decimal("1.50"), "1.50"),
        (Types.TUPLE([Types.STRING(), Types.INT()]), ("a", 1), "(a,1)"),
        (Types.ROW([Types.STRING(), Types.TUPLE([Types.INT(), Types.INT()])]), Row("a", (1, 2)), "+I[a, (1,2)]"),
        (Types.ROW_NAMED(["a"], [Types.INT()]), Row(a=1), "+I[1]"),
        (Types.ROW([Types.INT()]), Row.of_kind(RowKind.DELETE, 1), "-D[1]"),
        (Types.LIST(Types.STRING()), ["a", None], "[a, null]"),
        (Types.MAP(Types.STRING(), Types.INT()), {"a": 1, "b": 2}, "{a=1, b=2}"),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), b"ab", "[97, 98]"),
        (Types.SQL_DATE(), datetime.date(2021, 1, 9), "2021-01-09"),
        (Types.SQL_TIME(), datetime.time(12, 0, 0, 123000), "12:00:00"),
        (Types.SQL_TIMESTAMP(), datetime.datetime(2021, 1, 9, 12, 0, 0, 11000), "2021-01-09 12:00:00.011"),
        (Types.INSTANT(), Instant(1, 500_000_000), "1970-01-01T00:00:01.500Z"),
    ],
)
def test_a_value_of_a_declared_type_has_flinks_text(type_info: TypeInformation, value: Any, text: str) -> None:
    assert text_of(type_info)(value) == text


def test_a_value_without_a_type_has_pythons_text() -> None:
    assert text_of(None)(("a", True, None)) == "('a', True, None)"
