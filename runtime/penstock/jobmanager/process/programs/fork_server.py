"""A process that has loaded the engine and forks the processes of programs, so that they start within milliseconds.

The server has one thread, because a fork copies only the thread that calls it. The session sends the streams and the connection of each new
process to the server. The server reports each process that ends. It ends with the session, and the processes of programs then end by
themselves.
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
import traceback
from collections.abc import Callable

from penstock.common.errors import ClusterError
from penstock.common.system.native_memory import trim_heap

LOADED = (
    "penstock.jobmanager.process.programs.program_process",
    "penstock.jobmanager.process.programs.run_entry",
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
"""Process id and exit code. Each message of the server has these two numbers."""
START_S = 30.0
"""Maximum time in seconds of a fork, which first waits for the imports of the server."""


class ForkServer:
    """The session's end. Thread-safe.

    Args:
        on_exit: function that is called with the process id and the exit code of each process that ends. A negative code is a signal.
    """

    def __init__(self, on_exit: Callable[[int, int], object]) -> None:
        self._on_exit = on_exit
        self._lock = threading.Lock()
        self._arrived = threading.Condition()
        self._pids: list[int] = []
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._closing = False

    def start(self) -> None:
        """Start the server, or start it again after its end."""
        with self._lock:
            self._start()

    def _start(self) -> None:
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with there:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "penstock.jobmanager.process.programs.fork_server", str(there.fileno())],
                pass_fds=(there.fileno(),),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._socket = here
        self._pids = []
        threading.Thread(target=self._receive, args=(here,), name="fork-server", daemon=True).start()

    def fork(self, connection: socket.socket, output: int) -> int:
        """Start a process with this connection and this output. Return its process id.

        Raises:
            ClusterError: the server did not start the process.
        """
        with self._lock:
            for _ in range(2):
                if self._process is None or self._process.poll() is not None:
                    self._start()
                assert self._socket is not None
                try:
                    socket.send_fds(self._socket, [b"f"], [connection.fileno(), output])
                except OSError:
                    continue
                with self._arrived:
                    if self._arrived.wait_for(lambda: bool(self._pids), START_S):
                        return self._pids.pop()
            raise ClusterError(
                "the process of the program did not start", remedy="the output of the session has the reason"
            )

    def _receive(self, server: socket.socket) -> None:
        with server, server.makefile("rb") as messages:
            while len(message := messages.read(_MESSAGE.size)) == _MESSAGE.size:
                pid, code = _MESSAGE.unpack(message)
                if code == _FORKED:
                    with self._arrived:
                        self._pids.append(pid)
                        self._arrived.notify_all()
                else:
                    self._on_exit(pid, code)

    def close(self) -> None:
        with self._lock:
            process, server = self._process, self._socket
            self._process = self._socket = None
        if server is not None:
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
        if process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
            process.kill()


_FORKED = 1 << 20
"""Code in the message about a new process."""


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
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    while True:
        readable, _, _ = select.select([control, woken], [], [])
        if woken in readable:
            woken.recv(4096)
            _report_ended(control)
        if control in readable and not _fork_one(control, (wake_up, woken)):
            return


def _report_ended(control: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        control.sendall(_MESSAGE.pack(pid, os.waitstatus_to_exitcode(status)))


def _fork_one(control: socket.socket, others: tuple[socket.socket, ...]) -> bool:
    request, fds, _, _ = socket.recv_fds(control, 1, 2)
    if not request or len(fds) != 2:
        return False
    connection, output = fds
    pid = os.fork()
    if pid == 0:
        _become_program(connection, output, (control, *others))
    os.close(connection)
    os.close(output)
    control.sendall(_MESSAGE.pack(pid, _FORKED))
    return True


def _become_program(connection: int, output: int, others: tuple[socket.socket, ...]) -> None:
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for other in others:
            other.close()
        os.setsid()
        for stream in (1, 2):
            os.dup2(output, stream)
        os.close(output)
        from penstock.jobmanager.process.programs.run_entry import run

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
