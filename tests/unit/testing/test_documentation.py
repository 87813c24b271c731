"""The examples of docs/testing.md run."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock import testing
from penstock.datastream.window import TumblingEventTimeWindows
from tests.unit.testing.functions import SelfCleaningAlert

PAGE = Path(__file__).parents[3] / "docs" / "testing.md"
TESTS = {
    name: block
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for name in re.findall(r"^def (test_\w+)", block, re.MULTILINE)
    if "..." not in block
}


@pytest.mark.parametrize("name", TESTS)
def test_example(name: str) -> None:
    names: dict[str, Any] = {
        "timedelta": timedelta,
        "TumblingEventTimeWindows": TumblingEventTimeWindows,
        "SelfCleaningAlert": SelfCleaningAlert,
        **{public: getattr(testing, public) for public in testing.__all__},
    }
    exec(TESTS[name], names)
    names[name]()


def test_there_are_examples() -> None:
    assert len(TESTS) >= 4
