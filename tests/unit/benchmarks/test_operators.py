from __future__ import annotations

from typing import Any

import pytest

from benchmarks import operator_cases
from benchmarks.measures import operators
from benchmarks.operator_cases import CASES, Case, each
from penstock.graph.operations import Map


def test_every_operator_gives_what_its_loop_gives() -> None:
    found = operators(6000, 1)
    assert found["problems"] == {}
    assert set(found["operators"]) == {*CASES, "key_by"}
    assert all(figures["us"] > 0 < figures["plain_us"] for figures in found["operators"].values())


def test_a_wrong_result_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def lossy(records: Any) -> Any:
        return records[1:]

    monkeypatch.setitem(CASES, "map", Case(lambda: Map(operator_cases.doubled), each(lossy)))
    assert list(operators(6000, 1)["problems"]) == ["map"]
