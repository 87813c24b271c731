"""The life of a job with two masters: random faults until it ends, then the check of its output and of its announced end."""

from __future__ import annotations

import os
import random
import types
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from penstock.common.job_status import JobStatus
from penstock.jobmanager.job import checkpoints
from tests.unit.checkpoint.support import InlineExecutor
from tests.unit.jobmanager.process.election.lives.master import NUMBERS, PER_EPOCH, Master, Record
from tests.unit.jobmanager.process.election.lives.world import Host, World, strand

FAULTS = (
    *("kill the leader", "kill the standby", "kill both"),
    *(
        "freeze the leader",
        "freeze the standby",
        "suspend the machine of the leader",
        "suspend the machine of the standby",
    ),
    *("cut off the leader", "cut off the standby", "cut off both", "lose the answers to the leader"),
    *(
        "slow storage",
        "unreliable storage",
        "jump of the clock of storage",
        "drain the leader",
        "mistake a leader for dead",
    ),
)
END_S = 400.0
"""Time after the last fault within which the job must end."""


def use_simulated_clock(patch: pytest.MonkeyPatch) -> None:
    """Let the JobManager's checkpoints use the clock and the threads of the simulation."""
    clock = types.SimpleNamespace(monotonic=lambda: strand().host.monotonic())
    patch.setattr(checkpoints, "time", clock)
    patch.setattr(checkpoints, "ThreadPoolExecutor", lambda *args, **named: InlineExecutor())


class Life:
    """Two places for masters. A master that ends is replaced after some seconds."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        chosen = self.world.random
        self.record = Record(
            fails_at=chosen.choice([None, None, chosen.randrange(NUMBERS - PER_EPOCH)]),
            lacks_slots=chosen.random() < 0.3,
        )
        self.faults: Counter[str] = Counter()
        self._count = 0
        self.masters = [self._start(), self._start()]
        self._waits = [0.0, 0.0]

    def _start(self) -> Master:
        self._count += 1
        chosen = self.world.random
        host = Host(f"m{self._count}", self.world, clock_rate=chosen.choice([1.0, 1.0, 0.9, 1.1]))
        host.error_rate = chosen.choice([0.0, 0.0, 0.01, 0.05])
        host.clock_offset_s = chosen.uniform(-1e6, 900.0)
        return Master(host, self.record)

    def _replace_ended(self) -> None:
        for place, master in enumerate(self.masters):
            if not master.host.is_dead:
                continue
            if not self._waits[place]:
                self._waits[place] = self.world.now_s + self.world.random.uniform(0.5, 6.0)
            elif self.world.now_s >= self._waits[place]:
                self._waits[place] = 0.0
                self.masters[place] = self._start()

    def run(self, seconds: float) -> None:
        end = self.world.now_s + seconds
        while self.world.now_s < end and not self.record.ends:
            self._replace_ended()
            self.world.run_for(0.25)

    def live(self) -> None:
        """Inflict faults until the job ends or enough have happened. Then heal everything, and wait for the end."""
        chosen = self.world.random
        for _ in range(chosen.randrange(6, 20)):
            self.run(chosen.choice([0.5, 2.0, 6.0]) * chosen.random())
            if self.record.ends and chosen.random() < 0.5:
                break
            self._inflict(chosen.choice(FAULTS))
        self.run(chosen.choice([0.0, 10.0, 70.0]))
        self._heal()
        self.run(END_S)
        self.outlive_the_end()
        self.stop()

    def outlive_the_end(self) -> None:
        """Restart everything after the end, and let frozen masters continue. No master may run the job again."""
        for _ in range(2):
            for master in self.masters:
                if self.world.random.random() < 0.5:
                    master.host.kill()
            end = self.world.now_s + 60.0
            while self.world.now_s < end:
                self._replace_ended()
                self.world.run_for(0.25)

    def _heal(self) -> None:
        self.world.latency_s = 0.02
        for master in self.masters:
            host = master.host
            host.is_cut = host.loses_answers = False
            host.frozen_until_s = min(host.frozen_until_s, self.world.now_s)
            host.error_rate = 0.0

    def stop(self) -> None:
        """End all threads, and raise their unexpected failures."""
        for master in self.masters:
            master.host.kill()
            master.host.frozen_until_s = 0.0
        self.world.run_for(1_000.0)
        for master in self.masters:
            for thread in master.host.strands:
                if thread.failure is not None:
                    raise AssertionError(self.describe()) from thread.failure

    # --- faults -------------------------------------------------------------------------------------------------

    def _inflict(self, fault: str) -> None:
        chosen = self.world.random
        leader = next((place for place, master in enumerate(self.masters) if master.leads), chosen.randrange(2))
        leading, waiting = self.masters[leader], self.masters[1 - leader]
        self.faults[fault] += 1
        self.world.note(f"fault: {fault} ({leading.host.name} leads)")
        victim = waiting if fault.endswith("the standby") else leading
        seconds = chosen.choice([0.3, 4.0, 15.0, 90.0]) * chosen.random()
        later = self.world.now_s + seconds
        if fault.startswith("kill"):
            for master in self.masters if fault == "kill both" else [victim]:
                self._kill(master)
        elif fault.startswith(("freeze", "suspend")):
            victim.host.freeze(seconds, with_clock=fault.startswith("suspend"))
        elif fault.startswith("cut off"):
            for master in self.masters if fault == "cut off both" else [victim]:
                master.host.is_cut = True
                self.world.at(later, lambda host=master.host: setattr(host, "is_cut", False))
        elif fault == "lose the answers to the leader":
            victim.host.loses_answers = True
            self.world.at(later, lambda: setattr(victim.host, "loses_answers", False))
        elif fault == "slow storage":
            self.world.latency_s = chosen.uniform(0.1, 1.0)
            self.world.at(later, lambda: setattr(self.world, "latency_s", 0.02))
        elif fault == "unreliable storage":
            victim.host.error_rate = chosen.choice([0.1, 0.4])
            self.world.at(later, lambda: setattr(victim.host, "error_rate", 0.0))
        elif fault == "jump of the clock of storage":
            self.world.store.jump_s = chosen.uniform(0.0, 7200.0)
        elif fault == "drain the leader":
            victim.leaves = True
        elif fault == "mistake a leader for dead" and leading.elector.leader is not None:
            waiting.elector.report_death(leading.elector.leader.id)

    def _kill(self, master: Master) -> None:
        """Kill a process. The others often notice it by their connection to it."""
        is_leader = master.leads
        master.host.kill()
        for other in self.masters:
            if is_leader and other is not master and self.world.random.random() < 0.7:
                other.elector.report_death(master.host.name)

    # --- checks -------------------------------------------------------------------------------------------------

    def problems(self) -> list[str]:
        found = list(self.record.violations)
        if not self.record.ends:
            return [*found, f"the job has not ended within {END_S} s after the last fault"]
        visible, status = self.record.visible(), self.record.ends[0][2]
        length = sum(visible.values())
        if status is JobStatus.FINISHED and visible != Counter(range(NUMBERS)):
            found.append(f"the output of the job is {sorted(visible.elements())}")
        if visible != Counter(range(length)):
            found.append(f"records are missing or repeated: {sorted(visible.elements())}")
        must_fail = self.record.fails_at is not None
        if must_fail != (status is JobStatus.FAILED) and not self.record.lacks_slots:
            found.append(f"the job is {status.value}, and fails at {self.record.fails_at}")
        return found

    def describe(self) -> str:
        return "\n".join([*self.problems(), *self.world.log])


def run_life(seed: int, patch: pytest.MonkeyPatch) -> Life:
    use_simulated_clock(patch)
    with on_one_processor():
        life = Life(seed)
        life.live()
    return life


@contextmanager
def on_one_processor() -> Iterator[None]:
    """Run new threads on the processor of this thread. Only one of them runs at a time, so this makes their switches cheaper."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {random.choice(sorted(allowed))})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def is_wrong(seed: int, patch: pytest.MonkeyPatch) -> bool:
    try:
        return bool(run_life(seed, patch).problems())
    except AssertionError:
        return True
