"""A starting job names its current step, and its first epoch has a timeout."""

from __future__ import annotations

import pytest

from penstock.common.errors import EpochFailed
from penstock.jobmanager.failover.failures import JobFailed
from penstock.jobmanager.job.starting.start_steps import FIRST_EPOCH, SENDING, StartSteps
from penstock.taskmanager.protocol import Whereabouts
from penstock.taskmanager.watching.watchdog import OPENING, PROCESSING

LIMIT_S = 10.0


class Start:
    def __init__(self) -> None:
        self.now = 0.0
        self.events: list[str] = []
        self.steps = StartSteps(self.events.append, LIMIT_S, lambda: self.now)
        self.steps.begin(FIRST_EPOCH)

    def look(self, after_s: float, **where: Whereabouts) -> None:
        self.now += after_s
        self.steps.check({(int(task[1:]), 1): of for task, of in where.items()}, lambda: [(2, 1)])


def opening(seconds: float, operator: str = "lookup") -> Whereabouts:
    return Whereabouts(OPENING, seconds, operator, line="job.py:12 in open")


def test_the_slowest_task_names_the_step_and_its_line() -> None:
    start = Start()
    start.look(3, s0=opening(2.5), s3=opening(3.0, "other"))
    assert start.steps.step == "opening functions: slot 3, level 1, operator 'other' (job.py:12 in open)"
    start.look(5, s0=opening(7.5), s3=opening(8.0, "other"))
    assert len(start.events) == 1, "a step is an event once"
    start.look(1)
    assert start.steps.step == FIRST_EPOCH


def test_tasks_that_open_have_a_separate_timeout() -> None:
    start = Start()
    for _ in range(5):
        start.look(LIMIT_S, s0=opening(9))
    start.look(LIMIT_S - 1)


def test_a_first_epoch_without_any_report_ends() -> None:
    start = Start()
    start.look(LIMIT_S)
    with pytest.raises(EpochFailed, match="slot 2 level 1"):
        start.look(1)


def test_a_function_that_does_not_return_in_the_first_epoch_is_named() -> None:
    start = Start()
    where = Whereabouts(
        PROCESSING, 12.0, "parse", "job.py:30", "job.py:7 in parse", '  File "job.py", line 7, in parse'
    )
    with pytest.raises(JobFailed) as caught:
        start.look(LIMIT_S + 1, s1=where)
    failure = caught.value.failure
    assert (failure.name, failure.location) == ("parse", "job.py:30")
    assert "has not ended within 10 s" in failure.message
    assert "(at job.py:7 in parse)" in failure.message
    assert "line 7, in parse" in failure.traceback


def test_a_running_job_has_no_step() -> None:
    start = Start()
    start.steps.begin(SENDING)
    assert start.steps.step == SENDING
    start.steps.end()
    assert start.steps.step == ""


def test_a_timeout_of_0_means_none() -> None:
    steps = StartSteps(lambda step: None, 0.0, iter(range(0, 10**9, 10**6)).__next__)
    steps.begin(FIRST_EPOCH)
    for _ in range(5):
        steps.check({}, list)
