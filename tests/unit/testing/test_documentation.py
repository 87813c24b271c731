"""The examples of docs/testing.md run."""

from __future__ import annotations

import os
import re
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock import testing
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream.window import TumblingEventTimeWindows
from tests.unit.testing.functions import SelfCleaningAlert

pytest_plugins = ["pytester"]

PAGE = Path(__file__).parents[3] / "docs" / "testing.md"
BLOCKS = [block for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "..." not in block]
TESTS = {name: block for block in BLOCKS for name in re.findall(r"^def (test_\w+)\(\)", block, re.MULTILINE)}
WITH_FIXTURES = [block for block in BLOCKS if re.search(r"^def test_\w+\(\w", block, re.MULTILINE)]
PREAMBLE = """import pytest
from tests.unit.testing.functions import SelfCleaningAlert

"""


@pytest.mark.parametrize("name", TESTS)
def test_an_example_runs(name: str) -> None:
    names: dict[str, Any] = {
        "timedelta": timedelta,
        "TumblingEventTimeWindows": TumblingEventTimeWindows,
        "WatermarkStrategy": WatermarkStrategy,
        "SelfCleaningAlert": SelfCleaningAlert,
        **{public: getattr(testing, public) for public in testing.__all__},
    }
    exec(TESTS[name], names)
    names[name]()


@pytest.mark.parametrize("block", WITH_FIXTURES)
def test_an_example_with_fixtures_runs(block: str, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(PAGE.parents[1]), *sys.path]))
    pytester.makepyfile(PREAMBLE + block)
    result = pytester.runpytest_subprocess("-p", "penstock.pytest_plugin", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=block.count("def test_"))


def test_the_page_has_examples() -> None:
    assert len(TESTS) >= 4
    assert WITH_FIXTURES
