"""Jobs with fewer slots than they request: `default` waits for them, `adaptive` runs with the available ones."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.common.errors import NotEnoughSlots
from penstock.common.job_status import JobStatus
from penstock.connectors.simple.number_seq import NumberSequenceSource
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.graph.executor import executing_on
from penstock.jobmanager.job.job_master import JobMaster
from penstock.jobmanager.job.job_parts import JobMasterOptions
from penstock.jobmanager.job.scheduler import JobScheduler
from penstock.jobmanager.job.settings import JobSettings
from penstock.jobmanager.process.session.session import Session
from penstock.jobmanager.runners.in_process import InProcessRunner
from tests.in_process import OneRunner, until
from tests.integration.engine.selfcheck.driver import environment
from tests.integration.engine.selfcheck.job import Plan, build
from tests.integration.engine.selfcheck.output import verify

PLAN = Plan(per_key=300, rate=2_000)


class Slots(InProcessRunner):
    """A runner whose number of slots changes."""

    def lose(self, count: int) -> None:
        self._capacity -= count
        self.lost = True

    def give_back(self, count: int) -> None:
        self._capacity += count


@contextmanager
def running(folder: Path, scheduler: str) -> Iterator[tuple[JobMaster, Slots]]:
    """Run the self-verifying job in 3 slots, and check that it finishes with exactly-once output."""
    settings = {
        "rest.port": "-1",
        "jobmanager.scheduler": scheduler,
        "execution.checkpointing.interval": "50 ms",
        "execution.checkpointing.dir": f"file://{folder}/checkpoints",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "10",
        "restart-strategy.fixed-delay.delay": "10 ms",
    }
    env = environment(settings, 3)
    build(env, PLAN, f"file://{folder}/output")
    slots = Slots(3)
    session = Session(OneRunner(slots))
    session.on_started = lambda master: setattr(master.options, "stabilization_s", 0.2)
    with executing_on(session):
        env.execute_async("self-verifying")
    master = session.dispatcher.jobs()[0]
    until(lambda: master.history.status is JobStatus.RUNNING, master)
    yield master, slots
    assert master.wait(120) is JobStatus.FINISHED
    verify(PLAN, f"file://{folder}/output")


def a_wide_operator(max_parallelism: int, backend: str = "hashmap") -> JobScheduler:
    """Return a job with parallelism 2, whose operator `wide` has 4 and `narrow` has the given maximum."""
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_source(NumberSequenceSource(1, 10), None, "numbers")
    stream = stream.key_by(int).sum().name("narrow").set_max_parallelism(max_parallelism)
    stream.map(str).name("wide").set_parallelism(4).print()
    options = JobMasterOptions(parallelism=2, stabilization_s=0)
    settings = JobSettings.from_configuration({"jobmanager.scheduler": "adaptive", "state.backend.type": backend})
    return JobScheduler(env.get_program("wide"), settings, options)


def five_operators(settings: dict[str, str] | None = None) -> JobScheduler:
    """Return a job of the operators A to E. C and E have parallelism 2, the others 4."""
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_source(NumberSequenceSource(1, 10), None, "A")
    for name, parallelism in [("B", 4), ("C", 2), ("D", 4)]:
        stream = stream.map(lambda n: n).name(name).set_parallelism(parallelism)
    stream.print().name("E").set_parallelism(2)
    options = JobMasterOptions(parallelism=4, slot_timeout_s=0.2)
    return JobScheduler(env.get_program("five operators"), JobSettings.from_configuration(settings or {}), options)


def test_a_job_needs_as_many_slots_as_its_widest_operator() -> None:
    """One slot runs a task of every operator."""
    graph = five_operators().place(InProcessRunner(4), lambda _: None, print)
    assert graph.slots == 4
    assert [stage.parallelism for stage in graph.stages] == [4, 2, 4, 2]


def test_a_job_with_too_few_slots_waits_visibly_and_then_fails() -> None:
    """The job needs four slots and the cluster has three."""
    events: list[str] = []
    with pytest.raises(NotEnoughSlots, match="'five operators' needs 4 slots, but the cluster has 3"):
        five_operators().place(InProcessRunner(3), time.sleep, events.append)
    assert events == ["waiting for slots: 3 of 4"]


COPIES_ELSEWHERE = "4 slots are free; waiting for slots on the machines that have copies of the job's state"


class AwayFromHome(InProcessRunner):
    """A runner with enough slots, but on other machines than before. The right ones appear after some polls."""

    questions = 0

    def expects_returning_slots(self) -> bool:
        self.questions += 1
        return self.questions <= 3


@pytest.mark.parametrize(
    ("backend", "from_local", "questions"), [("rocksdb", "true", 4), ("rocksdb", "false", 0), ("hashmap", "true", 0)]
)
def test_a_job_waits_briefly_for_the_disk_that_has_its_state(backend: str, from_local: str, questions: int) -> None:
    events: list[str] = []
    runner = AwayFromHome(4)
    settings = {"state.backend.type": backend, "execution.state-recovery.from-local": from_local}
    assert five_operators(settings).place(runner, lambda _: None, events.append).slots == 4
    assert runner.questions == questions
    assert events == [COPIES_ELSEWHERE] * bool(questions)


class TakenOnce(InProcessRunner):
    """A runner whose free slots another job takes once, before this job holds them."""

    is_taken = True

    def place(self, slots: int) -> None:
        if self.is_taken:
            self.is_taken = False
            raise NotEnoughSlots("another job was faster", remedy="wait")
        super().place(slots)


def test_a_job_whose_slots_another_job_took_says_so() -> None:
    events: list[str] = []
    assert five_operators().place(TakenOnce(4), lambda _: None, events.append).slots == 4
    assert events == ["another job took the free slots first; waiting for slots"]


def test_adaptive_waits_for_that_disk_as_well() -> None:
    events: list[str] = []
    scheduler, runner = a_wide_operator(max_parallelism=4, backend="rocksdb"), AwayFromHome(4)
    assert scheduler.place(runner, lambda _: None, events.append).slots == 4
    assert (runner.questions, events) == (4, [COPIES_ELSEWHERE])


def test_the_wait_for_the_disk_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AwayFromHome, "expects_returning_slots", lambda self: True)
    assert five_operators({"state.backend.type": "rocksdb"}).place(AwayFromHome(4), time.sleep, print).slots == 4


def test_adaptive_continues_with_the_remaining_slots_and_grows_again(tmp_path: Path) -> None:
    with running(tmp_path, "adaptive") as (master, slots):
        slots.lose(1)
        until(lambda: master.parallelism == 2 and master.history.status is JobStatus.RUNNING, master)
        slots.give_back(1)
        until(lambda: master.parallelism == 3 and master.history.status is JobStatus.RUNNING, master)
    assert master.history.restarts == 1
    assert [(r.old_parallelism, r.new_parallelism, r.trigger) for r in master.history.rescales] == [(2, 3, "slots")]


def test_adaptive_gives_no_operator_more_subtasks_than_it_requests() -> None:
    """Three of the four slots are available. A parallelism of 3 would be above an operator's maximum."""
    scheduler, slots = a_wide_operator(max_parallelism=2), Slots(3)
    graph = scheduler.place(slots, lambda _: None, print)
    assert [(node.name, node.parallelism) for node in graph.operators if node.name in ("narrow", "wide")] == [
        ("narrow", 2),
        ("wide", 3),
    ]
    assert scheduler.parallelism == 2
    assert scheduler.can_grow_to(slots) is None
    slots.give_back(1)
    assert scheduler.can_grow_to(slots) == 2
    assert scheduler.place(slots, lambda _: None, print).slots == 4
    assert scheduler.can_grow_to(slots) is None


def test_default_waits_for_the_slots_it_needs(tmp_path: Path) -> None:
    with running(tmp_path, "default") as (master, slots):
        slots.lose(1)
        until(lambda: any("waiting for slots: 2 of 3" in event.text for event in master.history.events), master)
        time.sleep(0.5)
        assert master.history.status is JobStatus.RESTARTING
        slots.give_back(1)
        until(lambda: master.history.status is JobStatus.RUNNING, master)
        assert master.parallelism == 3
    assert not master.history.rescales
