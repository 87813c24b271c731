"""A process that has loaded the engine and forks the processes of programs, so that they start within milliseconds.

It has one thread, because a fork copies only the thread that calls it. The session sends it the streams and the connection of each new process. It
reports each process that ends, and ends the processes that this one has left. When the session has ended, the processes of programs suspend their jobs
and end. The server kills those that do not.

A program can kill the server, because both belong to the same user. The other programs then continue, and the session starts another server.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable

from penstock.common.errors import ClusterError
from penstock.common.system.native_memory import trim_heap

LOADED = (
    "penstock.jobmanager.process.programs.process.program_process",
    "penstock.jobmanager.runners.pipelined_runner",
    "pyspark.java_gateway",
    "penstock.datastream",
    "penstock.datastream.data_stream",
    "penstock.datastream.functions",
    "penstock.datastream.state",
    "penstock.datastream.stream_execution_environment",
    "penstock.datastream.window",
    "penstock.datastream.connectors.file_system",
    "penstock.connectors.simple.collect",
    "penstock.connectors.simple.collection",
    "penstock.checkpoint.store.local_store",
)
"""Modules that nearly every program imports."""
_MESSAGE = struct.Struct(">ii")
"""Process id and exit code. Each message of the server is one."""
_READY, _FORKED, _NOT_FORKED = 1 << 19, 1 << 20, 1 << 21
"""Codes of the server's start and of its answers to requests. `_NOT_FORKED` has the number of the system's error instead of a process id."""
START_S = 120.0
"""Maximum time in seconds of the server's start, in which it imports the engine."""
FORK_S = 15.0
"""Maximum time in seconds of a fork."""
END_S = 30.0
"""Time in seconds for the processes of programs to end after the session."""
OnExit = Callable[[int | None], object]
"""Function that is called with the exit code of a process. A negative code is a signal. None means that the code is not known."""


class ForkServer:
    """The session's end. Thread-safe."""

    def __init__(self) -> None:
        self._forking = threading.Lock()
        self._server: _Server | None = None
        self._servers: list[_Server] = []
        """Servers that have processes or may get some."""
        self._is_closed = False

    def start(self) -> None:
        """Start the server, so that the first fork need not wait for it."""
        with self._forking:
            self._running()

    def _running(self) -> _Server:
        if self._is_closed:
            raise ClusterError("the session is shutting down", remedy="send the program again when it has restarted")
        if self._server is None or not self._server.is_running:
            self._server = _Server()
            self._servers = [server for server in self._servers if server.live] + [self._server]
        return self._server

    def fork(self, connection: socket.socket, output: int, on_exit: OnExit) -> int:
        """Start a process with this connection and this output. Return its process id.

        Args:
            on_exit: function that a separate thread calls when the process has ended.

        Raises:
            ClusterError: the process did not start.
        """
        with self._forking:
            for _ in range(2):
                server = self._running()
                pid = server.fork(connection, output, on_exit)
                if pid is not None:
                    return pid
                server.kill()  # it was killed, or it was stopped
        raise ClusterError(
            "the process of the program did not start", remedy="the output of the session has the reason"
        )

    def kill(self, pid: int) -> None:
        """Kill a process that `fork` has started, with the processes that it has started. Do nothing if it has ended."""
        for server in list(self._servers):
            with server.changed:
                if pid in server.live:
                    kill_group(pid)

    def close(self) -> None:
        with self._forking:
            self._is_closed = True
            server, self._server = self._server, None
        if server is not None:
            server.close()


class _Server:
    """One process of the server, with the processes that it has forked."""

    def __init__(self) -> None:
        self.live: dict[int, OnExit] = {}
        """Functions to call when a process ends, by process id."""
        self.changed = threading.Condition()
        self.is_running = True
        self._is_ready = False
        self._wanted: OnExit | None = None
        self._answer: tuple[int, int] | None = None
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with there:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "penstock.jobmanager.process.programs.process.fork_server", str(there.fileno())],
                pass_fds=(there.fileno(),),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._socket = here
        threading.Thread(target=self._receive, name="fork-server", daemon=True).start()

    def fork(self, connection: socket.socket, output: int, on_exit: OnExit) -> int | None:
        """Return the id of a new process, or None if the server does not answer.

        Raises:
            ClusterError: the system starts no more processes.
        """
        with self.changed:
            self.changed.wait_for(lambda: self._is_ready or not self.is_running, START_S)
            if not self._is_ready:
                return None
            self._wanted, self._answer = on_exit, None
        try:
            socket.send_fds(self._socket, [b"f"], [connection.fileno(), output])
        except OSError:
            return None
        with self.changed:
            self.changed.wait_for(lambda: self._answer is not None or not self.is_running, FORK_S)
            self._wanted = None
            if self._answer is None:
                return None
            number, code = self._answer
        if code == _NOT_FORKED:
            raise ClusterError(
                f"the machine cannot start a process for the program: {os.strerror(number)}",
                remedy="cancel jobs, or raise the limits of processes and memory",
            )
        return number

    def _receive(self) -> None:
        with contextlib.suppress(OSError), self._socket.makefile("rb") as messages:
            while len(message := messages.read(_MESSAGE.size)) == _MESSAGE.size:
                self._take(*_MESSAGE.unpack(message))
        with self.changed:
            self.is_running = False
            self.changed.notify_all()
            left = list(self.live)
        for pid in left:
            threading.Thread(target=self._wait_for, args=(pid,), name="program-end", daemon=True).start()
        self._process.wait()

    def _take(self, number: int, code: int) -> None:
        if code not in (_READY, _FORKED, _NOT_FORKED):
            self._ended(number, code)
            return
        with self.changed:
            if code == _READY:
                self._is_ready = True
                self.changed.notify_all()
                return
            if code == _FORKED and self._wanted is None:  # it came too late
                kill_group(number)
                return
            if code == _FORKED and self._wanted is not None:
                self.live[number] = self._wanted
            self._answer = number, code
            self.changed.notify_all()

    def _wait_for(self, pid: int) -> None:
        """Wait for a process whose server has ended. Its new parent is the init process, or this process if it is the init process."""
        code = None
        with contextlib.suppress(ProcessLookupError):
            process = os.pidfd_open(pid)
            select.select([process], [], [])
            os.close(process)
            with contextlib.suppress(ChildProcessError):
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        self._ended(pid, code)

    def _ended(self, pid: int, code: int | None) -> None:
        with self.changed:
            on_exit = self.live.pop(pid, None)
        if on_exit is not None:
            threading.Thread(target=on_exit, args=(code,), name="program-end", daemon=True).start()

    def kill(self) -> None:
        self.is_running = False
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        self.kill()
        self._socket.close()


def kill_group(pid: int) -> None:
    """Kill a process of a program with the processes that it has started."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:  # it was forked just now, and has no group yet
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


# --- the server's process -------------------------------------------------------------------------------------------


def serve(control: socket.socket) -> None:
    """Fork a process for each request, until the session has ended."""
    for name in LOADED:
        importlib.import_module(name)
    gc.collect()
    trim_heap()
    gc.freeze()
    wake_up, woken = socket.socketpair()
    wake_up.setblocking(False)
    signal.set_wakeup_fd(wake_up.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    live: set[int] = set()
    with contextlib.suppress(OSError):  # the session has ended, and takes no report
        control.sendall(_MESSAGE.pack(0, _READY))
        while True:
            readable, _, _ = select.select([control, woken], [], [])
            if woken in readable:
                woken.recv(4096)
                for pid, code in _reap(live):
                    control.sendall(_MESSAGE.pack(pid, code))
            if control in readable and not _fork_one(control, (wake_up, woken), live):
                break
    _end_all(live)


def _reap(live: set[int]) -> list[tuple[int, int]]:
    """Return the ids and exit codes of ended processes. Kill the processes that they have left while their ids are still reserved."""
    found = []
    while live and (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(ended.si_pid, signal.SIGKILL)
        pid, status = os.waitpid(ended.si_pid, 0)
        live.discard(pid)
        found.append((pid, os.waitstatus_to_exitcode(status)))
    return found


def _end_all(live: set[int]) -> None:
    """Wait for the processes of programs, and kill those that do not end."""
    deadline = time.monotonic() + END_S
    while live and time.monotonic() < deadline:
        _reap(live)
        time.sleep(0.05)
    for pid in live:
        kill_group(pid)


def _fork_one(control: socket.socket, others: tuple[socket.socket, ...], live: set[int]) -> bool:
    request, fds, _, _ = socket.recv_fds(control, 1, 2)
    if not request or len(fds) != 2:
        return False
    connection, output = fds
    for fd in fds:
        os.set_inheritable(fd, False)
    try:
        pid = os.fork()
    except OSError as error:
        control.sendall(_MESSAGE.pack(error.errno or 0, _NOT_FORKED))
    else:
        if pid == 0:
            _become_program(connection, output, (control, *others))
        live.add(pid)
        control.sendall(_MESSAGE.pack(pid, _FORKED))
    os.close(connection)
    os.close(output)
    return True


def _become_program(connection: int, output: int, others: tuple[socket.socket, ...]) -> None:
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for other in others:
            other.close()
        os.setsid()
        for stream in (1, 2):
            os.dup2(output, stream)
        os.close(output)
        from penstock.jobmanager.process.programs.process.program_process import run

        code = run(connection)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as channel:
        serve(channel)
