"""The process of a deployed TaskManager (`penstock worker`): an executor for as long as its master lives.

It registers with the master, whose address is looked up anew each time, and starts the executor that the master names. The
connection stays: when it ends, the master has gone, and the executor, which is of no use to the next one, is ended; then all
begins anew. An executor that ends by itself is told of, and another one is started. Who listens there and does not prove to
have the cluster's secret is not taken for the master.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any, Protocol

import msgspec

from penstock.common.stacks.listener import ask_all, within
from penstock.common.stacks.sampling import samples_of
from penstock.jobmanager.cluster.executor.executor_process import Launch, kill_session
from penstock.jobmanager.cluster.executor.jvm_readings import ask_executor
from penstock.jobmanager.cluster.executor.memory_kills import MemoryKills
from penstock.jobmanager.cluster.logs.files import LogFiles
from penstock.jobmanager.cluster.logs.requests import answer_of
from penstock.jobmanager.cluster.members.registration import (
    BEAT_S,
    MOST_STACK_BYTES,
    PURPOSE,
    AskLog,
    AskReadings,
    AskStacks,
    Beat,
    Ended,
    Killed,
    ReadingsAnswer,
    Register,
    StacksAnswer,
    Start,
    ToTaskManager,
)
from penstock.taskmanager.control.channel import ControlConnection

LOOK_S = 0.25
"""Between two looks for a master that does not listen."""
CONNECT_S = 5.0
WATCH_S = 0.5
STUCK_S = 60.0
"""More than a name look-up and a connection attempt take."""
STRANGE = 4
"""So many connections, one after the other, that end before the master has proved to be one: it is not just going down."""
USELESS = 3
"""So many executors that end one after the other before the master's driver has them: the next would do the same."""
NOT_STARTED = 126
"""Code of an executor that the system would not start, as shells have it."""

logger = logging.getLogger(__name__)


class Child(Protocol):
    """An executor's process, in a session of its own."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def terminate(self) -> None: ...

    def wait(self, timeout: float | None = None) -> int: ...


class WorkerProcess:
    """Runs executors one after the other.

    Args:
        master: `host:port`; the host is looked up anew each time.
        secret: the cluster's.
        slots: of each executor.
        heap: of each executor, bytes.
        start: starts an executor that others reach by this address.
        ended: called when nothing of it is left.
        linger_s: how long an executor may take to end before it is killed.
        kills: what the system has killed in this container; None: it is looked for.
        logs: what the master may ask for.
        stacks: folder below which Python workers tell what they do; empty: nowhere.
    """

    def __init__(
        self,
        master: str,
        secret: str,
        slots: int,
        heap: int,
        start: Callable[[Launch, str], Child],
        ended: Callable[[Launch], object] = lambda launch: None,
        linger_s: float = 5.0,
        kills: MemoryKills | None = None,
        logs: LogFiles | None = None,
        stacks: str = "",
    ) -> None:
        host, _, port = master.removeprefix("spark://").rpartition(":")
        self._host, self._port = host, int(port)
        self._secret = secret
        self._slots = slots
        self._heap = heap
        self._start = start
        self._ended = ended
        self._linger_s = linger_s
        self._kills = kills or MemoryKills()
        self._logs = logs or LogFiles()
        self._stacks = stacks
        self._id = f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"
        self._ending = False
        self._strange = 0
        self._own_address = ""
        self._turned_at = time.monotonic()
        self._launch: Launch | None = None
        self._told = ""
        """Executor that this master has said to start last."""
        self._child: Child | None = None
        self._running = False
        self._useless = 0

    @property
    def is_alive(self) -> bool:
        """The loop turns: whatever it waits for takes less than `STUCK_S`."""
        return time.monotonic() - self._turned_at < STUCK_S

    @property
    def is_ready(self) -> bool:
        """An executor runs that the driver of the master has."""
        return self._running

    def end(self, *_: object) -> None:
        """Come to an end; also a signal's handler."""
        self._ending = True

    def run(self) -> int:
        """Until `end` (0), or until no executor can be run while the master is there (the last one's code, 1 at least)."""
        waiting = False
        while not self._ending:
            self._turned_at = time.monotonic()
            connection = self._connect()
            if connection is None:
                if not waiting:
                    logger.info("waiting for the master at %s:%d", self._host, self._port)
                waiting = True
                time.sleep(LOOK_S)
                continue
            waiting = False
            with closing(connection):
                try:
                    code = self._serve(connection)
                finally:
                    was_of_use = self._running
                    self._stop()
            if code is not None:
                return code
            if not self._ending:
                logger.info("the master at %s:%d has gone", self._host, self._port)
                if not was_of_use:
                    time.sleep(LOOK_S)
        return 0

    # --- the master ---------------------------------------------------------------------------------------------

    def _connect(self) -> ControlConnection | None:
        try:
            found = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        except OSError:
            return None
        for family, _, _, _, where in found:
            address = f"{where[0]}:{self._port}"
            try:
                own = self._own_address = own_address(where, family)
                hello = Register(self._id, own, self._slots, self._heap)
                connection = ControlConnection(address, self._secret, hello, purpose=PURPOSE, connect_s=CONNECT_S)
            except ConnectionRefusedError:
                self._strange = 0
                continue
            except ConnectionError as error:
                self._tell_stranger(address, error)
                continue
            except OSError:
                continue
            self._strange = 0
            connection.notice_a_lost_peer()
            logger.info("the master listens at %s", address)
            return connection
        return None

    def _tell_stranger(self, address: str, error: ConnectionError) -> None:
        self._strange += 1
        if self._strange == STRANGE:
            logger.error(
                "who listens at %s does not prove to be this cluster's master (%s): does security.spark.secret-file "
                "name the same secret there?",
                address,
                error,
            )

    def _serve(self, master: ControlConnection) -> int | None:
        """Until the master has gone or the end was asked for (None), or no executor can be run (a code)."""
        beaten, self._told = 0.0, ""
        while not self._ending:
            self._turned_at = now = time.monotonic()
            try:
                if now - beaten >= BEAT_S:
                    master.send(msgspec.msgpack.encode(Beat()))
                    beaten = now
                frame = master.poll(WATCH_S)
                if frame is not None:
                    self._obey(master, msgspec.msgpack.decode(frame, type=ToTaskManager))
                launch, code = self._launch, self._code()
                if self._kills.new():  # told before the end that follows from it
                    master.send(msgspec.msgpack.encode(Killed(self._kills.limit)))
                if launch is not None and code is not None:
                    if self._is_hopeless():
                        return code if code > 0 else 1
                    self._stop()
                    if code == NOT_STARTED:
                        time.sleep(LOOK_S)
                    master.send(msgspec.msgpack.encode(Ended(launch.executor_id, code)))
            except OSError:
                return None
        return None

    def _is_hopeless(self) -> bool:
        self._useless = 0 if self._running else self._useless + 1
        return self._useless >= USELESS

    # --- the executor -------------------------------------------------------------------------------------------

    def _obey(self, master: ControlConnection, told: ToTaskManager) -> None:
        if isinstance(told, AskLog):
            master.send(msgspec.msgpack.encode(answer_of(self._logs, told)))
        elif isinstance(told, AskStacks):
            threading.Thread(target=self._look, args=(master, told), name="stacks", daemon=True).start()
        elif isinstance(told, AskReadings):
            pid = 0 if self._child is None else self._child.pid
            threading.Thread(target=_read, args=(master, told, pid), name="readings", daemon=True).start()
        elif isinstance(told, Start):
            if told.launch.executor_id == self._told:  # said twice, to be sure
                return
            self._told = told.launch.executor_id
            self._stop()
            self._launch = told.launch
            try:
                self._child = self._start(told.launch, self._own_address)
            except OSError as error:
                logger.error("executor %s cannot be started: %s", told.launch.executor_id, error)
        elif self._launch is not None and told.executor_id == self._launch.executor_id:
            self._running = True

    def _look(self, master: ControlConnection, told: AskStacks) -> None:
        found = samples_of(ask_all(self._stacks, told.question), told.of) if self._stacks else []
        with suppress(OSError):  # the master has gone
            master.send(msgspec.msgpack.encode(StacksAnswer(told.request, within(found, MOST_STACK_BYTES))))

    def _code(self) -> int | None:
        """Of the executor that should run and does not; None: it does, or there is none."""
        if self._launch is None:
            return None
        return NOT_STARTED if self._child is None else self._child.poll()

    def _stop(self) -> None:
        """End the executor, then whatever is left of its session: Python workers."""
        child, launch = self._child, self._launch
        self._child = self._launch = None
        self._running = False
        if launch is None:
            return
        if child is not None:
            if child.poll() is None:
                child.terminate()
                try:
                    child.wait(self._linger_s)
                except subprocess.TimeoutExpired:
                    os.kill(child.pid, signal.SIGKILL)
                    child.wait()
            kill_session(child.pid)
        self._ended(launch)


def _read(master: ControlConnection, told: AskReadings, executor: int) -> None:
    with suppress(OSError):  # the master has gone
        master.send(msgspec.msgpack.encode(ReadingsAnswer(told.request, ask_executor(executor) if executor else "")))


def own_address(peer: Any, family: int = socket.AF_INET) -> str:
    """The address of this machine as a peer, (host, port), sees it.

    Raises:
        OSError: there is no way to it.
    """
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(peer)
        return str(probe.getsockname()[0])
