"""Arrays, maps, multisets and rows in JSON, as Python objects and as printed text."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from penstock.common.errors import InvalidJob, RecordFormatError
from penstock.common.types import Row
from penstock.sql.plan.nodes import Column, TableInfo
from penstock.sql.plan.types import SqlType, type_of
from penstock.sql.tables.formats import JsonFormat, format_of
from penstock.sql.tables.options import TableOptions
from penstock.sql.tables.values import printed, to_python

CASES: list[tuple[str, str, Any, Any, str]] = [
    ("ARRAY<INT>", "[1,null]", (1, None), [1, None], "[1, null]"),
    ("ARRAY<ARRAY<STRING>>", '[["a"],[]]', (("a",), ()), [["a"], []], "[[a], []]"),
    ("MAP<STRING, DOUBLE>", '{"a":1.5,"b":null}', {"a": 1.5, "b": None}, {"a": 1.5, "b": None}, "{a=1.5, b=null}"),
    ("MULTISET<STRING>", '{"a":2}', {"a": 2}, {"a": 2}, "{a=2}"),
    ("ROW<`x y` INT, z ROW<d DATE>>", '{"x y":1,"z":{"d":"1970-01-02"}}', (1, (1,)), None, "+I[1, +I[1970-01-02]]"),
    ("ARRAY<DECIMAL(20, 2)>", "[0.10]", (Decimal("0.10"),), [Decimal("0.10")], "[0.10]"),
    ("ROW<a INT 'a comment', b BIGINT NOT NULL> NOT NULL", '{"a":null,"b":2}', (None, 2), None, "+I[null, 2]"),
]


def json_of(type: SqlType) -> JsonFormat:
    return JsonFormat((Column("c", type),), ignores_errors=False)


@pytest.mark.parametrize(("text", "json", "value", "python", "shown"), CASES)
def test_a_value_has_the_same_json_after_it_was_read(text, json, value, python, shown):
    type = type_of(text)
    format = json_of(type)
    assert format.read(f'{{"c":{json}}}') == (value,)
    assert format.write((value,)) == f'{{"c":{json}}}'
    assert printed(type)(value) == shown
    convert = to_python(type, "UTC")
    assert convert is not None
    assert isinstance(convert(value), Row) if python is None else convert(value) == python


def test_a_row_has_the_names_of_its_fields():
    convert = to_python(type_of("ROW<a INT, b ARRAY<ROW<c STRING>>>"), "UTC")
    assert convert is not None
    assert convert((1, (("x",),))).as_dict(recursive=True) == {"a": 1, "b": [{"c": "x"}]}


@pytest.mark.parametrize(
    ("text", "json"), [("ARRAY<INT>", "5"), ("MAP<STRING, INT>", "[]"), ("ROW<a INT>", "[1]"), ("ARRAY<INT>", '["x"]')]
)
def test_another_json_value_is_an_error(text, json):
    with pytest.raises(RecordFormatError, match="is not a value of the type"):
        json_of(type_of(text)).read(f'{{"c":{json}}}')


def test_json_has_no_map_with_other_keys():
    with pytest.raises(InvalidJob, match="its keys are not strings"):
        json_of(type_of("MAP<INT, INT>"))
    with pytest.raises(RecordFormatError, match="a map with the key NULL"):
        json_of(type_of("MAP<STRING, INT>")).write(({None: 1},))


def test_csv_refuses_nested_columns_by_name():
    table = TableInfo("t", (Column("a", type_of("ARRAY<INT>")),), {"connector": "filesystem", "format": "csv"})
    with pytest.raises(InvalidJob, match="CSV cannot contain the column a of the type ARRAY<INTEGER>"):
        format_of(TableOptions(table))


@pytest.mark.parametrize(
    "text", ["RAW('java.lang.Object', 'x')", "ARRAY<RAW('a', 'b')>", "ARRAY<INT", "MAP<INT>", "ROW<a"]
)
def test_an_unknown_type_is_refused(text):
    with pytest.raises(InvalidJob, match="Penstock does not support the type"):
        type_of(text)
