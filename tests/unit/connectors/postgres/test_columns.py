"""Conversion of the log's text values to the values of records."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from penstock.common.errors import SourceError
from penstock.connectors.formats.shape import RecordShape
from penstock.connectors.postgres.cdc.columns import CapturedTable, TableValues


def loaded(declared: Any, oid: int, text: str) -> Any:
    shape = None if declared is None else RecordShape.of({"v": declared}, "row")
    columns = (("v", oid),)
    table = TableValues(CapturedTable("t", ("v",), False, columns), columns, shape, form="row", follows=False)
    [row] = table.records([table.load([text.encode()])])
    return row["v"]


@pytest.mark.parametrize(
    ("declared", "oid", "text"),
    [
        (None, 1082, "infinity"),
        (None, 1184, "4713-01-01 00:00:00+00 BC"),
        (None, 1083, "24:00:00"),
        (int, 1700, "12.00"),
        (None, 1009, "{{a,b},{c,d}}"),
        (None, 1007, "{{1,2},{3,4}}"),
    ],
)
def test_an_error_names_table_and_column_of_a_value_that_python_cannot_represent(
    declared: Any, oid: int, text: str
) -> None:
    with pytest.raises(SourceError, match="column 'v' of table 't': ") as caught:
        loaded(declared, oid, text)
    assert text in str(caught.value)
    assert "str" in caught.value.remedy
    assert loaded(str, oid, text) == text


@pytest.mark.parametrize(
    ("declared", "oid", "text", "expected"),
    [
        (None, 3807, r'{"{\"a\": 1}",NULL}', ['{"a": 1}', None]),
        (None, 1187, '{"1 day",02:00:00}', ["1 day", "02:00:00"]),
        (None, 1020, "{(1,1),(0,0);(2,2),(1,1)}", ["(1,1),(0,0)", "(2,2),(1,1)"]),
        (list[str], 99_999, "{small,large}", ["small", "large"]),
        (list[str], 1009, "{a,NULL}", ["a", None]),
        (None, 1007, "{1,NULL}", [1, None]),
        (None, 1182, "{2013-07-01}", [date(2013, 7, 1)]),
        (None, 1082, "2013-07-01", date(2013, 7, 1)),
        (Decimal, 1700, "12.5", Decimal("12.5")),
    ],
)
def test_values_have_the_declared_types_and_array_items_are_unchanged(
    declared: Any, oid: int, text: str, expected: Any
) -> None:
    assert loaded(declared, oid, text) == expected
