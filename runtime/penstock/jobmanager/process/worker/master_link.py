"""One connection of a worker to a master, and the executor that the worker runs for this master."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import msgspec

from penstock.common.stacks import edge_records
from penstock.common.stacks.listener import records_of_processes, sample_processes, within
from penstock.common.stacks.sampling import filter_samples
from penstock.jobmanager.cluster.executor.executor_process import Launch, kill_session
from penstock.jobmanager.cluster.executor.jvm_readings import request_readings
from penstock.jobmanager.cluster.logs.files import LogFiles
from penstock.jobmanager.cluster.logs.requests import answer_of
from penstock.jobmanager.cluster.members.registration import (
    BEAT_S,
    MAX_STACK_BYTES,
    AskLog,
    AskReadings,
    AskRecords,
    AskStacks,
    AskWarm,
    Beat,
    BeatAnswer,
    Ended,
    Follows,
    FromTaskManager,
    Leads,
    OnStandby,
    ReadingsAnswer,
    RecordsAnswer,
    Running,
    StacksAnswer,
    Start,
    ToTaskManager,
)
from penstock.taskmanager.control.channel import ControlConnection

USELESS = 3
"""Number of consecutive executors that end before they register with the driver. After this number, the next executor would end too."""
NOT_STARTED = 126
"""Exit code of an executor that the system could not start, as in shells."""
ROLE_S = 5.0
"""Time in seconds for a master to send its role."""


class Child(Protocol):
    """Process of an executor, in its own session."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def terminate(self) -> None: ...

    def wait(self, timeout: float | None = None) -> int: ...


class MasterLink:
    """Connection to one master. Only the worker's main thread calls the methods.

    Args:
        address: `host:port` of the master, for messages.
        own_address: address of this machine that the master sees.
        start: function that starts an executor. Its second argument is the address of the executor for other processes.
        ended: function that is called when the executor and its Python workers have ended.
        stacks: directory in which Python workers report their stacks. Empty means no reports.
        known: ids of the masters that the registration named (`Register.masters`).
    """

    def __init__(
        self,
        connection: ControlConnection,
        address: str,
        own_address: str,
        start: Callable[[Launch, str], Child],
        ended: Callable[[Launch], object],
        logs: LogFiles,
        stacks: str,
        known: tuple[str, ...] = (),
    ) -> None:
        self.connection = connection
        self.address = address
        self.master = ""
        """Id of the master's process. Empty if its masters do not elect a leader."""
        self.term: int | None = None
        """Term of this master if it leads, 0 without an election. None if it is on standby, or has not sent its role."""
        self.has_warm_request = False
        """Whether the worker has requested a warm executor from this standby."""
        self.running_since: float | None = None
        """Time from which the executor can run tasks: it is registered with the driver. None if it is not registered."""
        self.useless = 0
        """Number of consecutive executors that have ended before they were registered."""
        self._own_address = own_address
        self._start, self._ended = start, ended
        self._logs = logs
        self._stacks = stacks
        self._known = known
        self._since = time.monotonic()
        self._beaten = 0.0
        self._silent_s = 0.0
        self._patience_s: float | None = None
        """See `BeatAnswer`. None means that this master does not answer heartbeats."""
        self._launch: Launch | None = None
        self._handled_executor = ""
        """Executor that this master last requested."""
        self._child: Child | None = None

    @property
    def is_elected(self) -> bool:
        return bool(self.master)

    @property
    def awaits_role(self) -> bool:
        """Return whether the role of the master is not known yet, and may arrive at any moment."""
        return not self.is_elected and self.term is None and time.monotonic() - self._since < ROLE_S

    @property
    def is_standby(self) -> bool:
        return self.is_elected and self.term is None

    @property
    def is_ignored(self) -> bool:
        """Return whether the master ignores this connection, because the worker had another one to it."""
        return self.master in self._known

    @property
    def has_executor(self) -> bool:
        """Return whether the master has requested an executor."""
        return self._launch is not None

    def send(self, message: FromTaskManager) -> None:
        self.connection.send(msgspec.msgpack.encode(message))

    def follow(self) -> None:
        """Tell the master that its executor may now run tasks."""
        self.useless = 0  # warm executors may have ended because of scarce memory
        if self.running_since is not None:
            self.running_since = time.monotonic()
        if self.is_elected:
            self.send(Follows())

    def request_warm(self) -> None:
        """Request an executor from the standby."""
        self.has_warm_request = True
        self.send(AskWarm())

    def beat(self, elapsed_s: float) -> bool:
        """Send a heartbeat if it is time. Return False if the master has not responded for too long.

        Args:
            elapsed_s: time since the last call in seconds. If this process was paused, messages may be waiting.
        """
        self._silent_s += elapsed_s
        if self._patience_s is not None and self._silent_s > self._patience_s:
            return False
        now = time.monotonic()
        if now - self._beaten >= BEAT_S:
            self._beaten = now
            self.send(Beat())
        return True

    def receive(self) -> list[ToTaskManager]:
        """Return the messages that have arrived.

        Raises:
            OSError: the connection has ended.
        """
        found = []
        while (frame := self.connection.poll(0.0)) is not None:
            self._silent_s = 0.0
            found.append(msgspec.msgpack.decode(frame, type=ToTaskManager))
        return found

    def handle(self, message: ToTaskManager) -> None:
        match message:
            case OnStandby():
                self.master = message.master
            case Leads():
                self.master, self.term = message.master, message.term
            case BeatAnswer():
                self._patience_s = message.patience_s
            case AskLog():
                self.send(answer_of(self._logs, message))
            case AskStacks():
                threading.Thread(target=self._sample_stacks, args=(message,), name="stacks", daemon=True).start()
            case AskRecords():
                threading.Thread(target=self._find_records, args=(message,), name="records", daemon=True).start()
            case AskReadings():
                pid = 0 if self._child is None else self._child.pid
                threading.Thread(target=self._read, args=(message, pid), name="readings", daemon=True).start()
            case Running():
                if self._launch is not None and message.executor_id == self._launch.executor_id:
                    self.running_since = time.monotonic()

    def _answer(self, answer: FromTaskManager) -> None:
        with suppress(OSError):  # the master is lost
            self.send(answer)

    def _sample_stacks(self, message: AskStacks) -> None:
        found = filter_samples(sample_processes(self._stacks, message.question), message.of) if self._stacks else []
        self._answer(StacksAnswer(message.request, within(found, MAX_STACK_BYTES)))

    def _find_records(self, message: AskRecords) -> None:
        found = records_of_processes(self._stacks, message.question) if self._stacks else []
        self._answer(RecordsAnswer(message.request, edge_records.within(found, MAX_STACK_BYTES)))

    def _read(self, message: AskReadings, executor: int) -> None:
        self._answer(ReadingsAnswer(message.request, request_readings(executor) if executor else ""))

    # --- the executor -------------------------------------------------------------------------------------------

    def start(self, message: Start, linger_s: float) -> str:
        """Start the requested executor in place of the current one. Return the reason if the system cannot start it."""
        if self.term is None and not self.is_elected:
            self.term = 0
        launch = message.launch
        if launch.executor_id == self._handled_executor:  # the master repeated the request
            return ""
        self._handled_executor = launch.executor_id
        self.stop(linger_s)
        self._launch = launch
        try:
            self._child = self._start(launch, self._own_address)
        except OSError as error:
            return f"executor {launch.executor_id} cannot be started: {error}"
        return ""

    def exit_code(self) -> int | None:
        """Return the exit code of an executor that should run but has ended. None means that the executor runs, or that no executor should
        run.
        """
        if self._launch is None:
            return None
        return NOT_STARTED if self._child is None else self._child.poll()

    @property
    def is_hopeless(self) -> bool:
        return self.useless >= USELESS

    def count_end(self) -> None:
        """Count the end of an executor."""
        self.useless = 0 if self.running_since is not None else self.useless + 1

    def report_end(self, code: int, linger_s: float) -> None:
        """Remove an executor that has ended by itself. The master then requests another one."""
        launch = self._launch
        self.stop(linger_s)
        if launch is not None:
            self.send(Ended(launch.executor_id, code))

    def stop(self, linger_s: float) -> None:
        """Stop the executor, then the remaining processes of its session: Python workers.

        Args:
            linger_s: time in seconds for the executor to end before it is killed.
        """
        child, launch = self._child, self._launch
        self._child = self._launch = self.running_since = None
        if launch is None:
            return
        if child is not None:
            if child.poll() is None:
                child.terminate()
                try:
                    child.wait(linger_s)
                except subprocess.TimeoutExpired:
                    os.kill(child.pid, signal.SIGKILL)
                    child.wait()
            kill_session(child.pid)
        self._ended(launch)

    def close(self, linger_s: float) -> None:
        """Stop the executor, and close the connection. The order matters: the master must not replace an executor that still runs."""
        self.stop(linger_s)
        self.connection.close()
