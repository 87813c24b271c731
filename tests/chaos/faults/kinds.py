"""The soak's faults: everything that can go wrong for a job, each with a proof that it took effect."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from tests.chaos import jobmanager
from tests.chaos.faults.broker_faults import BrokerFaults
from tests.chaos.faults.foreign_clients import KINDS, ForeignClients, listeners
from tests.chaos.faults.orders import Orders
from tests.chaos.faults.requests import JobRequests
from tests.chaos.faults.storage_proxy import Disorder, Target
from tests.chaos.running_job import STUCK_S, RunningJob
from tests.integration.engine.selfcheck import processes
from tools.servers.kafka import KafkaServer

OCCUPIED_S = 10.0
"""Seconds. An order to user code or storage that has no effect by then is withdrawn and does not count."""
NOTICED_S = 30.0
"""Seconds. If the job does not notice the end of a process by then, it did not use it. A larger cluster has idle processes."""
AWAY_S = 6.0
"""The maximum time that the store is down, in seconds."""
SILENT = 1_200
SHIFTS_S = (-600, -300, 0, 300, 600)
"""The possible shifts of the wall clock (s)."""
_AT_RESTARTS = (Target.LEADER, Target.READ)
"""Requests that a job makes at its start."""


@dataclass(frozen=True)
class Fault:
    """One kind of fault.

    `do` executes it and returns whether it took effect. It gets a separate source of random numbers.
    """

    name: str
    do: Callable[[random.Random], bool]
    weight: float = 1.0
    """The frequency beyond the minimum, relative to the others."""
    least: int = 1
    """The minimum frequency in a full run, relative to the others."""
    fails_over: bool = False
    """Whether it ends the attempt. The job has recovered when a later attempt has completed a checkpoint."""
    may_overlap: bool = False
    """Whether it may happen while the job recovers from another fault."""


class Faults:
    """All kinds of faults for one job. `faults` is the catalogue.

    Args:
        without: names of kinds that are left out, also as a part of others.
        brokers: the brokers that the job reads from and writes to.
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
        self.foreign_clients = ForeignClients(random.Random(rng.getrandbits(64)))
        self.connections = dict.fromkeys(KINDS, 0)
        """Number of accepted connections of foreign clients, by kind."""
        self.faults = [
            *self._faults_of_processes(),
            *self._faults_of_storage(),
            *self._faults_of_clients(),
            *self._faults_of_requests(),
        ]
        if brokers is not None:
            them = BrokerFaults(job, brokers)
            self.faults += [
                Fault("broker killed", them.kill, 6, 6, may_overlap=True),
                Fault("broker stands still", them.stand_still, 6, 6, may_overlap=True),
                Fault("broker and JobManager killed", them.kill_with_the_master, 1, 2, fails_over=True),
            ]

    def _faults_of_processes(self) -> list[Fault]:
        """Return the faults of user code, TaskManagers and the JobManager."""
        return [
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
        ]

    def _faults_of_storage(self) -> list[Fault]:
        """Return the faults of the object store."""
        return [
            Fault("storage refuses", self._disorder(Disorder.REFUSE, 6), 3, 4, may_overlap=True),
            Fault("storage is busy", self._disorder(Disorder.SLOW_DOWN, 20), 3, 4, may_overlap=True),
            Fault("storage loses answers", self._disorder(Disorder.LOSE_ANSWER, 4), 5, 6, may_overlap=True),
            Fault("storage is late", self._disorder(Disorder.LATE, 3), 3, 4, may_overlap=True),
            Fault("storage is slow", self._disorder(Disorder.DELAY, 10), 3, 4, may_overlap=True),
            Fault("storage takes half", self._disorder(Disorder.CUT_REQUEST, 3), 2, 3, may_overlap=True),
            Fault("storage gives half", self._disorder(Disorder.CUT_ANSWER, 3), 2, 3, may_overlap=True),
            Fault("storage garbles answers", self._disorder(Disorder.GARBLE, 2), 2, 3, may_overlap=True),
            Fault("objects of a foreign client in storage", self._strange_objects, 1, 2, fails_over=True),
            Fault("storage stands still", self._storage_hangs, 1, 2, may_overlap=True),
            Fault("storage is gone", self._storage_is_gone, 1, 2, may_overlap=True),
        ]

    def _faults_of_clients(self) -> list[Fault]:
        """Return the faults that foreign clients and the clock cause."""
        return [
            *(
                Fault(
                    f"foreign client: {kind}",
                    lambda rng, kind=kind: self._connect_foreign_client(kind),
                    2,
                    3,
                    may_overlap=True,
                )
                for kind in KINDS
            ),
            Fault("silent connections", self._silent_connections, 1, 2),
            Fault("clock jumps", self._clock_jumps, 3, 4, may_overlap=True),
        ]

    def _faults_of_requests(self) -> list[Fault]:
        """Return the requests to the REST API as faults."""
        return [
            Fault("request: savepoint", self._request("savepoint"), 1, 2),
            Fault("request: checkpoint", self._request("checkpoint"), 1, 2),
            Fault("request: rescale", self._request("rescale"), 2, 2),
            Fault("request: stop that fails", self._request("stop that fails"), 1, 2),
            Fault("request: stop with drain that fails", self._request("stop with drain that fails"), 1, 2),
            Fault("request: savepoint with cancel that fails", self._request("savepoint with cancel that fails"), 1, 2),
            Fault("requests that meet", self._meeting, 3, 4),
            Fault("REST calls in random order", self._storm, 1, 2, may_overlap=True),
            Fault("stopped and resumed", self._stop_and_resume, 0.3, 1, fails_over=True),
            Fault("upgraded", self._upgrade, 1, 2, fails_over=True),
            Fault("canceled and resumed", self._cancel_and_resume, 0.3, 1, fails_over=True),
        ]

    # --- user code --------------------------------------------------------------------------------------------

    def _order(self, deed: str, rng: random.Random) -> bool:
        return self._order_at(rng.choice(("source", "check", "window", "sink")), deed)

    def _order_at(self, place: str, deed: str) -> bool:
        self.job.orders.give(place, deed)
        return self._is_obeyed(place)

    def _is_obeyed(self, place: str, patience_s: float = OCCUPIED_S) -> bool:
        until = time.monotonic() + patience_s
        while time.monotonic() < until:
            if self.job.orders.is_taken(place):
                return True
            time.sleep(0.02)
        return not self.job.orders.withdraw(place)

    def _open_raises(self, rng: random.Random) -> bool:
        """Fail the restart after the next failure."""
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
        """Kill one process. Return False, too, if the job did not use it and its attempt continues."""
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
        """Kill the executor and all of its children at the same time."""
        found = self._java("CoarseGrainedExecutorBackend")
        if not found:
            return False
        executor = rng.choice(found)
        for below in processes.descendants([executor]):
            processes.kill(below.pid)
        return self._kill_one([executor], rng)

    def _pause_executor(self, rng: random.Random) -> bool:
        """Stop the executor and its children with SIGSTOP, as on a machine that swaps."""
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
        assert code == jobmanager.SUSPENDED, f"the zombie ended with code {code}:\n{zombie.describe()}"
        return True

    # --- storage ----------------------------------------------------------------------------------------------

    def _disorder(self, disorder: Disorder, times: int) -> Callable[[random.Random], bool]:
        def do(rng: random.Random) -> bool:
            targets = [t for t in Target if t is not Target.ANY]
            if disorder is Disorder.CUT_ANSWER:
                targets = [Target.LIST, Target.READ]
            if disorder is Disorder.GARBLE:
                targets = [Target.READ]
            if disorder is Disorder.CUT_REQUEST:
                targets = [Target.WRITE, Target.LEADER, Target.MANIFEST, Target.STATE, Target.OUTPUT]
            if not self._writes_files:
                targets = [t for t in targets if t not in (Target.OUTPUT, Target.COMMIT)]
            target = rng.choice(targets)
            order = self.job.proxy.order(
                disorder, target, times=rng.randint(1, times), seconds=rng.uniform(0.2, 2.0), lasts_s=OCCUPIED_S
            )
            if target in _AT_RESTARTS:
                self.job.orders.give("restart", "raise")
            until = time.monotonic() + OCCUPIED_S
            while not order.took and time.monotonic() < until:
                time.sleep(0.02)
            time.sleep(rng.uniform(0.0, 1.5))
            if target in _AT_RESTARTS:
                self.job.orders.withdraw("restart")
            return self.job.proxy.withdraw(order) > 0

        return do

    def _strange_objects(self, rng: random.Random) -> bool:
        """Put foreign objects into the job's folder while the job restarts.

        None has the name of a checkpoint. An unreadable checkpoint ends the job, because it needs a person's decision.
        """
        names = (
            "chk-newest/_metadata",
            "chk-/_metadata",
            "chk-1e9/_metadata",
            "leader/none",
            "leader/007.base.base",
            "shared/x",
            "latest.json",
        )
        contents = (b"", b"{}", b"[" * 100_000, rng.randbytes(300), b'{"format_version": 99}', b"null")
        put = [self.job.put(name, rng.choice(contents)) for name in names]
        is_done = self._order_at("check", "raise")
        if is_done:
            self.job.await_progress(self.job.progress())
        for path in put:
            path.unlink(missing_ok=True)
        return is_done

    def _storage_hangs(self, rng: random.Random) -> bool:
        before = self.job.proxy.requests
        self.job.s3.pause()
        time.sleep(rng.uniform(0.5, AWAY_S))
        requests = self.job.proxy.requests - before
        self.job.s3.resume()
        return requests > 0

    def _storage_is_gone(self, rng: random.Random) -> bool:
        """Refuse connections for at least two checkpoint intervals, so that some requests fail."""
        self.job.proxy.close_port()
        reached = self.job.progress()
        time.sleep(rng.uniform(1.0, AWAY_S))
        is_felt = self.job.progress() == reached
        self.job.proxy.open_port()
        return is_felt

    # --- foreign clients --------------------------------------------------------------------------------------------

    def _connect_foreign_client(self, kind: str) -> bool:
        found = listeners(self.job.pids)
        if kind == "replay":
            # At the time of a checkpoint, all processes have communicated with each other.
            with self.foreign_clients.listening({listener.port for listener in found}):
                self.job.await_progress(self.job.progress())
        self.foreign_clients.hang_up()
        visit = self.foreign_clients.visit(kind, found)
        self.connections[kind] += visit.accepted
        return visit.accepted > 0 and (kind == "silence" or visit.sent > 0)

    def _silent_connections(self, rng: random.Random) -> bool:
        """Open more connections to one port than the usual soft limit of open files. The job continues."""
        port = rng.choice(listeners([self.job.master.process.pid]))
        connections: list[socket.socket] = []
        try:
            for _ in range(SILENT):
                with contextlib.suppress(OSError):
                    connections.append(socket.create_connection((port.host, port.port), timeout=1.0))
            self.job.await_progress(self.job.progress())
        finally:
            for connection in connections:
                connection.close()
        return len(connections) > SILENT // 20

    # --- the clock --------------------------------------------------------------------------------------------

    def _clock_jumps(self, rng: random.Random) -> bool:
        """Set the wall clock of all processes of the job permanently. Storage refuses clocks that are 15 minutes off."""
        clock = self.job.clock
        clock.set(rng.choice([shift for shift in SHIFTS_S if shift != clock.shift_s]))
        return True

    # --- requests ---------------------------------------------------------------------------------------------

    def _request(self, kind: str) -> Callable[[random.Random], bool]:
        return lambda rng: self.requests.ask(kind, rng).is_answered

    def _meeting(self, rng: random.Random) -> bool:
        kinds: tuple[str, ...] = (
            "savepoint",
            "checkpoint",
            "rescale",
            "stop that fails",
            "stop with drain that fails",
            "savepoint with cancel that fails",
        )
        kinds = tuple(kind for kind in kinds if f"request: {kind}" not in self.without)
        requests = self.requests.meet(rng.choices(kinds, k=rng.randint(2, 4)), rng)
        return sum(request.is_answered for request in requests) >= 2

    def _storm(self, rng: random.Random) -> bool:
        return self.requests.storm(rng, 40) > 20

    def _stop_and_resume(self, rng: random.Random, start: Callable[[str], None] | None = None) -> bool:
        request = self.requests.ask("stop", rng)
        if not request.is_accepted or (request.is_answered and request.failure):
            return False
        code = self.job.master.wait(STUCK_S)
        assert code == jobmanager.FINISHED, f"a stopped job ended with code {code}:\n{self.job.describe()}"
        savepoint = request.location or self.job.newest_savepoint()
        if start is None:
            self.job.start(restore=savepoint)
        else:
            start(savepoint)
        return True

    def _upgrade(self, rng: random.Random) -> bool:
        return self._stop_and_resume(rng, self.job.upgrade)

    def _cancel_and_resume(self, rng: random.Random) -> bool:
        """Cancel the job, which retains its checkpoints. A new JobManager of the same job continues from the newest."""
        client = self.job.client()
        if client is None:
            return False
        client.cancel(self.job.job_id)
        code = self.job.master.wait(STUCK_S)
        assert code == jobmanager.CANCELED, f"a canceled job ended with code {code}:\n{self.job.describe()}"
        self.job.start()
        return True
