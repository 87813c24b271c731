"""Rolling reduce and the built-in rolling aggregates."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import pytest

from penstock.common.errors import RecordFormatError, StateTypeError, UserFunctionError
from penstock.common.typeinfo import Types
from penstock.common.types import Row
from penstock.datastream.functions import ReduceFunction
from penstock.functions.field_reduce import FieldReduce
from penstock.taskmanager.operators.aggregate.reduce import ReduceOperator, RollingAggregateOperator
from penstock.testing.operator_run import OperatorRun

KEY = itemgetter(0)
ONE_TWO = [(1, 2, 2), (2, 3, 1), (2, 2, 4), (1, 5, 3)]


def test_hashtags_are_counted_rolling() -> None:
    run = OperatorRun(ReduceOperator(lambda a, b: (a[0], a[1] + b[1]), KEY))
    assert run.push(("a", 1), ("b", 1), ("a", 1), at=[1, 2, 3]).results == [(("a", 1), 1), (("b", 1), 2), (("a", 2), 3)]


def test_rolling_sum_emits_per_record_and_keeps_the_first_records_fields() -> None:
    run = OperatorRun(RollingAggregateOperator("sum", 1, KEY))
    assert run.push(*ONE_TWO).values == [(1, 2, 2), (2, 3, 1), (2, 5, 1), (1, 7, 2)]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("max", [(1, 2, 2), (2, 3, 1), (2, 3, 1), (1, 5, 2)]),
        ("min", [(1, 2, 2), (2, 3, 1), (2, 2, 1), (1, 2, 2)]),
        ("max_by", [(1, 2, 2), (2, 3, 1), (2, 3, 1), (1, 5, 3)]),
        ("min_by", [(1, 2, 2), (2, 3, 1), (2, 2, 4), (1, 2, 2)]),
    ],
)
def test_rolling_extremes(kind: Any, expected: list[Any]) -> None:
    assert OperatorRun(RollingAggregateOperator(kind, 1, KEY)).push(*ONE_TWO).values == expected


def test_a_record_of_another_type_than_declared_is_refused_before_it_is_stored() -> None:
    """The first checkpoint would otherwise refuse it as a value of a state that the program does not know."""
    run = OperatorRun(RollingAggregateOperator("sum", 0, len, Types.INT()))
    with pytest.raises(
        StateTypeError, match=r"the record 'a' does not have the type that the function before .* the value is a str"
    ) as refused:
        run.push("a", "b")
    assert "output_type" in refused.value.remedy
    run = OperatorRun(ReduceOperator(lambda a, b: f"{a}{b}", lambda value: 1, Types.INT()))
    with pytest.raises(StateTypeError, match="declared as int and the value is a str: '12'"):
        run.push(1, 2)
    run = OperatorRun(ReduceOperator(max, lambda value: 1, Types.INT()))
    assert run.push(1, 2).values == [1, 2]


def test_extreme_by_keeps_the_first_of_equals() -> None:
    run = OperatorRun(RollingAggregateOperator("max_by", 1, KEY))
    assert run.push((1, 5, "first"), (1, 5, "second")).values[-1] == (1, 5, "first")


@dataclass
class Reading:
    id: str
    t: int


@pytest.mark.parametrize(
    ("first", "second", "expected", "field"),
    [
        ({"id": "a", "t": 1}, {"id": "a", "t": 4}, {"id": "a", "t": 5}, "t"),
        (Row(id="a", t=1), Row(id="a", t=4), Row(id="a", t=5), "t"),
        (Row("a", 1), Row("a", 4), Row("a", 5), 1),
        (Reading("a", 1), Reading("a", 4), Reading("a", 5), "t"),
        (["a", 1], ["a", 4], ["a", 5], 1),
    ],
)
def test_fields_of_every_kind_of_record_are_summed_in_a_copy(
    first: Any, second: Any, expected: Any, field: Any
) -> None:
    before = repr(first)
    assert FieldReduce("sum", field).reduce(first, second) == expected
    assert repr(first) == before


class Concatenate(ReduceFunction):
    def reduce(self, value1: Any, value2: Any) -> Any:
        return value1[0], value1[1] + value2[1]


@pytest.mark.parametrize("fn", [Concatenate(), lambda a, b: (a[0], a[1] + b[1])])
def test_words_per_language_are_concatenated(fn: Any) -> None:
    words = [("en", ["tea"]), ("fr", ["vin"]), ("fr", ["fromage"]), ("en", ["cake"])]
    assert OperatorRun(ReduceOperator(fn, KEY)).push(*words).values == [
        ("en", ["tea"]),
        ("fr", ["vin"]),
        ("fr", ["vin", "fromage"]),
        ("en", ["tea", "cake"]),
    ]


def test_reduced_values_survive_between_batches_and_in_snapshots() -> None:
    run = OperatorRun(RollingAggregateOperator("sum", 1, KEY)).push((1, 2), (2, 9))
    again = run.restart()
    assert again.push((1, 3), (2, 1)).values == [(1, 5), (2, 10)]


def test_error_in_reduce_names_the_record() -> None:
    with pytest.raises(UserFunctionError, match=r"record 2 of a batch of 3: \(1, 'x'\)"):
        OperatorRun(ReduceOperator(lambda a, b: (a[0], a[1] + b[1]), KEY)).push((1, 2), (1, 3), (1, "x"))


def test_a_field_that_cannot_be_summed_is_named_with_its_records() -> None:
    with pytest.raises(RecordFormatError, match=r"sum of the field 1 .*\(1, 5\) and \(1, 'x'\)") as caught:
        OperatorRun(RollingAggregateOperator("sum", 1, KEY)).push((1, 2), (1, 3), (1, "x"))
    assert caught.value.operator == "operator under test"


MISSING = [
    ({"id": "a", "n": 1}, "it has the fields id, n"),
    (Reading("a", 1), "it has the fields id, t"),
    (Row(id="a", n=1), "it has the fields id, n"),
    (("a", 1), "it has the positions 0 to 1"),
    ("a", "it has no fields"),
]


@pytest.mark.parametrize("kind", ["sum", "min", "max", "min_by", "max_by"])
@pytest.mark.parametrize(("record", "has"), MISSING)
def test_the_first_record_of_a_key_without_the_field_is_refused(kind: Any, record: Any, has: str) -> None:
    """No other record of the key may follow, so the operator would emit the record as if it had the field."""
    run = OperatorRun(RollingAggregateOperator(kind, "m", lambda record: 1))
    with pytest.raises(RecordFormatError, match=rf"{kind} of the field 'm': no field 'm' in the record .*: {has}"):
        run.push(record)


@pytest.mark.parametrize("second_key", [1, 2])
def test_a_later_record_without_the_field_is_refused_by_the_same_message(second_key: int) -> None:
    run = OperatorRun(RollingAggregateOperator("sum", "m", itemgetter("k"))).push({"k": 1, "m": 1})
    with pytest.raises(RecordFormatError, match=r"no field 'm' in the record {'k': \d}: it has the fields k") as caught:
        run.push({"k": second_key})
    assert caught.value.operator == "operator under test"


def test_a_negative_position_counts_from_the_end_of_each_record() -> None:
    run = OperatorRun(RollingAggregateOperator("sum", -1, KEY))
    assert run.push((1, 2), (2, 5, 3), (2, 6, 4)).values == [(1, 2), (2, 5, 3), (2, 5, 7)]


def test_error_in_a_key_selector_names_the_record() -> None:
    with pytest.raises(UserFunctionError, match="the key selector on 5"):
        OperatorRun(ReduceOperator(lambda a, b: a, KEY)).push((1, 2), 5)
