"""The JobManager's door for TaskManagers: they come, are given executors to start, and count as long as they are connected.

It listens on `jobmanager.rpc.port`. Who does not have the cluster's secret gets nothing (`sealed_server`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import msgspec

from penstock.common.errors import ClusterError
from penstock.common.stacks.listener import Question
from penstock.common.stacks.sampling import Place, Sample
from penstock.jobmanager.cluster.executor.executor_process import Launch
from penstock.jobmanager.cluster.logs.files import LogSource
from penstock.jobmanager.cluster.logs.requests import RemoteLogs
from penstock.jobmanager.cluster.members.questions import Questions
from penstock.jobmanager.cluster.members.registration import (
    MOST_BYTES,
    PURPOSE,
    AskLog,
    AskReadings,
    AskStacks,
    Beat,
    FromTaskManager,
    Killed,
    LogAnswer,
    ReadingsAnswer,
    Register,
    Running,
    StacksAnswer,
    Start,
)
from penstock.jobmanager.cluster.members.registry import Member
from penstock.jobmanager.cluster.sealed_server import Peer, SealedServer
from penstock.jobmanager.cluster.spark_cluster import SparkCluster
from penstock.jobmanager.failover.crash import MemoryKill

SILENT_S = 20.0
"""A TaskManager that says nothing for so long is gone: its machine, most likely."""
LOOK_S = 2.0
"""How often the driver's executors are looked at."""
LOOK_SOON_S = 0.2
"""The same while one is expected."""
READINGS_S = 3.0
"""For a TaskManager to tell what its JVM reads: who scrapes metrics waits for all of them."""
_NONE = ""
"""The executor of a TaskManager that has just come."""

logger = logging.getLogger(__name__)


class ResourceManager(SealedServer):
    """Serves until `close`.

    Args:
        spark: started; whose executors they are.
        on_failure: called with the reason when it can serve no more, though nobody has closed it.
    """

    what = "the resource manager"

    def __init__(
        self, host: str, port: int, spark: SparkCluster, on_failure: Callable[[Exception], object] = lambda why: None
    ) -> None:
        try:
            super().__init__(host, port, spark.credentials.secret, PURPOSE, MOST_BYTES)
        except OSError as error:
            raise ClusterError(
                f"workers cannot be waited for at {host}:{port}: {error}",
                remedy="set jobmanager.rpc.address to an address of this machine, and jobmanager.rpc.port to a free port",
            ) from error
        self._spark = spark
        self._on_failure = on_failure
        self._peers: dict[str, Peer] = {}
        self._silent: dict[str, float] = {}
        """Seconds, by TaskManager."""
        self._logs: Questions[AskLog, LogAnswer] = Questions()
        self._stacks: Questions[AskStacks, StacksAnswer] = Questions()
        self._readings: Questions[AskReadings, ReadingsAnswer] = Questions()
        self._launches: dict[str, Launch] = {}
        """What each TaskManager was told last."""
        self._launching = threading.Lock()
        """Held while a TaskManager's executor is compared, replaced and told of: two threads do that. Comes before `_lock`."""
        self._watcher = threading.Thread(target=self._watch, name="penstock-resources", daemon=True)

    def start(self) -> None:
        super().start()
        self._watcher.start()

    def admit(self, peer: Peer, frame: bytes) -> str | None:
        register = peer.name = msgspec.msgpack.decode(frame, type=Register)
        if register.slots < 1:
            return f"has {register.slots} slots"
        with self._launching:
            with self._lock:
                before = self._peers.get(register.id)
                self._peers[register.id] = peer
                self._silent[register.id] = 0.0
            member = self._spark.registry.remove(register.id)
        if before is not None:  # it has come again before its last connection was missed
            before.hang_up()
        if member is not None:
            self._spark.remove_executor(member.executor, "its worker has come again")
        return None

    def on_admitted(self, peer: Peer) -> None:
        register = _of(peer)
        logger.info("worker %s on %s has come, with %d slots", register.id, register.host, register.slots)
        member = Member(register.id, register.host, register.slots, register.heap, _NONE, last_heartbeat=_now_ms())
        with self._launching:
            self._spark.registry.put(member)
        self._launch(peer, _NONE)

    def _launch(self, peer: Peer, expected_executor: str) -> None:
        """Have it start another executor in the place of this one, unless it has come again or has another one already."""
        register = _of(peer)
        with self._launching:
            member = self._spark.registry.get(register.id)
            if member is None or member.executor != expected_executor or not self._is_current(peer):
                return
            launch = self._launches[register.id] = self._spark.launch()
            self._spark.registry.put(replace(member, executor=launch.executor_id, registered=False))
            self.post(peer, msgspec.msgpack.encode(Start(launch)))

    def _tell_again(self, peer: Peer, ended: str) -> None:
        """It has spoken of an executor that is not the one it was told to start: it may not know that one."""
        with self._launching:
            launch = self._launches.get(_of(peer).id)
            if launch is not None and launch.executor_id != ended and self._is_current(peer):
                self.post(peer, msgspec.msgpack.encode(Start(launch)))

    def on_frame(self, peer: Peer, frame: bytes) -> None:
        said: FromTaskManager = msgspec.msgpack.decode(frame, type=FromTaskManager)
        register = _of(peer)
        if isinstance(said, LogAnswer):
            self._logs.answered(said.request, said)
            return
        if isinstance(said, StacksAnswer):
            self._stacks.answered(said.request, said)
            return
        if isinstance(said, ReadingsAnswer):
            self._readings.answered(said.request, said)
            return
        if isinstance(said, Beat):
            with self._lock:
                self._silent[register.id] = 0.0
            self._spark.registry.heard_of(register.id, _now_ms())
            return
        if isinstance(said, Killed):
            kill = MemoryKill(said.limit)
            logger.warning("worker %s on %s: %s", register.id, register.host, kill.why)
            self._spark.registry.has_killed(register.host, kill)
            return
        logger.warning("executor %s of worker %s has ended (%d)", said.executor_id, register.id, said.code)
        self._spark.remove_executor(said.executor_id, f"it has ended with code {said.code}")
        self._tell_again(peer, said.executor_id)
        self._launch(peer, said.executor_id)

    def _is_current(self, peer: Peer) -> bool:
        with self._lock:
            return self._peers.get(_of(peer).id) is peer

    def on_gone(self, peer: Peer) -> None:
        register = _of(peer)
        with self._launching:
            with self._lock:
                if self._peers.get(register.id) is not peer:
                    return
                del self._peers[register.id], self._silent[register.id]
            self._launches.pop(register.id, None)
            member = self._spark.registry.remove(register.id)
        logger.info("worker %s on %s has gone", register.id, register.host)
        if member is not None and not self._closing.is_set():
            self._spark.remove_executor(member.executor, "its worker has gone")

    # --- questions ----------------------------------------------------------------------------------------------

    def logs(self, task_manager: str) -> LogSource:
        """Asks it; from any other thread than the server's."""
        return RemoteLogs(self._logs, partial(self._post_to, task_manager))

    def stacks(self, task_manager: str, question: Question, of: Place) -> list[Sample]:
        """Asks it, too, and waits for as long as it looks.

        Raises:
            Unavailable: it does not answer.
        """
        post = partial(self._post_to, task_manager)
        return self._stacks.ask(post, lambda number: AskStacks(number, question, of), question.seconds).samples

    def readings(self, task_manager: str) -> str:
        """What its executor's JVM says of itself.

        Raises:
            Unavailable: it does not answer at once.
        """
        post = partial(self._post_to, task_manager)
        return self._readings.ask(post, AskReadings, patience_s=READINGS_S).text

    def _post_to(self, task_manager: str, question: AskLog | AskStacks | AskReadings) -> bool:
        with self._lock:
            peer = self._peers.get(task_manager)
        return peer is not None and self.post(peer, msgspec.msgpack.encode(question))

    # --- what the driver knows ----------------------------------------------------------------------------------

    def _watch(self) -> None:
        pause, looked = LOOK_SOON_S, time.monotonic()
        while not self._closing.wait(pause):
            if self.failure is not None:
                self._on_failure(self.failure)
                return
            now = time.monotonic()
            # Of a process that stood still itself only a moment counts: what others said meanwhile waits to be read.
            self._count_silence(min(now - looked, LOOK_S))
            looked = now
            try:
                self._look()
            except Exception:
                if not self._closing.is_set():
                    logger.exception("the driver does not tell of its executors")
            expected = any(not member.registered for member in self._spark.registry.members())
            pause = LOOK_SOON_S if expected else LOOK_S

    def _look(self) -> None:
        come, lost = self._spark.look()
        for member in come + lost:
            with self._lock:
                peer = self._peers.get(member.id)
            if peer is None:
                continue
            if member in come:
                self._tell_that_it_runs(peer, member.executor)
            else:
                logger.warning("the driver has lost executor %s of worker %s", member.executor, member.id)
                self._launch(peer, member.executor)

    def _tell_that_it_runs(self, peer: Peer, executor: str) -> None:
        with self._launching:
            member = self._spark.registry.get(_of(peer).id)
            if member is not None and member.executor == executor:
                self.post(peer, msgspec.msgpack.encode(Running(executor)))

    def _count_silence(self, seconds: float) -> None:
        with self._lock:
            for member_id in self._silent:
                self._silent[member_id] += seconds
            gone = [self._peers[member_id] for member_id, silent in self._silent.items() if silent > SILENT_S]
        for peer in gone:
            logger.warning("worker %s has said nothing for %.0f s", _of(peer).id, SILENT_S)
            peer.hang_up()


def _of(peer: Peer) -> Register:
    assert isinstance(peer.name, Register)
    return peer.name


def _now_ms() -> int:
    return int(time.time() * 1000)
