"""Rows, and the descriptions of the types of values."""

from __future__ import annotations

import copy
import datetime
import decimal
import enum
import pickle
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common import Instant, Row, RowKind, Types
from penstock.common.errors import InvalidJob
from penstock.common.type_info.type_inference import (
    ObjectTypeInfo,
    element_type,
    result_type,
    shared_element_type,
    to_type_info,
    type_of_value,
    type_of_values,
)
from penstock.common.typeinfo import (
    BasicType,
    BasicTypeInfo,
    ExternalTypeInfo,
    ListTypeInfo,
    LocalTimeTypeInfo,
    PickledBytesTypeInfo,
    RowTypeInfo,
    TypeInformation,
)
from tests.unit.common.readings import DictReading, ModelReading, NamedReading, Reading, StructReading

NAMED = Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.INT()])


class TestRow:
    def test_a_row_is_read_by_name_position_and_attribute(self) -> None:
        row = Row(name="Alice", age=11)
        assert (row["name"], row[1], row.age, list(row), len(row)) == ("Alice", 11, 11, ["Alice", 11], 2)
        assert "name" in row
        assert "Alice" not in row
        assert 2 in Row(1, 2)

    def test_a_row_is_written_by_name_position_and_attribute(self) -> None:
        row = Row(name="Alice", age=11)
        row["age"] = 12
        row[0] = "Bob"
        assert row == Row(name="Bob", age=12)
        row.age = 13
        assert row.as_dict() == {"name": "Bob", "age": 13}

    def test_a_row_of_names_is_a_factory(self) -> None:
        person = Row("name", "age")
        assert person("Alice", 11) == Row(name="Alice", age=11)
        with pytest.raises(InvalidJob, match="3 values for a Row of 2 fields"):
            person(1, 2, 3)

    def test_nested_rows_become_dicts(self) -> None:
        row = Row(name="Alice", pets=[Row(kind="cat")], by={"x": Row(n=1)})
        assert row.as_dict(recursive=True) == {"name": "Alice", "pets": [{"kind": "cat"}], "by": {"x": {"n": 1}}}
        assert row.as_dict()["pets"] == [Row(kind="cat")]

    def test_comparisons_include_the_kind(self) -> None:
        row = Row.of_kind(RowKind.DELETE, name="Alice")
        assert row != Row(name="Alice")
        row.set_row_kind(RowKind.INSERT)
        assert row == Row(name="Alice")
        assert [str(kind) for kind in RowKind] == ["+I", "-U", "+U", "-D"]

    def test_survives_copies_and_pickles(self) -> None:
        row = Row.of_kind(RowKind.UPDATE_AFTER, name="Alice", tags=["a"])
        for other in (pickle.loads(pickle.dumps(row)), copy.deepcopy(row), copy.copy(row)):
            assert other == row
            assert other.get_row_kind() is RowKind.UPDATE_AFTER

    def test_can_be_a_key_and_sorted(self) -> None:
        assert len({Row(1, "a"), Row(1, "a"), Row(2, "a")}) == 2
        assert sorted([Row(2), Row(1)]) == [Row(1), Row(2)]

    def test_a_missing_field_is_named(self) -> None:
        with pytest.raises(KeyError, match="no field 'city': the row has the fields name"):
            Row(name="x")["city"]
        with pytest.raises(AttributeError, match="no field names"):
            Row("x").city  # noqa: B018
        with pytest.raises(InvalidJob, match="cannot become a dict"):
            Row(1).as_dict()
        with pytest.raises(InvalidJob, match="not both"):
            Row(1, a=2)

    def test_a_row_is_printed_in_the_form_of_its_constructor(self) -> None:
        assert (repr(Row(1, "a")), repr(Row(a=1))) == ("<Row(1, 'a')>", "Row(a=1)")


@pytest.mark.parametrize(
    ("type_info", "python_type", "good", "bad"),
    [
        (Types.STRING(), str, "a", 1),
        (Types.LONG(), int, 5, True),
        (Types.DOUBLE(), float, 5, "5"),
        (Types.BOOLEAN(), bool, True, 1),
        (Types.BIG_DEC(), decimal.Decimal, decimal.Decimal("1.5"), 1.5),
        (Types.INSTANT(), Instant, Instant(1, 2_000_000), 1),
        (Types.SQL_DATE(), datetime.date, datetime.date(2026, 1, 1), datetime.datetime(2026, 1, 1)),
        (Types.SQL_TIME(), datetime.time, datetime.time(1), "01:00"),
        (Types.SQL_TIMESTAMP(), datetime.datetime, datetime.datetime(2026, 1, 1), 5),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), bytes, b"ab", "ab"),
        (Types.PRIMITIVE_ARRAY(Types.INT()), list[int], [1, 2], [1, "a"]),
        (Types.BASIC_ARRAY(Types.STRING()), list[str], ["a"], "a"),
        (Types.OBJECT_ARRAY(Types.TUPLE([Types.INT()])), list[tuple[int]], [(1,)], [1]),
        (Types.LIST(Types.DOUBLE()), list[float], [1.5], [None, "x"]),
        (Types.MAP(Types.STRING(), Types.LIST(Types.INT())), dict[str, list[int]], {"a": [1]}, {"a": 1}),
        (Types.TUPLE([Types.STRING(), Types.INT()]), tuple[str, int], ("a", 1), ("a", 1, 2)),
        (NAMED, tuple[str, int], {"name": "a", "age": 1}, {"city": "x"}),
        (Types.ROW([Types.INT()]), tuple[int], (1,), 1),
        (Types.PICKLED_BYTE_ARRAY(), Any, object(), ...),
        (LocalTimeTypeInfo(LocalTimeTypeInfo.TimeType.LOCAL_DATE), datetime.date, datetime.date(2026, 1, 1), "x"),
        (ExternalTypeInfo(Types.STRING()), str, "a", 1),
    ],
)
class TestTypeInformation:
    def test_python_type(self, type_info: TypeInformation, python_type: Any, good: Any, bad: Any) -> None:
        assert type_info.python_type == python_type

    def test_a_type_accepts_its_values_and_none_but_no_others(
        self, type_info: TypeInformation, python_type: Any, good: Any, bad: Any
    ) -> None:
        assert type_info.accepts(good)
        assert type_info.accepts(None)
        assert bad is ... or not type_info.accepts(bad)

    def test_stored_values_are_restored(
        self, type_info: TypeInformation, python_type: Any, good: Any, bad: Any
    ) -> None:
        value = type_info.convert(good)
        storable = type_info.to_storable(value)
        if python_type is not Any:
            storable = msgspec.msgpack.decode(msgspec.msgpack.encode(storable), type=python_type)
        assert type_info.from_storable(storable) == value
        assert type_info.from_storable(type_info.to_storable(None)) is None

    def test_internal_forms_are_restored(
        self, type_info: TypeInformation, python_type: Any, good: Any, bad: Any
    ) -> None:
        value = type_info.convert(good)
        assert type_info.from_internal_type(type_info.to_internal_type(value)) == value

    def test_is_equal_to_its_copy_only(self, type_info: TypeInformation, python_type: Any, good: Any, bad: Any) -> None:
        clone = pickle.loads(pickle.dumps(type_info))
        assert clone == type_info
        assert hash(clone) == hash(type_info)
        assert type_info != ListTypeInfo(type_info)


def test_basic_types_are_those_of_flink() -> None:
    assert {BasicTypeInfo(kind) for kind in BasicType} == {
        getattr(Types, name)()
        for name in [
            "STRING",
            "BYTE",
            "BOOLEAN",
            "SHORT",
            "INT",
            "LONG",
            "FLOAT",
            "DOUBLE",
            "CHAR",
            "BIG_INT",
            "BIG_DEC",
        ]
    } | {BasicTypeInfo(BasicType.INSTANT)}


def test_a_numpy_array_in_a_declared_row_becomes_a_list() -> None:
    kind = Types.PRIMITIVE_ARRAY(Types.DOUBLE())
    converted = Types.ROW([Types.INT(), kind]).convert(Row(1, np.array([1.5, 2.5])))
    assert tuple(converted) == (1, [1.5, 2.5])
    assert type(converted[1]) is list


def test_rows_keep_their_kind_when_they_are_converted() -> None:
    assert NAMED.convert(Row.of_kind(RowKind.DELETE, "a", 1)) == Row.of_kind(RowKind.DELETE, name="a", age=1)


def test_a_type_with_nested_rows_is_recognized() -> None:
    nested = Types.MAP(Types.STRING(), Types.LIST(Types.TUPLE([NAMED])))
    value = {"x": [(Row(name="a", age=1),)]}
    assert not nested.is_storable
    assert nested.to_storable(value) == {"x": [(("a", 1),)]}
    assert nested.from_storable({"x": [(("a", 1),)]}) == value
    assert Types.MAP(Types.STRING(), Types.INT()).is_storable


def test_row_types_have_fields() -> None:
    assert (NAMED.get_field_names(), NAMED.get_field_index("age"), NAMED.get_field_index("x")) == (
        ["name", "age"],
        1,
        -1,
    )
    assert Types.ROW([str, int]).get_field_types() == [Types.STRING(), Types.LONG()]  # type: ignore[list-item]
    with pytest.raises(InvalidJob, match="2 field types got 1 field names"):
        RowTypeInfo([Types.INT(), Types.INT()], ["a"])
    with pytest.raises(InvalidJob, match="needs the type of its elements"):
        Types.LIST(None)  # type: ignore[arg-type]


@given(st.dates())
def test_dates_are_converted_to_days(day: datetime.date) -> None:
    info = Types.SQL_DATE()
    assert info.to_internal_type(day) == (day - datetime.date(1970, 1, 1)).days
    assert info.from_internal_type(info.to_internal_type(day)) == day


@given(st.datetimes(), st.times())
def test_timestamps_and_times_are_converted_to_microseconds(moment: datetime.datetime, time: datetime.time) -> None:
    for info, value in ((Types.SQL_TIMESTAMP(), moment), (Types.SQL_TIME(), time)):
        assert info.from_internal_type(info.to_internal_type(value)) == value


class Colour(enum.Enum):
    RED = 1


class TestInference:
    @pytest.mark.parametrize("cls", [Reading, NamedReading, DictReading, StructReading, ModelReading])
    def test_the_fields_of_classes_are_inferred(self, cls: type) -> None:
        info = to_type_info(cls)
        assert isinstance(info, ObjectTypeInfo)
        assert info.python_type is cls
        assert info.get_field_names() == ["station", "celsius"]
        assert info.get_field_types() == [Types.STRING(), Types.DOUBLE()]
        assert info == to_type_info(cls)

    @pytest.mark.parametrize(
        ("annotation", "expected"),
        [
            (int, Types.LONG()),
            (bytes, Types.PRIMITIVE_ARRAY(Types.BYTE())),
            (list, Types.LIST(Types.PICKLED_BYTE_ARRAY())),
            (Sequence[int], Types.LIST(Types.LONG())),
            (dict, Types.MAP(Types.PICKLED_BYTE_ARRAY(), Types.PICKLED_BYTE_ARRAY())),
            (Mapping[str, Any], Types.MAP(Types.STRING(), Types.PICKLED_BYTE_ARRAY())),
            (Annotated[int, "positive"], Types.LONG()),
            (Types.INT(), Types.INT()),
            (None, None),
            (object, None),
            (Row, None),
            ("Reading", None),
        ],
    )
    def test_annotations_become_types(self, annotation: Any, expected: Any) -> None:
        assert to_type_info(annotation) == expected

    @pytest.mark.parametrize("annotation", [int | None, int | str, set[int], tuple[int, ...], Colour])
    def test_other_annotations_are_kept(self, annotation: Any) -> None:
        info = to_type_info(annotation)
        assert info is not None
        assert info.python_type == annotation
        assert isinstance(info, ObjectTypeInfo)
        assert info.get_field_names() == []

    @pytest.mark.parametrize("wrong", [3, 1.5, [int], {"a": int}])
    def test_an_invalid_type_is_refused(self, wrong: Any) -> None:
        with pytest.raises(InvalidJob):
            to_type_info(wrong)

    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            ({"a": [1]}, Types.MAP(Types.STRING(), Types.LIST(Types.LONG()))),
            ([1, "a"], Types.LIST(Types.PICKLED_BYTE_ARRAY())),
            ([], Types.LIST(Types.PICKLED_BYTE_ARRAY())),
            ((1, None), Types.TUPLE([Types.LONG(), Types.PICKLED_BYTE_ARRAY()])),
            (True, Types.BOOLEAN()),
            (NamedReading("x", 1.0), ObjectTypeInfo(NamedReading)),
            (Reading("x", 1.0), ObjectTypeInfo(Reading)),
            (None, None),
        ],
    )
    def test_types_of_values_are_inferred(self, value: Any, expected: Any) -> None:
        assert type_of_value(value) == expected

    def test_values_of_one_type_have_that_type(self) -> None:
        assert type_of_values([Reading("a", 1.0), Reading("b", 2.0)]) == ObjectTypeInfo(Reading)
        assert type_of_values([1, None]) is None
        assert type_of_values([]) is None

    def test_types_of_functions_are_inferred(self) -> None:
        import functools

        def length(text: str) -> int:
            return len(text)

        class Callable:
            def __call__(self, text: str) -> float:
                return 1.0

        assert result_type(length, "map") == Types.LONG()
        assert result_type(functools.partial(length, "x"), "map") == Types.LONG()
        assert result_type(Callable(), "map") == Types.DOUBLE()
        assert result_type(str, "map") == Types.STRING()
        assert result_type(len, "map") is None

    def test_types_of_yielded_elements_are_inferred(self) -> None:
        class Two:
            def first(self) -> Iterator[int]:
                yield 1

            def second(self) -> None: ...

            def third(self) -> list[str] | None:
                return None

            def pair(self) -> tuple[int, str]:
                return 1, "a"

        assert element_type(Two(), "first") == Types.LONG()
        assert element_type(Two(), "third") == Types.STRING()
        assert element_type(Two(), "pair") is None
        assert shared_element_type(Two(), "first", "second") == Types.LONG()
        assert shared_element_type(Two(), "first", "third") is None

    def test_an_unresolvable_annotation_does_not_affect_the_others(self) -> None:
        def length(value: Nowhere) -> int:  # type: ignore[name-defined]  # noqa: F821
            return len(value)

        assert result_type(length, "map") == Types.LONG()

    def test_unresolvable_annotations_are_ignored(self) -> None:
        def unknown(value: Nowhere) -> Nowhere:  # type: ignore[name-defined]  # noqa: F821
            return value

        assert result_type(unknown, "map") is None
        assert isinstance(to_type_info(tuple[Any, int]), TypeInformation)
        assert to_type_info(tuple[Any, int]) == Types.TUPLE([PickledBytesTypeInfo(), Types.LONG()])
