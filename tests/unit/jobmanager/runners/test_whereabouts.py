"""The step that a task reports is valid only as long as the task repeats it."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.jobmanager.runners.spark_runner import WHEREABOUTS_S, SparkRunner
from penstock.taskmanager.protocol import Whereabouts
from penstock.taskmanager.watching.watchdog import OPENING, REPORT_INTERVAL_S


def test_the_step_of_a_task_that_reports_nothing_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a task that opened slowly would hide another one that never returns."""
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    runner: Any = object.__new__(SparkRunner)
    where = Whereabouts(OPENING, 3.0, "lookup")
    runner._whereabouts = {(0, 1): (now, where)}
    now += REPORT_INTERVAL_S + 1
    assert runner.whereabouts() == {(0, 1): where}
    now += WHEREABOUTS_S
    assert runner.whereabouts() == {}
