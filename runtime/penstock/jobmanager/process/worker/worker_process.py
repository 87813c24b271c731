"""The process of a deployed TaskManager (`penstock worker`): it runs an executor as long as its master runs.

The process resolves the master's address, registers, and starts the executor that the master requests. The connection lasts as long as the
master. When the connection ends, the process stops the executor, because the next master cannot use it. The process then starts over. If an
executor ends by itself, the process reports this and starts the next executor. The process does not accept a server without the cluster's
secret as its master.
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

from penstock.common.stacks import edge_records
from penstock.common.stacks.listener import records_of_processes, sample_processes, within
from penstock.common.stacks.sampling import filter_samples
from penstock.common.system.open_files import raise_limit
from penstock.jobmanager.cluster.executor.executor_process import Launch, kill_session
from penstock.jobmanager.cluster.executor.jvm_readings import request_readings
from penstock.jobmanager.cluster.executor.memory_kills import MemoryKills
from penstock.jobmanager.cluster.logs.files import LogFiles
from penstock.jobmanager.cluster.logs.requests import answer_of
from penstock.jobmanager.cluster.members.registration import (
    BEAT_S,
    MAX_STACK_BYTES,
    PURPOSE,
    AskLog,
    AskReadings,
    AskRecords,
    AskStacks,
    Beat,
    BeatAnswer,
    Ended,
    Killed,
    ReadingsAnswer,
    RecordsAnswer,
    Register,
    StacksAnswer,
    Start,
    ToTaskManager,
)
from penstock.taskmanager.control.channel import ControlConnection

POLL_S = 0.25
"""Interval in seconds of connection attempts to a master that does not listen."""
CONNECT_S = 5.0
WATCH_S = 0.5
STUCK_S = 60.0
"""Time in seconds that is longer than a name lookup and a connection attempt."""
STRANGE = 4
"""Number of consecutive connections that end before the master authenticates. A master that is shutting down causes fewer such connections.
"""
USELESS = 3
"""Number of consecutive executors that end before they register with the driver. After this number, the next executor would end too."""
NOT_STARTED = 126
"""Exit code of an executor that the system could not start, as in shells."""

logger = logging.getLogger(__name__)


class Child(Protocol):
    """Process of an executor, in its own session."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def terminate(self) -> None: ...

    def wait(self, timeout: float | None = None) -> int: ...


class WorkerProcess:
    """TaskManager that runs executors one after the other.

    Args:
        master: `host:port`, or several, separated by commas. Only the leading master accepts workers. Hosts are resolved again each time.
        secret: secret of the cluster.
        slots: number of slots of each executor.
        heap: heap of each executor, in bytes.
        start: function that starts an executor. Its argument is the address at which other processes reach the executor.
        ended: function that is called when the executor and its Python workers have ended.
        linger_s: time in seconds for an executor to end before it is killed.
        kills: counter of out-of-memory kills in this container. None means to create one.
        logs: logs that the master may request.
        stacks: directory in which Python workers report their stacks. Empty means no reports.
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
        self._masters = [address.strip() for address in master.removeprefix("spark://").split(",")]
        """Addresses of the masters in the order of connection attempts. The last one to which the worker was connected is at the end."""
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
        self._handled_executor = ""
        """Executor that this master last requested."""
        self._child: Child | None = None
        self._running = False
        self._useless = 0
        self._silent_s = 0.0
        self._patience_s: float | None = None
        """See `BeatAnswer`. None means that this master does not answer heartbeats."""

    @property
    def is_alive(self) -> bool:
        """Return whether the loop runs. Each of its waits is shorter than `STUCK_S`."""
        return time.monotonic() - self._turned_at < STUCK_S

    @property
    def is_ready(self) -> bool:
        """Return whether an executor runs that is registered with the master's driver."""
        return self._running

    def end(self, *_: object) -> None:
        """Make `run` return. This method can be used as a signal handler."""
        self._ending = True

    def run(self) -> int:
        """Run until `end` is called, and return 0. If no executor can run although the master runs, return the last exit code, at least 1."""
        raise_limit()
        waiting = False
        while not self._ending:
            self._turned_at = time.monotonic()
            connection = self._connect()
            if connection is None:
                if not waiting:
                    logger.info("waiting for the master at %s", ", ".join(sorted(self._masters)))
                waiting = True
                time.sleep(POLL_S)
                continue
            waiting = False
            with closing(connection):
                try:
                    code = self._serve(connection)
                finally:
                    was_of_use = self._running
                    # No task of a lost master is used again, and the next master waits for the executor's memory and ports.
                    self._stop(linger_s=self._linger_s if self._ending else 0.0)
            if code is not None:
                return code
            if not self._ending:
                logger.info("the connection to the master at %s ended", self._masters[-1])
                if not was_of_use:
                    time.sleep(POLL_S)
        return 0

    # --- the master ---------------------------------------------------------------------------------------------

    def _connect(self) -> ControlConnection | None:
        for master in self._masters:
            host, _, port = master.rpartition(":")
            connection = self._connect_to(host, int(port))
            if connection is not None:
                self._masters = [*(other for other in self._masters if other != master), master]
                return connection
        return None

    def _connect_to(self, host: str, port: int) -> ControlConnection | None:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError:
            return None
        for family, _, _, _, where in found:
            address = f"{where[0]}:{port}"
            try:
                worker_address = self._own_address = own_address(where, family)
                hello = Register(self._id, worker_address, self._slots, self._heap)
                connection = ControlConnection(address, self._secret, hello, purpose=PURPOSE, connect_s=CONNECT_S)
            except ConnectionRefusedError:
                self._strange = 0
                continue
            except ConnectionError as error:
                self._log_foreign_peer(address, error)
                continue
            except OSError:
                continue
            self._strange = 0
            connection.enable_keepalive()
            logger.info("the master listens at %s", address)
            return connection
        return None

    def _log_foreign_peer(self, address: str, error: ConnectionError) -> None:
        self._strange += 1
        if self._strange == STRANGE:
            logger.error(
                "the server at %s cannot prove that it is the master of this cluster (%s). Check that security.spark.secret-file "
                "has the same secret there",
                address,
                error,
            )

    def _serve(self, master: ControlConnection) -> int | None:
        """Serve a master. Return None if the master is lost or the end is requested. Return an exit code if no executor can run."""
        beaten, self._handled_executor = 0.0, ""
        self._silent_s, self._patience_s = 0.0, None
        while not self._ending:
            before = self._turned_at
            self._turned_at = now = time.monotonic()
            self._silent_s += min(now - before, 2 * WATCH_S)  # if this process was paused, messages may be waiting
            if self._patience_s is not None and self._silent_s > self._patience_s:
                logger.warning("the master does not respond, although its connection is open: looking for another one")
                return None
            try:
                if now - beaten >= BEAT_S:
                    master.send(msgspec.msgpack.encode(Beat()))
                    beaten = now
                frame = master.poll(WATCH_S)
                if frame is not None:
                    self._silent_s = 0.0
                    self._handle(master, msgspec.msgpack.decode(frame, type=ToTaskManager))
                launch, code = self._launch, self._code()
                if self._kills.new():  # report the kill before the end of the executor, which the kill causes
                    master.send(msgspec.msgpack.encode(Killed(self._kills.limit)))
                if launch is not None and code is not None:
                    if self._is_hopeless():
                        return code if code > 0 else 1
                    self._stop()
                    if code == NOT_STARTED:
                        time.sleep(POLL_S)
                    master.send(msgspec.msgpack.encode(Ended(launch.executor_id, code)))
            except OSError:
                return None
        return None

    def _is_hopeless(self) -> bool:
        self._useless = 0 if self._running else self._useless + 1
        return self._useless >= USELESS

    # --- the executor -------------------------------------------------------------------------------------------

    def _handle(self, master: ControlConnection, message: ToTaskManager) -> None:
        if isinstance(message, BeatAnswer):
            self._patience_s = message.patience_s
        elif isinstance(message, AskLog):
            master.send(msgspec.msgpack.encode(answer_of(self._logs, message)))
        elif isinstance(message, AskStacks):
            threading.Thread(target=self._sample_stacks, args=(master, message), name="stacks", daemon=True).start()
        elif isinstance(message, AskRecords):
            threading.Thread(target=self._find_records, args=(master, message), name="records", daemon=True).start()
        elif isinstance(message, AskReadings):
            pid = 0 if self._child is None else self._child.pid
            threading.Thread(target=_read, args=(master, message, pid), name="readings", daemon=True).start()
        elif isinstance(message, Start):
            if message.launch.executor_id == self._handled_executor:  # the master repeated the request
                return
            self._handled_executor = message.launch.executor_id
            self._stop()
            self._launch = message.launch
            try:
                self._child = self._start(message.launch, self._own_address)
            except OSError as error:
                logger.error("executor %s cannot be started: %s", message.launch.executor_id, error)
        elif self._launch is not None and message.executor_id == self._launch.executor_id:
            self._running = True

    def _sample_stacks(self, master: ControlConnection, message: AskStacks) -> None:
        found = filter_samples(sample_processes(self._stacks, message.question), message.of) if self._stacks else []
        with suppress(OSError):  # the master is lost
            master.send(msgspec.msgpack.encode(StacksAnswer(message.request, within(found, MAX_STACK_BYTES))))

    def _find_records(self, master: ControlConnection, message: AskRecords) -> None:
        found = records_of_processes(self._stacks, message.question) if self._stacks else []
        found = edge_records.within(found, MAX_STACK_BYTES)
        with suppress(OSError):  # the master is lost
            master.send(msgspec.msgpack.encode(RecordsAnswer(message.request, found)))

    def _code(self) -> int | None:
        """Return the exit code of an executor that should run but has ended. None means that the executor runs, or that no executor should
        run.
        """
        if self._launch is None:
            return None
        return NOT_STARTED if self._child is None else self._child.poll()

    def _stop(self, linger_s: float | None = None) -> None:
        """Stop the executor, then the remaining processes of its session: Python workers.

        Args:
            linger_s: time in seconds for the executor to end before it is killed. None means the time of this worker.
        """
        child, launch = self._child, self._launch
        self._child = self._launch = None
        self._running = False
        if launch is None:
            return
        if child is not None:
            if child.poll() is None:
                child.terminate()
                try:
                    child.wait(self._linger_s if linger_s is None else linger_s)
                except subprocess.TimeoutExpired:
                    os.kill(child.pid, signal.SIGKILL)
                    child.wait()
            kill_session(child.pid)
        self._ended(launch)


def _read(master: ControlConnection, message: AskReadings, executor: int) -> None:
    with suppress(OSError):  # the master is lost
        master.send(
            msgspec.msgpack.encode(ReadingsAnswer(message.request, request_readings(executor) if executor else ""))
        )


def own_address(peer: Any, family: int = socket.AF_INET) -> str:
    """Return the address of this machine that a peer sees. The peer is a tuple (host, port).

    Raises:
        OSError: the peer is unreachable.
    """
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(peer)
        return str(probe.getsockname()[0])
