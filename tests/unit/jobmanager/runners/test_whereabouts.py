"""What a task has said of where it stands holds for as long as it goes on saying so."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.jobmanager.runners import spark_runner
from penstock.jobmanager.runners.spark_runner import WHEREABOUTS_S, SparkRunner
from penstock.taskmanager.protocol import Whereabouts
from penstock.taskmanager.watching.watchdog import OPENING, TELL_EVERY_S


def test_a_task_that_says_nothing_any_more_stands_there_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one that opened slowly would hide for ever another that never comes back."""
    now = 100.0
    monkeypatch.setattr(spark_runner.time, "monotonic", lambda: now)
    runner: Any = object.__new__(SparkRunner)
    where = Whereabouts(OPENING, 3.0, "lookup")
    runner._whereabouts = {(0, 1): (now, where)}
    now += TELL_EVERY_S + 1
    assert runner.whereabouts() == {(0, 1): where}
    now += WHEREABOUTS_S
    assert runner.whereabouts() == {}
