"""The output of `make test` when it skips the end-to-end tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.e2e import here

if TYPE_CHECKING:
    import pytest


def _machine(monkeypatch: pytest.MonkeyPatch, *reasons: str, programs: bool = True, images: bool = True) -> None:
    monkeypatch.delenv("PENSTOCK_E2E", raising=False)
    monkeypatch.setattr(here, "reasons_against", lambda _level, _root: iter(reasons))
    monkeypatch.setattr(type(here.binaries.MODULE), "has", lambda _self, _names: programs)
    monkeypatch.setattr(here, "is_built", lambda _name: images)


def test_the_end_to_end_tests_run_on_a_machine_that_has_everything(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _machine(monkeypatch)
    assert here.main() == 0
    assert capsys.readouterr().out == ""


def test_every_obstacle_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    _machine(monkeypatch, "you are not root", programs=False, images=False)
    assert list(here.obstacles()) == [
        "you are not root",
        "the programs of the development cluster are not built yet",
        "the images are not built yet",
    ]


def test_the_reason_for_skipping_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _machine(monkeypatch, images=False)
    assert here.main() == here.LEFT_OUT
    output = capsys.readouterr().out
    assert "LEFT OUT, the end-to-end tests: the images are not built yet" in output
    assert "make test-e2e" in output


def test_the_environment_variable_disables_the_end_to_end_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    _machine(monkeypatch, "you are not root")
    monkeypatch.setenv("PENSTOCK_E2E", "no")
    assert list(here.obstacles()) == ["PENSTOCK_E2E is no"]
