"""Committers that hang. A committer is user code in the JobManager, which reports the line and abandons the call.

The next attempt commits the promised committables. A call that returns later has no further effect.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.common.errors import EpochFailed
from penstock.common.job_status import JobStatus
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.core.sink import Committer
from penstock.connectors.core.two_phase import TwoPhaseCommitSink
from penstock.connectors.simple.datagen import DataGeneratorSource
from penstock.jobmanager.coordinators.sink_commits import SinkCommits
from penstock.jobmanager.failover.failures import JobFailed
from penstock.jobmanager.job.requests import Operation
from penstock.taskmanager.protocol import STEP_TIMEOUT
from tests.in_process import environment, started, until
from tests.unit.jobmanager.coordinators.committing import NO_FILES, Into, graph_of
from tests.unit.jobmanager.coordinators.test_slow_commits import Slow

CALLS = ("create_committer", "commit", "abort", "discard_unreferenced")
LIMIT_S = 0.3


class Hung:
    """The state that the functions of one test share. They run in this process."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.go_on = threading.Event()
        self.threads: list[threading.Thread] = []
        self.committed: list[tuple[str, threading.Thread]] = []

    def commit(self, transaction: str) -> None:
        thread = threading.current_thread()
        if thread in self.threads or len(self.threads) < self.times:
            self.threads.append(thread)
            self.go_on.wait(60)
        self.committed.append((transaction, thread))

    def of(self, *, zombies: bool) -> list[str]:
        return [transaction for transaction, thread in self.committed if (thread in self.threads) is zombies]


HUNG: dict[str, Hung] = {}


class Hangs(Slow):
    """A sink whose first commits do not return until the test releases them."""

    def commit(self, transaction: Any) -> None:
        HUNG[self.folder].commit(transaction)


@pytest.fixture(params=[1, 2], ids=["as-it-runs", "and-again-at-the-start"])
def hung(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Hung]:
    HUNG[str(tmp_path)] = hung = Hung(request.param)
    yield hung
    hung.go_on.set()
    del HUNG[str(tmp_path)]


def test_the_next_attempt_commits_the_promises_of_a_hung_one(hung: Hung, tmp_path: Path) -> None:
    env = environment(
        tmp_path,
        **{
            "execution.checkpointing.interval": "20 ms",
            "penstock.sink.commit-timeout": f"{LIMIT_S} s",
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.delay": "0 ms",
            "restart-strategy.fixed-delay.attempts": "5",
        },
    )
    env.set_parallelism(3)
    numbers = env.from_source(DataGeneratorSource(int, None, 2_000), WatermarkStrategy.no_watermarks(), "numbers")
    numbers.sink_to(TwoPhaseCommitSink(Hangs(str(tmp_path)))).name("target")
    master = started(env)
    until(lambda: len(set(hung.of(zombies=False))) > 6, master)
    assert [failure.name for failure in master.history.failures] == [STEP_TIMEOUT] * hung.times
    failure = master.history.failures[0]
    assert "pieces of sink 'target' has not ended within" in failure.message
    assert f"{__file__}:" in failure.message
    assert "go_on.wait(60)" in failure.traceback
    before = set(hung.of(zombies=False))
    hung.go_on.set()
    for thread in hung.threads:
        thread.join(60)
    woken = hung.of(zombies=True)
    assert len(woken) == hung.times, "each went on with nothing behind the commit that it was in"
    assert set(woken) <= before, "and that one had been carried out by the attempt after it"
    master.request(Operation("stop", {"directory": "", "drain": False}))
    assert master.wait(60) is JobStatus.FINISHED
    live = hung.of(zombies=False)
    names = {path.name for path in tmp_path.iterdir() if path.is_file()}
    assert len(live) == len(set(live)), "an attempt that went well is not repeated"
    assert set(live) <= names


class Waits(Committer):
    """A committer that waits in one of its calls until the test is over."""

    def __init__(self, waits_in: str = "") -> None:
        self.waits_in = waits_in
        self.go_on = threading.Event()
        self.interrupted = False
        self.seen: list[str] = []

    def _wait_in(self, call: str) -> None:
        if call == self.waits_in:
            self.go_on.wait(60)
        self.seen.append(call)

    def commit(self, committables: list[Any]) -> None:
        for _ in committables:
            self.check_wanted()
            self._wait_in("commit")

    def abort(self, committables: list[Any]) -> None:
        self._wait_in("abort")

    def interrupt(self) -> None:
        self.interrupted = True

    def discard_unreferenced(self, keep: list[Any], below_attempt: int | None = None) -> None:
        self._wait_in("discard_unreferenced")


class MadeSlowly(Into):
    def create_committer(self, object_store_options: dict[str, Any], *, job_id: str = "", uid: str = "") -> Committer:
        made = super().create_committer(object_store_options, job_id=job_id, uid=uid)
        assert isinstance(made, Waits)
        made._wait_in("create_committer")
        return made


@pytest.fixture
def waits(request: pytest.FixtureRequest) -> Iterator[Waits]:
    committer = Waits(request.param)
    yield committer
    committer.go_on.set()


def attempt(commits: SinkCommits, sink: Into, number: int) -> None:
    commits.begin_attempt(graph_of(sink), {"out": ["promised", "too"]}, {}, number, NO_FILES)
    commits.abort({"out": ["lost"]}, {})


@pytest.mark.parametrize("waits", CALLS, indirect=True)
def test_a_call_that_times_out_names_its_line_and_the_next_attempt_has_another_committer(
    waits: Waits,
) -> None:
    commits, healthy = SinkCommits("job", {}, LIMIT_S), Waits()
    sink = MadeSlowly(waits, healthy)
    with pytest.raises(JobFailed) as caught:
        attempt(commits, sink, 1)
    failure = caught.value.failure
    assert (failure.kind, failure.name, failure.location) == (STEP_TIMEOUT, "out", "job.py:7")
    assert "sink 'out' has not ended within 0.3 s" in failure.message
    assert __file__ in failure.message
    assert "penstock.sink.commit-timeout" in failure.remedy
    assert waits.interrupted or waits.waits_in == "create_committer"
    attempt(commits, sink, 2)
    assert healthy.seen == ["create_committer", "commit", "commit", "discard_unreferenced", "abort"]
    assert commits.close() == []


@pytest.mark.parametrize("waits", ["commit"], indirect=True)
def test_commits_behind_a_hung_commit_do_not_start(waits: Waits) -> None:
    commits = SinkCommits("job", {}, LIMIT_S)
    commits.begin_attempt(graph_of(Into(waits)), {}, {}, 1, NO_FILES)
    commits.commit(1, {"out": ["a", "b"]})
    commits.commit(2, {"out": ["c"]})
    with pytest.raises(JobFailed):
        commits.drain()
    assert commits.is_idle
    waits.go_on.set()
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "penstock-commit"]
    thread.join(60)
    assert waits.seen == ["discard_unreferenced", "commit"]


@pytest.mark.parametrize("waits", CALLS, indirect=True)
def test_a_job_that_must_end_does_not_wait(waits: Waits) -> None:
    commits = SinkCommits("job", {}, 600)
    ending = threading.Timer(0.2, commits.give_up)
    ending.start()
    with pytest.raises(EpochFailed, match=r"the commit of sink 'out' was abandoned"):
        attempt(commits, MadeSlowly(waits), 1)
    assert commits.close() == []
    ending.join()


@pytest.mark.parametrize("waits", ["commit"], indirect=True)
def test_unfinished_output_is_removed_although_a_commit_hangs(waits: Waits) -> None:
    commits, healthy = SinkCommits("job", {}, 600), Waits()
    commits.begin_attempt(graph_of(Into(waits, healthy)), {}, {}, 1, NO_FILES)
    commits.commit(1, {"out": ["a"]})
    commits.give_up()
    assert commits.close() == []
    commits.end({"out": ["lost"]}, {"out": ["a"]}, 1)
    assert healthy.seen == ["abort", "discard_unreferenced"]
