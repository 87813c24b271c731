"""The process that Python workers are forked from: PySpark's own daemon, started in less time (`spark.python.daemon.module`).

Spark puts PySpark as a zip file in front of a worker's path. Python compiles every module of a zip at every start, seconds
of processor time for each daemon, of which there is one per executor, and one per slot of the batched runner. The installed package has its modules
compiled. The engine's modules are imported here once, before workers are forked, which then share them.

**A warm daemon.** Spark starts the daemon when the first task needs it, and the imports are a second of that. So a daemon is
started together with the JVM (`beside_a_warm_daemon`), imports, and waits at a socket. The one that Spark starts finds it
there (`WARM`), gives it its own standard streams, environment and folder, and is from then on nothing but a process that lives as long: Spark talks
to the warm one. Only the first gets it. A daemon that nobody has asked for ends with the JVM.
"""

from __future__ import annotations

import contextlib
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

from penstock.common.native_memory import give_back

WARM = "PENSTOCK_WARM_DAEMON"
"""Environment variable: the socket where a warm daemon waits, or has waited."""
STORES = "PENSTOCK_STORES"
"""Environment variable: schemes of the storage that the cluster's jobs use, separated by commas. What it takes to open them is loaded before workers are forked."""
LONGEST_PATH = 100
"""Of a Unix domain socket; systems have 104 to 108 bytes."""
_BOUND_S = 2.0
"""After this long a daemon that has been started together with the JVM has its socket, or will not have it."""
_WAIT = "--wait"
_SCRIPT = f'"$0" -u -m penstock.jobmanager.cluster.python_daemon {_WAIT} "$1" "$2" "$3" & shift 3; exec "$@"'
_STREAMS = 3

PRELOADED = (
    "pyspark.worker",
    "penstock.taskmanager.worker",
    "penstock.taskmanager.operators.aggregate.reduce",
    "penstock.checkpoint.store.local_store",
    "penstock.taskmanager.operators.simple",
    "penstock.connectors.collect",
    "penstock.connectors.collection",
    "encodings.idna",
    "penstock.datastream",
    "penstock.datastream.data_stream",
    "penstock.datastream.functions",
    "penstock.datastream.state",
    "penstock.datastream.stream_execution_environment",
    "penstock.datastream.window",
    "penstock.datastream.connectors.file_system",
)
"""What nearly every job imports, once for all workers instead of in each. A job's own modules are left to its workers: what a module opens must not be shared."""


class _NoCollection:
    """Stands for `gc` in PySpark's daemon, which looks at every object of the process after each task: at all state.

    The collector runs by its thresholds all the same (`taskmanager.worker`).
    """

    @staticmethod
    def collect() -> int:
        return 0


def environment_for(storage: str) -> dict[str, str]:
    """What a daemon is to know of the URL of its jobs' checkpoints.

    >>> environment_for("s3a://bucket/checkpoints"), environment_for("")
    ({'PENSTOCK_STORES': 's3'}, {})
    """
    from penstock.checkpoint.store.object_store import normalize_url, scheme_of

    return {STORES: scheme_of(normalize_url(storage))} if storage else {}


def prefer_installed(path: list[str]) -> list[str]:
    """The path without PySpark's zip files and Spark's jar, which Spark puts there for what it had in them once.

    >>> prefer_installed(["/spark/python/lib/pyspark.zip", "/app", "/spark/python/lib/py4j-0.10.9.9-src.zip", "/spark/jars/spark-core_2.13-4.3.0.jar"])
    ['/app']
    """
    return [entry for entry in path if not entry.endswith(("/pyspark.zip", "-src.zip")) and not _is_of_spark(entry)]


def _is_of_spark(entry: str) -> bool:
    return os.path.basename(entry).startswith("spark-core_") and entry.endswith(".jar")


def without_zips() -> None:
    """No module is looked up in archives of Spark's from now on, and what Python has read of their directories is forgotten.

    Workers forget what they have read of directories before a task (`importlib.invalidate_caches`), and each would read those anew, 6,000 names and 12 MB.
    """
    kept = prefer_installed(sys.path)
    for entry in set(sys.path) - set(kept):
        sys.path_importer_cache.pop(entry, None)
        vars(zipimport).get("_zip_directory_cache", {}).pop(entry, None)
    sys.path[:] = kept


def beside_a_warm_daemon(
    command: list[str], environment: dict[str, str], folder: str, python: str, start: Callable[..., Any]
) -> Any:
    """Start a JVM whose Python daemon is warm when it is asked for.

    Args:
        folder: for the socket; nobody else may read it.
        start: `subprocess.Popen` with what else there is to say; the process is the JVM itself.
    """
    path = os.path.join(folder, "daemon.sock")
    if len(os.fsencode(path)) > LONGEST_PATH or not os.path.exists("/bin/sh") or shutil.which(command[0]) is None:
        return start(command, env=environment)
    # The JVM, which knows nothing of it, keeps the pipe open for as long as it lives.
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
    """Have a warm daemon take this process's place; None: there is none, or it is not like this one."""
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
        except OSError:  # it has got work already
            return None
    here = {
        "like": _likeness(),
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


def _likeness() -> list[str]:
    """What a process cannot take over from another one."""
    return [sys.executable, sys.version, os.environ.get("PYTHONHASHSEED", "")]


def _stay(connection: socket.socket) -> None:
    """Until the daemon has ended, in as little memory as can be: Spark believes that this is the daemon."""
    os.dup2(connection.fileno(), 0)
    cat = shutil.which("cat")
    if cat is not None:
        os.execv(cat, [cat])
    while connection.recv(1):
        pass


def _wait_for_work(path: str, lifeline: int) -> None:
    """Returns as the daemon that Spark has started; ends the process if the JVM ends first."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(1)
        _preload()
        while True:
            if lifeline in select.select((listener.fileno(), lifeline), (), ())[0]:
                sys.exit(0)
            if _takes_over(listener.accept()[0]):
                break
    os.close(lifeline)


def _takes_over(connection: socket.socket) -> bool:
    _, streams, _, _ = socket.recv_fds(connection, 1, _STREAMS)
    with connection.makefile("rb") as said:
        there = json.loads(said.read() or b"{}")
    if there.get("like") != _likeness() or len(streams) != _STREAMS:
        for stream in streams:
            os.close(stream)
        connection.close()
        return False
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(there["environment"])
    os.chdir(there["folder"])
    sys.path[:] = there["path"]
    sys.argv[:] = there["arguments"]
    connection.send(b"\0")
    connection.detach()  # open for as long as this process lives
    return True


def _preload() -> None:
    for name in PRELOADED:
        importlib.import_module(name)
    schemes = importlib.import_module("penstock.checkpoint.store.schemes")
    for scheme in filter(None, os.environ.get(STORES, "").split(",")):
        with contextlib.suppress(Exception):  # a task that opens it will say what is missing
            schemes.prepare_store(scheme)
    gc.collect()
    give_back()
    gc.freeze()


def main(arguments: list[str]) -> None:
    without_zips()
    warm = os.environ.get(WARM)
    if arguments[:1] == [_WAIT]:
        path, reading, writing = arguments[1:]
        os.close(int(writing))
        _wait_for_work(path, int(reading))
    elif warm and (connection := hand_over(warm)) is not None:
        _stay(connection)
        return
    else:
        _preload()
    os.environ.pop(WARM, None)
    # `jvm/StreamRunner.java` says both for its own side. A thread that reads ahead would cost switches here.
    os.environ.pop("SPARK_PIPELINED_UDF", None)
    os.environ.pop("SPARK_BUFFER_SIZE", None)
    # The cluster's secret, which the executor has from here: what a job's functions start or print is not to have it.
    os.environ.pop("_SPARK_AUTH_SECRET", None)
    daemon = importlib.import_module("pyspark.daemon")
    vars(daemon)["gc"] = _NoCollection
    daemon.manager()


if __name__ == "__main__":
    main(sys.argv[1:])
