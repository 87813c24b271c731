"""The runner that a job gets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.graph.executor import executing_on
from penstock.jobmanager.job.settings import JobSettings
from penstock.jobmanager.process.session.session import Session
from penstock.jobmanager.runners.in_process import InProcessRunner
from tests.in_process import InProcess, environment


@pytest.mark.parametrize(
    ("runner", "dataframes", "pipelined"),
    [
        ("auto", False, True),
        ("auto", True, False),
        ("batched", False, False),
        ("pipelined", False, True),
    ],
)
def test_auto_selects_pipelined_except_for_dataframes(runner: str, *, dataframes: bool, pipelined: bool) -> None:
    settings = JobSettings.from_configuration({"penstock.runner": runner})
    assert settings.uses_pipelined(dataframes=dataframes) is pipelined


def test_a_bounded_job_without_dataframes_may_be_pipelined(tmp_path: Path) -> None:
    choices = []

    class Asked(InProcess):
        def runner_for(self, slots: int, levels: int, settings: Any, *, dataframes: bool) -> InProcessRunner:
            choices.append(settings.uses_pipelined(dataframes=dataframes))
            return super().runner_for(slots, levels, settings, dataframes=dataframes)

    env = environment(tmp_path)
    env.from_collection([1, 2, 3]).add_sink(lambda value: None)
    with executing_on(Session(Asked())):
        env.execute("bounded")
    assert choices == [True]
