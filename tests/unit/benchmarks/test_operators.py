from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import operator_cases, operators_baseline
from benchmarks.measures import operators
from benchmarks.operator_cases import CASES, Case, each
from penstock.graph.operations import Map


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return the names of the measured operators. A few represent all of them."""
    few = {"map", "reduce"}
    for name in CASES.keys() - few:
        monkeypatch.delitem(CASES, name)
    return few


def test_every_operator_returns_the_result_of_its_plain_loop() -> None:
    found = operators(6000, 1)
    assert found["problems"] == {}
    assert set(found["operators"]) == {*CASES, "key_by"}
    assert all(figures["us"] > 0 < figures["plain_us"] for figures in found["operators"].values())


@pytest.mark.usefixtures("few")
def test_a_wrong_result_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def lossy(records: Any) -> Any:
        return records[1:]

    monkeypatch.setitem(CASES, "map", Case(lambda: Map(operator_cases.doubled), each(lossy)))
    assert list(operators(6000, 1)["problems"]) == ["map"]


def kept(path: Path, monkeypatch: pytest.MonkeyPatch, ratio: float) -> None:
    monkeypatch.setattr(operators_baseline, "BASELINE", path / "baseline.json")
    result = {"records": 6000, "machine": {}, "operators": {key: {"ratio": ratio} for key in CASES}}
    operators_baseline.save(result, path / "baseline.json")


def test_an_operator_slower_than_its_baseline_is_reported(
    few: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept(tmp_path, monkeypatch, 0.001)
    assert set(operators(6000, 1)["dearer"]) == few
    assert "map has become slower: " in capsys.readouterr().err


@pytest.mark.usefixtures("few")
def test_an_operator_faster_than_its_baseline_is_not_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept(tmp_path, monkeypatch, 1e6)
    assert operators(6000, 1)["dearer"] == {}


def test_a_baseline_with_another_number_of_records_is_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept(tmp_path, monkeypatch, 0.001)
    assert operators_baseline.baseline(6001) == {}


def test_every_operator_has_a_baseline() -> None:
    assert set(operators_baseline.baseline(60_000)) == {*CASES, "key_by"}
