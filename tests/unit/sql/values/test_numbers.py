"""Numbers of SQL at the limits of their types, and values in columns that are not valid."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest

from penstock.sql.expressions import json_values, numbers
from penstock.sql.expressions.casts import CastFailed, cast
from penstock.sql.expressions.compiler import compile_value
from penstock.sql.expressions.more_functions import truncated
from penstock.sql.operators.aggregates import Aggregates
from penstock.sql.plan.nodes import AggregateCall
from penstock.sql.plan.rex import Call, InputRef
from penstock.sql.plan.types import SqlType

WIDE = SqlType("DECIMAL", precision=38, scale=7)
LONG = Decimal("1234567890123456789012345678901.0000001")
DOUBLE = SqlType("DOUBLE")
INFINITY = math.inf


def aggregate(name, type, *values, result=None):
    call = AggregateCall(name, (0,), (type,), -1, distinct=False, type=result or type)
    aggregates = Aggregates((call,), retracts=True)
    accumulators = aggregates.create()
    for value in values:
        aggregates.add(accumulators, (value,))
    return aggregates, accumulators


def test_a_sum_of_decimals_keeps_all_digits():
    aggregates, accumulators = aggregate("SUM", WIDE, LONG, Decimal("0.0000002"))
    assert aggregates.results(accumulators) == (Decimal("1234567890123456789012345678901.0000003"),)
    aggregates.merge(accumulators, accumulators)
    aggregates.retract(accumulators, (LONG,))
    assert aggregates.results(accumulators) == (Decimal("1234567890123456789012345678901.0000005"),)


def test_a_collection_of_doubles_contains_nan_itself():
    multiset = SqlType("MULTISET", fields=(("", DOUBLE),))
    aggregates, accumulators = aggregate("COLLECT", DOUBLE, math.nan, 1.0, math.nan, result=multiset)
    assert str(aggregates.results(accumulators)) == "({1.0: 1, nan: 2},)"


def test_nan_is_removed_from_an_array_also_after_a_restart():
    aggregates, accumulators = aggregate("ARRAY_AGG", DOUBLE, math.nan, 1.0)
    aggregates.retract(accumulators, (float("nan"),))
    assert aggregates.results(accumulators) == ((1.0,),)


def test_the_absolute_value_of_a_decimal_keeps_all_digits():
    assert compile_value(Call("ABS", (InputRef(0, WIDE),), WIDE), "UTC")((LONG.copy_negate(),)) == LONG


@pytest.mark.parametrize("value", [Decimal("1E+300"), Decimal("-1E+300")])
def test_a_decimal_with_far_too_many_digits_is_null(value):
    assert numbers.decimal(value, 10, 2) is None


def test_large_numbers_can_be_rounded_and_truncated():
    assert numbers.round_to(1e300, 2) == 1e300
    assert numbers.round_to(1.25e300, -300) == 1e300
    assert truncated(1e300, 2) == 1e300
    assert truncated(-1.5) == -1.0
    assert truncated(LONG, 0) == Decimal("1234567890123456789012345678901")


@pytest.mark.parametrize(("left", "right"), [(INFINITY, 2.0), (5.0, 0.0), (5, 0.0)])
def test_a_remainder_that_does_not_exist_is_nan(left, right):
    assert math.isnan(numbers.remainder(left, right))


def test_a_cotangent_of_infinity_is_nan():
    assert math.isnan(compile_value(Call("COT", (InputRef(0, DOUBLE),), DOUBLE), "UTC")((INFINITY,)))


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a": NaN}', "Infinity"])
def test_a_text_that_is_no_json_has_no_values(text):
    assert not json_values.is_json(text)
    assert json_values.value(text, "$.a") is None


@pytest.mark.parametrize(
    ("text", "type"),
    [("1_000", DOUBLE), ("1_000", WIDE), ("1_000", SqlType("BIGINT")), ("٣", SqlType("INTEGER")), ("NaN", WIDE)],
)
def test_a_text_that_only_python_reads_as_a_number_cannot_be_cast(text, type):
    convert = cast(SqlType("VARCHAR"), type, "UTC")
    assert convert is not None
    assert convert(" 12 ") == 12
    with pytest.raises(CastFailed, match="CAST of"):
        convert(text)
