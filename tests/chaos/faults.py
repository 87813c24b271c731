"""The soak's faults: what can be done to a job, each with a proof that it was."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from tests.chaos import jobmanager
from tests.chaos.broker_faults import BrokerFaults
from tests.chaos.job import Orders
from tests.chaos.requests import JobRequests
from tests.chaos.running_job import STUCK_S, RunningJob
from tests.chaos.storage_proxy import Disorder, Target
from tests.chaos.strangers import KINDS, Strangers, listeners
from tests.integration.engine.selfcheck import processes
from tools.kafkaserver import KafkaServer

TAKEN_S = 10.0
"""What was ordered of user code or storage is met by then, or is withdrawn and does not count."""
NOTICED_S = 30.0
"""A process that is gone is missed by then, or was not used: a cluster that has grown has idle ones."""
AWAY_S = 6.0
"""The store is away for that long at most."""
_AT_RESTARTS = (Target.LEADER, Target.READ)
"""Requests that a job makes when it starts."""


@dataclass(frozen=True)
class Fault:
    """One kind.

    `do` carries it out and says whether it took effect. It is given a source of chance of its own.
    """

    name: str
    do: Callable[[random.Random], bool]
    weight: float = 1.0
    """How often, relative to the others, beyond the least number."""
    least: int = 1
    """How often at least in a full run, relative to the others."""
    fails_over: bool = False
    """Done, it ends the attempt: the job has recovered when a later one has completed a checkpoint."""
    may_overlap: bool = False
    """May be done while the job recovers from another."""


class Faults:
    """All kinds, for one job. `faults` is the catalogue.

    Args:
        without: names of kinds that are not done, nor as a part of others.
        brokers: that the job reads from and writes to.
    """

    def __init__(
        self,
        job: RunningJob,
        rng: random.Random,
        without: Collection[str] = (),
        brokers: KafkaServer | None = None,
    ) -> None:
        self.job = job
        self.without = without
        self._writes_files = brokers is None
        self.requests = JobRequests(job, rng)
        self.strangers = Strangers(random.Random(rng.getrandbits(64)))
        self.connections = dict.fromkeys(KINDS, 0)
        """Of strangers, that were accepted."""
        self.faults = [
            Fault("user code raises", lambda rng: self._order("raise", rng), 3, 3, fails_over=True),
            Fault("user code ends its process", lambda rng: self._order("exit", rng), 1, 2, fails_over=True),
            Fault("user code crashes", lambda rng: self._order("crash", rng), 1, 2, fails_over=True),
            Fault("open raises", self._open_raises, 1, 2, fails_over=True),
            Fault("user code hangs", lambda rng: self._order("hang", rng), 1, 2, fails_over=True),
            Fault("slow sink", self._slow_sink, 2, 3),
            Fault("Python worker killed", self._kill_python_worker, 3, 3, fails_over=True),
            Fault("executor killed", self._kill_executor, 2, 2, fails_over=True),
            Fault("executor stands still", self._pause_executor, 2, 2),
            Fault("TaskManager killed", self._kill_worker, 1, 1, fails_over=True),
            Fault("JobManager killed", self._kill_master, 0.5, 1, fails_over=True),
            Fault("zombie JobManager", self._zombie, 0.5, 1, fails_over=True),
            Fault("storage refuses", self._disorder(Disorder.REFUSE, 6), 3, 4, may_overlap=True),
            Fault("storage is busy", self._disorder(Disorder.SLOW_DOWN, 20), 3, 4, may_overlap=True),
            Fault("storage loses answers", self._disorder(Disorder.LOSE_ANSWER, 4), 5, 6, may_overlap=True),
            Fault("storage is late", self._disorder(Disorder.LATE, 3), 3, 4, may_overlap=True),
            Fault("storage is slow", self._disorder(Disorder.DELAY, 10), 3, 4, may_overlap=True),
            Fault("storage takes half", self._disorder(Disorder.CUT_REQUEST, 3), 2, 3, may_overlap=True),
            Fault("storage gives half", self._disorder(Disorder.CUT_ANSWER, 3), 2, 3, may_overlap=True),
            Fault("storage stands still", self._storage_stands_still, 1, 2, may_overlap=True),
            Fault("storage is gone", self._storage_is_gone, 1, 2, may_overlap=True),
            *(
                Fault(f"stranger: {kind}", lambda rng, kind=kind: self._stranger(kind), 2, 3, may_overlap=True)
                for kind in KINDS
            ),
            Fault("request: savepoint", self._request("savepoint"), 1, 2),
            Fault("request: checkpoint", self._request("checkpoint"), 1, 2),
            Fault("request: rescale", self._request("rescale"), 2, 2),
            Fault("request: stop that fails", self._request("stop that fails"), 1, 2),
            Fault("request: stop with drain that fails", self._request("stop with drain that fails"), 1, 2),
            Fault("request: savepoint with cancel that fails", self._request("savepoint with cancel that fails"), 1, 2),
            Fault("requests that meet", self._meeting, 3, 4),
            Fault("REST calls in random order", self._storm, 1, 2, may_overlap=True),
            Fault("stopped and resumed", self._stop_and_resume, 0.3, 1, fails_over=True),
            Fault("canceled and resumed", self._cancel_and_resume, 0.3, 1, fails_over=True),
        ]
        if brokers is not None:
            them = BrokerFaults(job, brokers)
            self.faults += [
                Fault("broker killed", them.kill, 6, 6, may_overlap=True),
                Fault("broker stands still", them.stand_still, 6, 6, may_overlap=True),
                Fault("broker and JobManager killed", them.kill_with_the_master, 1, 2, fails_over=True),
            ]

    # --- user code --------------------------------------------------------------------------------------------

    def _order(self, deed: str, rng: random.Random) -> bool:
        return self._order_at(rng.choice(("source", "check", "window", "sink")), deed)

    def _order_at(self, place: str, deed: str) -> bool:
        self.job.orders.give(place, deed)
        return self._is_obeyed(place)

    def _is_obeyed(self, place: str, patience_s: float = TAKEN_S) -> bool:
        until = time.monotonic() + patience_s
        while time.monotonic() < until:
            if self.job.orders.is_taken(place):
                return True
            time.sleep(0.02)
        return not self.job.orders.withdraw(place)

    def _open_raises(self, rng: random.Random) -> bool:
        """A restart is met by the next failure."""
        self.job.orders.give("open", rng.choice(("raise", "exit")))
        if not self._order_at("check", "raise"):
            self.job.orders.withdraw("open")
            return False
        return self._is_obeyed("open", NOTICED_S)

    def _slow_sink(self, rng: random.Random) -> bool:
        felt = self.job.folder / "orders" / f"{Orders.SLOW}-felt"
        felt.unlink(missing_ok=True)
        self.job.orders.give(Orders.SLOW, str(rng.choice((0.002, 0.005, 0.02))))
        time.sleep(rng.uniform(1.0, 3.0))
        self.job.orders.withdraw(Orders.SLOW)
        return felt.exists()

    # --- processes --------------------------------------------------------------------------------------------

    def _java(self, name: str) -> list[int]:
        found = processes.descendants([self.job.master.process.pid])
        return sorted(p.pid for p in found if name in p.command and "java" in p.command)

    def _kill_one(self, found: list[int], rng: random.Random) -> bool:
        """False also if the job did not use that one: its attempt goes on."""
        before = self.job.attempts()
        if not found or not processes.kill(rng.choice(found)):
            return False
        until = time.monotonic() + NOTICED_S
        while self.job.attempts() == before and time.monotonic() < until:
            time.sleep(0.1)
        return self.job.attempts() > before

    def _kill_python_worker(self, rng: random.Random) -> bool:
        return self._kill_one(sorted(processes.python_workers([self.job.master.process.pid])), rng)

    def _kill_executor(self, rng: random.Random) -> bool:
        return self._kill_one(self._java("CoarseGrainedExecutorBackend"), rng)

    def _kill_worker(self, rng: random.Random) -> bool:
        """The executor and all that is below it at once."""
        found = self._java("CoarseGrainedExecutorBackend")
        if not found:
            return False
        executor = rng.choice(found)
        for below in processes.descendants([executor]):
            processes.kill(below.pid)
        return self._kill_one([executor], rng)

    def _pause_executor(self, rng: random.Random) -> bool:
        """SIGSTOP it with all that is below it, as on a machine that swaps."""
        found = self._java("CoarseGrainedExecutorBackend")
        if not found:
            return False
        executor = rng.choice(found)
        stopped = []
        for pid in (executor, *(p.pid for p in processes.descendants([executor]))):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                stopped.append(pid)
        time.sleep(rng.uniform(0.5, 2.5))
        for pid in stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        return bool(stopped)

    def _kill_master(self, rng: random.Random) -> bool:
        self.job.master.note()
        self.job.master.kill()
        self.job.start()
        return True

    def _zombie(self, rng: random.Random) -> bool:
        zombie = self.job.master
        zombie.stop()
        reached = self.job.progress()
        self.job.start()
        self.job.await_progress(reached, epoch=reached.epoch)
        zombie.go_on()
        code = zombie.wait(STUCK_S)
        assert code == jobmanager.SUSPENDED, f"the zombie ended with code {code}:\n{zombie.told()}"
        return True

    # --- storage ----------------------------------------------------------------------------------------------

    def _disorder(self, disorder: Disorder, times: int) -> Callable[[random.Random], bool]:
        def do(rng: random.Random) -> bool:
            targets = [t for t in Target if t is not Target.ANY]
            if disorder is Disorder.CUT_ANSWER:
                targets = [Target.LIST, Target.READ]
            if disorder is Disorder.CUT_REQUEST:
                targets = [Target.WRITE, Target.LEADER, Target.MANIFEST, Target.STATE, Target.OUTPUT]
            if not self._writes_files:
                targets = [t for t in targets if t not in (Target.OUTPUT, Target.COMMIT)]
            target = rng.choice(targets)
            order = self.job.proxy.order(
                disorder, target, times=rng.randint(1, times), seconds=rng.uniform(0.2, 2.0), lasts_s=TAKEN_S
            )
            if target in _AT_RESTARTS:
                self.job.orders.give("restart", "raise")
            until = time.monotonic() + TAKEN_S
            while not order.took and time.monotonic() < until:
                time.sleep(0.02)
            time.sleep(rng.uniform(0.0, 1.5))
            if target in _AT_RESTARTS:
                self.job.orders.withdraw("restart")
            return self.job.proxy.withdraw(order) > 0

        return do

    def _storage_stands_still(self, rng: random.Random) -> bool:
        before = self.job.proxy.requests
        self.job.s3.pause()
        time.sleep(rng.uniform(0.5, AWAY_S))
        asked = self.job.proxy.requests - before
        self.job.s3.resume()
        return asked > 0

    def _storage_is_gone(self, rng: random.Random) -> bool:
        """Connections are refused; for at least two intervals of checkpoints, so that some were."""
        self.job.proxy.close_port()
        reached = self.job.progress()
        time.sleep(rng.uniform(1.0, AWAY_S))
        is_felt = self.job.progress() == reached
        self.job.proxy.open_port()
        return is_felt

    # --- strangers --------------------------------------------------------------------------------------------

    def _stranger(self, kind: str) -> bool:
        found = listeners(self.job.pids)
        if kind == "replay":
            # By the time of a checkpoint everybody has spoken to everybody.
            with self.strangers.listening({listener.port for listener in found}):
                self.job.await_progress(self.job.progress())
        self.strangers.hang_up()
        visit = self.strangers.visit(kind, found)
        self.connections[kind] += visit.accepted
        return visit.accepted > 0 and (kind == "silence" or visit.sent > 0)

    # --- requests ---------------------------------------------------------------------------------------------

    def _request(self, kind: str) -> Callable[[random.Random], bool]:
        return lambda rng: self.requests.ask(kind, rng).is_answered

    def _meeting(self, rng: random.Random) -> bool:
        kinds = (
            "savepoint",
            "checkpoint",
            "rescale",
            "stop that fails",
            "stop with drain that fails",
            "savepoint with cancel that fails",
        )
        kinds = tuple(kind for kind in kinds if f"request: {kind}" not in self.without)
        asked = self.requests.meet(rng.choices(kinds, k=rng.randint(2, 4)), rng)
        return sum(request.is_answered for request in asked) >= 2

    def _storm(self, rng: random.Random) -> bool:
        return self.requests.storm(rng, 40) > 20

    def _stop_and_resume(self, rng: random.Random) -> bool:
        asked = self.requests.ask("stop", rng)
        if not asked.is_accepted or (asked.is_answered and asked.failure):
            return False
        code = self.job.master.wait(STUCK_S)
        assert code == jobmanager.FINISHED, f"a stopped job ended with code {code}:\n{self.job.told()}"
        self.job.start(restore=asked.location or self.job.newest_savepoint())
        return True

    def _cancel_and_resume(self, rng: random.Random) -> bool:
        """Its checkpoints are retained: a JobManager that starts for the same job goes on from the newest."""
        client = self.job.client()
        if client is None:
            return False
        client.cancel(self.job.job_id)
        code = self.job.master.wait(STUCK_S)
        assert code == jobmanager.CANCELED, f"a canceled job ended with code {code}:\n{self.job.told()}"
        self.job.start()
        return True
