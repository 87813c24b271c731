"""The cache of one loop: what it keeps between passes changes no decision."""

from __future__ import annotations

import pytest
import yaml

from penstock_operator.errors import SpecError
from penstock_operator.reconcile.cache import ParsedSpecs
from tests.unit.operator.world import flinkjob

RAW = flinkjob()["spec"]


def test_an_unchanged_spec_is_parsed_once() -> None:
    specs = ParsedSpecs()
    assert specs(flinkjob()["spec"]) is specs(flinkjob()["spec"])


def test_specs_that_differ_only_in_the_type_of_a_value_are_parsed_separately() -> None:
    specs = ParsedSpecs()
    number, boolean = (specs({**RAW, "configuration": {"penstock.x": value}}) for value in (1, True))
    assert number.configuration["penstock.x"] is not boolean.configuration["penstock.x"]


def test_values_of_yaml_that_are_no_json_are_judged_as_without_a_cache() -> None:
    preset = yaml.safe_load("{penstock.x: 2024-01-01}")
    with pytest.raises(SpecError, match="the value is a date"):
        ParsedSpecs()({**RAW, "configuration": preset})


def test_a_key_that_is_no_string_is_not_taken_for_the_string() -> None:
    specs = ParsedSpecs()
    specs({**RAW, "configuration": yaml.safe_load("{'1': a}")})
    with pytest.raises(SpecError, match="valid string"):
        specs({**RAW, "configuration": yaml.safe_load("{1: a}")})


def test_an_invalid_spec_is_refused_every_time() -> None:
    specs = ParsedSpecs()
    for _ in range(2):
        with pytest.raises(SpecError):
            specs({**RAW, "image": 7})


def test_the_cache_is_bounded_and_keeps_the_specs_that_were_used_last() -> None:
    specs = ParsedSpecs()
    first = specs(RAW)
    for number in range(20):
        specs({**RAW, "image": f"job:{number}"})
        assert specs(RAW) is first
    assert len(specs._known) < 10
