"""Expressions of the Table API become text in SQL."""

from __future__ import annotations

import enum
from decimal import Decimal

import numpy as np
import pytest

from penstock.common.errors import InvalidJob
from penstock.table import DataTypes
from penstock.table.expressions import call, col, lit
from penstock.table.udf import udf


class Level(int, enum.Enum):
    HIGH = 3


@pytest.mark.parametrize(
    ("value", "sql"),
    [
        (Level.HIGH, "3"),
        (np.float64(1.5), "1.5E0"),
        (np.float32(1.5), "1.5E0"),
        (np.int64(-3), "-3"),
        (np.bool_(True), "TRUE"),
        (Decimal("-1.50"), "-1.50"),
        (Decimal(5), "CAST(5 AS DECIMAL(1, 0))"),
        (Decimal("-1E+2"), "CAST(-100 AS DECIMAL(3, 0))"),
    ],
)
def test_a_python_value_is_a_literal_of_its_type(value, sql):
    assert lit(value).sql == sql


def test_a_decimal_without_a_value_is_refused():
    with pytest.raises(InvalidJob, match="no literal for Decimal"):
        lit(Decimal("NaN"))


def test_a_negated_negative_number_does_not_begin_a_comment():
    assert "--" not in (-lit(-1)).sql


def test_an_interval_of_many_months_declares_its_digits():
    assert lit(10).years.sql == "INTERVAL '120' MONTH(3)"
    assert lit(10).minutes.sql == "INTERVAL '0 00:10:00.000' DAY TO SECOND(3)"


def test_names_may_contain_braces():
    assert lit(None, DataTypes.ROW([("a{b", DataTypes.INT())])).sql == "CAST(NULL AS ROW<`a{b` INT>)"
    assert call("f{}", col("a")).sql == "`f{}`(`a`)"


def test_functions_whose_names_differ_only_in_case_or_signs_are_different_functions():
    names = ("Twice.it", "twice_it", "TWICE-IT")
    wrappers = [udf(lambda x: x, result_type="INT", name=name) for name in names]
    assert len({wrapper.unique_name for wrapper in wrappers}) == len(names)
