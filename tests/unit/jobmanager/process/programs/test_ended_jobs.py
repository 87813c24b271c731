"""Ended jobs of programs: how many are kept, and for how long."""

from __future__ import annotations

import time

import pytest

from penstock.checkpoint.coordinator.statistics import CheckpointHistory
from penstock.jobmanager.history.archive import JobArchive
from penstock.jobmanager.process.programs.ended_jobs import EndedJobs
from penstock.rest import facts
from penstock.rest.errors import Conflict, NotFound


def archive(job_id: str, name: str = "job") -> JobArchive:
    job = facts.Job(job_id, name, "FINISHED", 1, 1, 1)
    return JobArchive(job, facts.CheckpointSettings(), CheckpointHistory().overview())


def test_the_oldest_jobs_are_removed_first() -> None:
    removed: list[str] = []
    ended = EndedJobs(2, 60.0, removed.append)
    for job_id in ("a", "b", "a", "c"):
        ended.add(archive(job_id))
    assert [job.id for job in ended.jobs()] == ["a", "c"]
    assert removed == ["b"]
    assert ended.has("a")
    assert not ended.has("b")


def test_old_jobs_are_removed_when_another_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    removed: list[str] = []
    ended = EndedJobs(100, 60.0, removed.append)
    ended.add(archive("a"))
    later = time.monotonic() + 61
    monkeypatch.setattr(time, "monotonic", lambda: later)
    ended.add(archive("b"))
    assert removed == ["a"]


def test_a_job_that_runs_again_is_forgotten() -> None:
    removed: list[str] = []
    ended = EndedJobs(1, 60.0, removed.append)
    ended.add(archive("a"))
    ended.forget("a")
    ended.forget("never there")
    assert ended.jobs() == []
    assert removed == []


def test_an_ended_job_is_shown_and_takes_no_action() -> None:
    ended = EndedJobs(1, 60.0)
    ended.add(archive("a"))
    assert ended.job("a").state == "FINISHED"
    assert ended.checkpoints("a").history == []
    with pytest.raises(Conflict, match="is FINISHED"):
        ended.cancel("a")
    with pytest.raises(NotFound, match="job b does not exist"):
        ended.job("b")
