"""The process that forks Python workers: PySpark's daemon with a faster start (`spark.python.daemon.module`).

Spark puts PySpark as a zip file first on a worker's path. Python compiles every module of a zip at every start, which takes seconds of
CPU time per daemon. Each executor has a daemon, and so does each slot of the batched runner. The modules of the installed package are
already compiled. This module imports the engine's modules once before it forks workers, which then share them.

**A warm daemon.** Spark starts a daemon when the first task needs it, and the imports would delay this task by 1 s. So Penstock starts a
warm daemon together with the JVM (`start_with_warm_daemon`). The warm daemon imports the modules and waits at a socket.

The daemon that Spark starts later connects to this socket (`WARM`) and passes its standard streams, environment and folder to the warm
daemon. From then on, Spark communicates with the warm daemon. The daemon that Spark started ends together with the warm daemon. Only the
first daemon that Spark starts uses the warm daemon. An unused warm daemon ends with the JVM.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import shutil
import socket
import sys
import time
import zipimport
from collections.abc import Callable
from typing import Any

from penstock.common.system.native_memory import trim_heap

WARM = "PENSTOCK_WARM_DAEMON"
"""Environment variable: the socket of the warm daemon."""
STORES = "PENSTOCK_STORES"
"""Environment variable: storage schemes of the cluster's jobs, separated by commas. The daemon loads the modules that open these storages
before it forks workers.
"""
LONGEST_PATH = 100
"""Maximum path length of a Unix domain socket. Systems allow 104 to 108 bytes."""
_BOUND_S = 2.0
"""Time in seconds within which a daemon that is started with the JVM creates its socket."""
SPARK_SECRET = "_SPARK_AUTH_SECRET"
"""Environment variable that contains the cluster's secret for an executor."""
_WAIT = "--wait"
_SCRIPT = f'"$0" -u -m penstock.jobmanager.cluster.python_daemon {_WAIT} "$1" "$2" "$3" & shift 3; exec "$@"'
_STREAMS = 3

PRELOADED = (
    "pyspark.worker",
    "penstock.taskmanager.worker",
    "penstock.taskmanager.operators.aggregate.reduce",
    "penstock.checkpoint.store.local_store",
    "penstock.taskmanager.operators.simple",
    "penstock.connectors.simple.collect",
    "penstock.connectors.simple.collection",
    "encodings.idna",
    "penstock.datastream",
    "penstock.datastream.data_stream",
    "penstock.datastream.functions",
    "penstock.datastream.state",
    "penstock.datastream.stream_execution_environment",
    "penstock.datastream.window",
    "penstock.datastream.connectors.file_system",
)
"""Modules that nearly every job imports, loaded once for all workers. Workers load the modules of a job themselves, because they must not
share resources that a module opens.
"""


class _NoCollection:
    """Replacement for `gc` in PySpark's daemon. PySpark runs the collector after each task, which would scan all state of the process.

    The collector still runs by its thresholds (`taskmanager.worker`).
    """

    @staticmethod
    def collect() -> int:
        return 0


def environment_for(storage: str) -> dict[str, str]:
    """Return the environment variables for the URL of the jobs' checkpoints.

    >>> environment_for("s3a://bucket/checkpoints"), environment_for("")
    ({'PENSTOCK_STORES': 's3'}, {})
    """
    from penstock.checkpoint.store.object_store import normalize_url, scheme_of

    return {STORES: scheme_of(normalize_url(storage))} if storage else {}


def prefer_installed(path: list[str]) -> list[str]:
    """Return the path without PySpark's zip files and Spark's jar, which are outdated copies of the installed package.

    >>> prefer_installed(["/spark/python/lib/pyspark.zip", "/app", "/spark/python/lib/py4j-0.10.9.9-src.zip", "/spark/jars/spark-core_2.13-4.3.0.jar"])
    ['/app']
    """
    return [entry for entry in path if not entry.endswith(("/pyspark.zip", "-src.zip")) and not _is_of_spark(entry)]


def _is_of_spark(entry: str) -> bool:
    return os.path.basename(entry).startswith("spark-core_") and entry.endswith(".jar")


def without_zips() -> None:
    """Exclude Spark's archives from module lookups, and drop Python's cache of their directories.

    Workers invalidate the directory caches before a task (`importlib.invalidate_caches`). Each worker would then read the
    archives' directories again: 6,000 names, which take 12 MB.
    """
    kept = prefer_installed(sys.path)
    for entry in set(sys.path) - set(kept):
        sys.path_importer_cache.pop(entry, None)
        vars(zipimport).get("_zip_directory_cache", {}).pop(entry, None)
    sys.path[:] = kept


def start_with_warm_daemon(
    command: list[str], environment: dict[str, str], folder: str, python: str, start: Callable[..., Any]
) -> Any:
    """Start a JVM whose Python daemon is already warm when it is needed.

    Args:
        folder: directory for the socket, which only this user can read.
        start: function that calls `subprocess.Popen` with the remaining arguments. The new process becomes the JVM.
    """
    path = os.path.join(folder, "daemon.sock")
    if len(os.fsencode(path)) > LONGEST_PATH or not os.path.exists("/bin/sh") or shutil.which(command[0]) is None:
        return start(command, env=environment)
    # The JVM inherits the pipe and does not use it. So the pipe stays open as long as the JVM lives.
    reading, writing = os.pipe()
    try:
        return start(
            ["/bin/sh", "-c", _SCRIPT, python, path, str(reading), str(writing), *command],
            env={**environment, WARM: path},
            pass_fds=(reading, writing),
        )
    finally:
        os.close(reading)
        os.close(writing)


def hand_over(path: str) -> socket.socket | None:
    """Let a warm daemon replace this process. Return None if no warm daemon exists, or if it does not match this process."""
    deadline = time.monotonic() + _BOUND_S
    connection = socket.socket(socket.AF_UNIX)
    while True:
        try:
            connection.connect(path)
            break
        except FileNotFoundError:
            if time.monotonic() > deadline:
                return None
            time.sleep(0.02)
        except OSError:  # the warm daemon is already in use
            return None
    here = {
        "like": _inherited_properties(),
        "folder": os.getcwd(),
        "environment": dict(os.environ),
        "path": sys.path,
        "arguments": sys.argv,
    }
    try:
        socket.send_fds(connection, [b"\0"], range(_STREAMS))
        connection.sendall(json.dumps(here).encode())
        connection.shutdown(socket.SHUT_WR)
        return connection if connection.recv(1) else None
    except OSError:
        return None


def _inherited_properties() -> list[str]:
    """Return the properties that a process cannot take over from another process."""
    return [sys.executable, sys.version, os.environ.get("PYTHONHASHSEED", "")]


def _wait_for_daemon_end(connection: socket.socket) -> None:
    """Wait with little memory until the daemon ends. Spark regards this process as the daemon."""
    os.dup2(connection.fileno(), 0)
    cat = shutil.which("cat")
    if cat is not None:
        os.execv(cat, [cat])
    while connection.recv(1):
        pass


def _wait_for_work(path: str, lifeline: int) -> None:
    """Wait for a daemon that Spark starts, take over its role, and return. End the process if the JVM ends first."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(1)
        _preload()
        while True:
            if lifeline in select.select((listener.fileno(), lifeline), (), ())[0]:
                sys.exit(0)
            if _accepts_takeover(listener.accept()[0]):
                break
    os.close(lifeline)


def _accepts_takeover(connection: socket.socket) -> bool:
    _, streams, _, _ = socket.recv_fds(connection, 1, _STREAMS)
    with connection.makefile("rb") as file:
        setup = json.loads(file.read() or b"{}")
    if setup.get("like") != _inherited_properties() or len(streams) != _STREAMS:
        for stream in streams:
            os.close(stream)
        connection.close()
        return False
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(setup["environment"])
    os.chdir(setup["folder"])
    sys.path[:] = setup["path"]
    sys.argv[:] = setup["arguments"]
    connection.send(b"\0")
    connection.detach()  # keep it open as long as this process lives
    return True


def _preload() -> None:
    for name in PRELOADED:
        importlib.import_module(name)
    schemes = importlib.import_module("penstock.checkpoint.store.schemes")
    for scheme in filter(None, os.environ.get(STORES, "").split(",")):
        with contextlib.suppress(Exception):  # a task that opens it reports the missing module
            schemes.prepare_store(scheme)
    gc.collect()
    trim_heap()
    gc.freeze()


def forget(name: str) -> None:
    """Remove a variable from the environment, and from `/proc/self/environ` of this process and its children."""
    value = os.environ.get(name)
    if value is None:
        return
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    address = libc.getenv(name.encode())
    if address:
        ctypes.memset(address, 0, len(os.fsencode(value)))
    os.environ.pop(name, None)


def without_traceback(worker: Callable[..., int]) -> Callable[..., int]:
    """Return PySpark's `worker` as a function that ends silently if the JVM has already closed the task's socket.

    The JVM closes this socket at the end of a job. PySpark then prints a traceback, which the console shows as output of the program.
    A worker that no other job may use ends here. The JVM sees that an idle worker has ended, and takes another one.
    """

    def serve(*arguments: Any) -> int:
        try:
            code = worker(*arguments)
        except (BrokenPipeError, ConnectionResetError):
            return 1
        if getattr(sys.modules.get("penstock.taskmanager.worker"), "serves_once", False):
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)
        return code

    return serve


def main(arguments: list[str]) -> None:
    forget(SPARK_SECRET)  # the executor reads it from the same environment, but functions of a job must not see it
    without_zips()
    warm = os.environ.get(WARM)
    if arguments[:1] == [_WAIT]:
        path, reading, writing = arguments[1:]
        os.close(int(writing))
        _wait_for_work(path, int(reading))
    elif warm and (connection := hand_over(warm)) is not None:
        _wait_for_daemon_end(connection)
        return
    else:
        _preload()
    os.environ.pop(WARM, None)
    # Spark sets both variables to the values of `jvm/StreamRunner.java`, which are only for the JVM. In Python, SPARK_PIPELINED_UDF would
    # start a thread that reads ahead, which would cost context switches.
    os.environ.pop("SPARK_PIPELINED_UDF", None)
    os.environ.pop("SPARK_BUFFER_SIZE", None)
    daemon = importlib.import_module("pyspark.daemon")
    vars(daemon)["gc"] = _NoCollection
    vars(daemon)["worker"] = without_traceback(daemon.worker)
    daemon.manager()


if __name__ == "__main__":
    main(sys.argv[1:])
