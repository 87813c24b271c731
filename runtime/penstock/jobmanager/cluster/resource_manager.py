"""The JobManager's server for TaskManagers. They register, receive executors to start, and are members while they are connected.

It listens on `jobmanager.rpc.port`. A client without the cluster's secret receives nothing (`sealed_server`).

A master on standby listens too. It assigns an executor only to a TaskManager that asks for it (`AskWarm`). The slots of this executor are
reserved until the master leads and the TaskManager follows it.
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
from penstock.common.stacks.edge_records import EdgeQuestion, EdgeRecord
from penstock.common.stacks.listener import Question
from penstock.common.stacks.sampling import Place, Sample
from penstock.jobmanager.cluster.executor.executor_process import Launch
from penstock.jobmanager.cluster.logs.files import LogSource
from penstock.jobmanager.cluster.logs.requests import RemoteLogs
from penstock.jobmanager.cluster.members.pending_requests import PendingRequests
from penstock.jobmanager.cluster.members.registration import (
    MAX_BYTES,
    PURPOSE,
    AskLog,
    AskReadings,
    AskRecords,
    AskStacks,
    AskWarm,
    Beat,
    BeatAnswer,
    Follows,
    FromTaskManager,
    Killed,
    Leads,
    LogAnswer,
    OnStandby,
    ReadingsAnswer,
    RecordsAnswer,
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
"""Time in seconds without a message after which a TaskManager is considered lost, usually with its machine."""
CHECK_INTERVAL_S = 2.0
"""Interval of requests to the driver for its executors, in seconds."""
SHORT_CHECK_INTERVAL_S = 0.2
"""Interval of these requests while an executor is expected, in seconds."""
READINGS_S = 3.0
"""Timeout for the JVM metrics of a TaskManager, in seconds. A scrape of metrics waits for all TaskManagers."""
_NONE = ""
"""Executor id of a TaskManager that has just registered."""

logger = logging.getLogger(__name__)


class ResourceManager(SealedServer):
    """Server of TaskManagers, which runs until `close`.

    Args:
        spark: the started cluster, to which the executors belong.
        on_failure: function that is called with the reason if the server stops without `close`.
        patience_s: time in seconds without an answer to a heartbeat after which TaskManagers look for another master. None means no limit
            and no answers.
        master: id of this process in an election. Empty means that this master always leads.
        on_warm: function that is called with the id of a warm executor that is registered with the driver. It must not wait.
    """

    title = "the resource manager"

    def __init__(
        self,
        host: str,
        port: int,
        spark: SparkCluster,
        on_failure: Callable[[Exception], object] = lambda error: None,
        patience_s: float | None = None,
        master: str = "",
        on_warm: Callable[[str], object] = lambda executor: None,
    ) -> None:
        try:
            super().__init__(host, port, spark.credentials.secret, PURPOSE, MAX_BYTES)
        except OSError as error:
            raise ClusterError(
                f"the JobManager cannot listen for workers at {host}:{port}: {error}",
                remedy="set jobmanager.rpc.address to an address of this machine, and jobmanager.rpc.port to a free port",
            ) from error
        self._spark = spark
        self._on_failure = on_failure
        self._patience_s = patience_s
        self._master = master
        self._on_warm = on_warm
        self._term: int | None = None
        """Term of this leader, or None if this master is on standby. It has no meaning without an election."""
        self._peers: dict[str, Peer] = {}
        self._silent: dict[str, float] = {}
        """Time without a message in seconds, by TaskManager."""
        self._logs: PendingRequests[AskLog, LogAnswer] = PendingRequests()
        self._stacks: PendingRequests[AskStacks, StacksAnswer] = PendingRequests()
        self._records: PendingRequests[AskRecords, RecordsAnswer] = PendingRequests()
        self._readings: PendingRequests[AskReadings, ReadingsAnswer] = PendingRequests()
        self._launches: dict[str, Launch] = {}
        """Last launch that each TaskManager received."""
        self._launching = threading.Lock()
        """Lock for the replacement of a TaskManager's executor: compare, replace, send. Two threads replace executors.
        Acquire this lock before `_lock`."""
        self._watcher = threading.Thread(target=self._watch, name="penstock-resources", daemon=True)

    def start(self) -> None:
        super().start()
        self._watcher.start()

    def admit(self, peer: Peer, frame: bytes) -> str | None:
        register = peer.name = msgspec.msgpack.decode(frame, type=Register)
        if register.slots < 1:
            return f"has {register.slots} slots"
        if self._master and self._master in register.masters:
            return None  # the TaskManager keeps its earlier connection
        with self._launching:
            with self._lock:
                before = self._peers.get(register.id)
                self._peers[register.id] = peer
                self._silent[register.id] = 0.0
            member = self._spark.registry.remove(register.id)
        if before is not None:  # the TaskManager has reconnected before its last connection was closed
            before.hang_up()
        if member is not None:
            self._spark.remove_executor(member.executor, "its worker has registered again")
        return None

    def on_admitted(self, peer: Peer) -> None:
        register = _of(peer)
        with self._launching:
            if self._master:
                self.post(peer, self._role())
            if not self._is_current(peer):
                return
            logger.info("worker %s on %s registered with %d slots", register.id, register.host, register.slots)
            self._spark.registry.put(
                Member(
                    register.id,
                    register.host,
                    register.slots,
                    register.heap,
                    _NONE,
                    follows=not self._master,
                    last_heartbeat=_now_ms(),
                )
            )
        if not self._master:
            self._launch(peer, _NONE)

    def _role(self) -> bytes:
        term = self._term
        return msgspec.msgpack.encode(OnStandby(self._master) if term is None else Leads(self._master, term))

    def lead(self, term: int) -> None:
        """Tell the TaskManagers that this master leads now. Any thread may call it."""
        with self._launching:
            self._term = term
            with self._lock:
                peers = list(self._peers.values())
            for peer in peers:
                self.post(peer, self._role())

    def _follow(self, peer: Peer) -> None:
        """Use the slots of a TaskManager that has ended the executors of other masters."""
        with self._launching:
            member = self._spark.registry.get(_of(peer).id)
            if member is None or self._term is None or not self._is_current(peer):
                return
            self._spark.registry.put(replace(member, follows=True))
        logger.info("worker %s follows this master%s", member.id, " with a warm executor" if member.registered else "")
        self._launch(peer, _NONE)

    def _launch(self, peer: Peer, expected_executor: str) -> None:
        """Replace the expected executor by a new executor. Do nothing if the TaskManager has reconnected or already has
        another executor."""
        register = _of(peer)
        with self._launching:
            member = self._spark.registry.get(register.id)
            if member is None or member.executor != expected_executor or not self._is_current(peer):
                return
            launch = self._launches[register.id] = self._spark.launch()
            self._spark.registry.put(replace(member, executor=launch.executor_id, registered=False))
            self.post(peer, msgspec.msgpack.encode(Start(launch)))

    def _send_launch_again(self, peer: Peer, ended: str) -> None:
        """Send the last launch again if it is newer than the executor that ended. The TaskManager may not have received
        the launch."""
        with self._launching:
            launch = self._launches.get(_of(peer).id)
            if launch is not None and launch.executor_id != ended and self._is_current(peer):
                self.post(peer, msgspec.msgpack.encode(Start(launch)))

    def on_frame(self, peer: Peer, frame: bytes) -> None:
        message: FromTaskManager = msgspec.msgpack.decode(frame, type=FromTaskManager)
        register = _of(peer)
        if isinstance(message, LogAnswer):
            self._logs.answered(message.request, message)
            return
        if isinstance(message, StacksAnswer):
            self._stacks.answered(message.request, message)
            return
        if isinstance(message, RecordsAnswer):
            self._records.answered(message.request, message)
            return
        if isinstance(message, ReadingsAnswer):
            self._readings.answered(message.request, message)
            return
        if isinstance(message, Beat):
            with self._lock:
                if self._peers.get(register.id) is not peer:
                    return  # a second connection, which has no member
                self._silent[register.id] = 0.0
            self._spark.registry.record_heartbeat(register.id, _now_ms())
            if self._patience_s is not None:
                self.post(peer, msgspec.msgpack.encode(BeatAnswer(self._patience_s)))
            return
        if isinstance(message, Follows):
            self._follow(peer)
            return
        if isinstance(message, AskWarm):
            self._launch(peer, _NONE)
            return
        if isinstance(message, Killed):
            kill = MemoryKill(message.limit)
            logger.warning("worker %s on %s: %s", register.id, register.host, kill.reason)
            self._spark.registry.has_killed(register.host, kill)
            return
        logger.warning("executor %s of worker %s has ended (%d)", message.executor_id, register.id, message.code)
        self._spark.remove_executor(message.executor_id, f"it has ended with code {message.code}")
        self._send_launch_again(peer, message.executor_id)
        self._launch(peer, message.executor_id)

    def _is_current(self, peer: Peer) -> bool:
        with self._lock:
            return self._peers.get(_of(peer).id) is peer

    def on_disconnected(self, peer: Peer) -> None:
        register = _of(peer)
        with self._launching:
            with self._lock:
                if self._peers.get(register.id) is not peer:
                    return
                del self._peers[register.id], self._silent[register.id]
            self._launches.pop(register.id, None)
            member = self._spark.registry.remove(register.id)
        logger.info("worker %s on %s disconnected", register.id, register.host)
        if member is not None and not self._closing.is_set():
            self._spark.remove_executor(member.executor, "its worker disconnected")

    # --- requests -----------------------------------------------------------------------------------------------

    def logs(self, task_manager: str) -> LogSource:
        """Return the logs of a TaskManager. Use them in a thread other than the server's."""
        return RemoteLogs(self._logs, partial(self._post_to, task_manager))

    def stacks(self, task_manager: str, question: Question, of: Place) -> list[Sample]:
        """Return samples of stacks. Wait while the TaskManager takes them.

        Raises:
            Unavailable: the TaskManager does not respond.
        """
        post = partial(self._post_to, task_manager)
        return self._stacks.ask(post, lambda number: AskStacks(number, question, of), question.seconds).samples

    def records(self, task_manager: str, question: EdgeQuestion) -> list[EdgeRecord]:
        """Return the last records on an edge. Wait while the TaskManager waits for them.

        Raises:
            Unavailable: the TaskManager does not respond.
        """
        post = partial(self._post_to, task_manager)
        return self._records.ask(post, lambda number: AskRecords(number, question), question.seconds).records

    def readings(self, task_manager: str) -> str:
        """Return the metrics that a TaskManager's executor reports.

        Raises:
            Unavailable: the TaskManager does not respond in time.
        """
        post = partial(self._post_to, task_manager)
        return self._readings.ask(post, AskReadings, patience_s=READINGS_S).text

    def _post_to(self, task_manager: str, question: AskLog | AskStacks | AskReadings) -> bool:
        with self._lock:
            peer = self._peers.get(task_manager)
        return peer is not None and self.post(peer, msgspec.msgpack.encode(question))

    # --- executors of the driver --------------------------------------------------------------------------------

    def _watch(self) -> None:
        pause, looked = SHORT_CHECK_INTERVAL_S, time.monotonic()
        while not self._closing.wait(pause):
            if self.failure is not None:
                self._on_failure(self.failure)
                return
            now = time.monotonic()
            # If this process itself was paused, count only a short time, because unread messages may be waiting.
            self._count_silence(min(now - looked, CHECK_INTERVAL_S))
            looked = now
            try:
                self._check_executors()
            except Exception:
                if not self._closing.is_set():
                    logger.exception("the driver does not report its executors")
            expected = any(
                member.executor != _NONE and not member.registered for member in self._spark.registry.members()
            )
            pause = SHORT_CHECK_INTERVAL_S if expected else CHECK_INTERVAL_S

    def _check_executors(self) -> None:
        come, lost = self._spark.executor_changes()
        for member in come + lost:
            with self._lock:
                peer = self._peers.get(member.id)
            if peer is None:
                continue
            if member in come:
                self._send_running(peer, member.executor)
                if not member.follows:
                    logger.info("worker %s has a warm executor (%s)", member.id, member.executor)
                    self._on_warm(member.executor)
            else:
                logger.warning("the driver has lost executor %s of worker %s", member.executor, member.id)
                self._launch(peer, member.executor)

    def _send_running(self, peer: Peer, executor: str) -> None:
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
            logger.warning("worker %s has sent no heartbeat for %.0f s", _of(peer).id, SILENT_S)
            peer.hang_up()


def _of(peer: Peer) -> Register:
    assert isinstance(peer.name, Register)
    return peer.name


def _now_ms() -> int:
    return int(time.time() * 1000)
