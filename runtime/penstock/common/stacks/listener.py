"""Stacks of a TaskManager's Python workers, and records on edges. Each worker answers requests at its own socket in a shared folder.

The file system is the access control: the folder is private to the user of the TaskManager. A thread that waits in
`accept` costs nothing. A worker cannot answer while another thread holds the GIL.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TypeVar

import msgspec

from penstock.common.stacks.edge_records import EdgeQuestion, EdgeRecord, newest
from penstock.common.stacks.sampling import HERTZ, LONGEST_S, OWN_THREAD, FindPlace, Sample, sample

PATIENCE_S = 5.0
"""Seconds that a client waits for an answer, in addition to the sampling time."""
MAX_BYTES = 8 * 2**20
MAX_QUESTION = 16 * 2**10
"""Maximum size of a request in bytes. A request names an operator and a side output."""
_AT_ONCE = 64
_MAX_CONCURRENT_ANSWERS = 8
"""Maximum number of concurrent answers of a process. Further requests get no answer."""
_PAUSE_S = 1.0
_SUFFIX = ".stacks"

T = TypeVar("T")
logger = logging.getLogger(__name__)


class Question(msgspec.Struct, frozen=True):
    """The sampling time in seconds (0 means one sample), and the samples per second. `edge`: ask for records instead of stacks."""

    seconds: float = 0.0
    hertz: int = HERTZ
    edge: EdgeQuestion | None = None


FindRecords = Callable[[EdgeQuestion], list[EdgeRecord]]


def no_records(question: EdgeQuestion) -> list[EdgeRecord]:
    """Return no record: the process runs no task."""
    return []


def listen(folder: str, find_place: FindPlace, find_records: FindRecords = no_records) -> None:
    """Answer requests in a separate thread until the process ends.

    Raises:
        OSError: the socket cannot be created in the folder.
    """
    os.makedirs(folder, mode=0o700, exist_ok=True)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _reachable(folder) as short:
            path = os.path.join(short, f"{os.getpid()}{_SUFFIX}")
            with suppress(FileNotFoundError):
                os.remove(path)  # the socket of an earlier process with the same id
            server.bind(path)
        server.listen()
    except BaseException:
        server.close()
        raise
    threading.Thread(target=_serve, args=(server, find_place, find_records), name=OWN_THREAD, daemon=True).start()


def sample_processes(folder: str, question: Question) -> list[Sample]:
    """Return the samples of every process that listens in the folder. Leave out processes that do not answer in time.

    Remove the sockets of processes that have ended.
    """
    answers = _ask_processes(folder, question, list[Sample])
    return sorted((seen for answer in answers for seen in answer), key=lambda seen: -seen.count)


def records_of_processes(folder: str, question: EdgeQuestion) -> list[EdgeRecord]:
    """Return the last records on an edge in all processes that listen in the folder."""
    answers = _ask_processes(folder, Question(question.seconds, edge=question), list[EdgeRecord])
    return newest([record for answer in answers for record in answer], question.count)


def _ask_processes(folder: str, question: Question, kind: type[list[T]]) -> list[list[T]]:
    try:
        names = [name for name in os.listdir(folder) if name.endswith(_SUFFIX)]
    except FileNotFoundError:
        return []
    with _reachable(folder) as short, ThreadPoolExecutor(_AT_ONCE, thread_name_prefix=OWN_THREAD) as pool:
        return list(pool.map(lambda name: _ask_process(os.path.join(short, name), question, kind), names))


def _ask_process(path: str, question: Question, kind: type[list[T]]) -> list[T]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(PATIENCE_S)
        try:
            connection.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            with suppress(FileNotFoundError):
                os.remove(path)
            return []
        except OSError:
            return []
        connection.settimeout(min(question.seconds, LONGEST_S) + PATIENCE_S)
        try:
            connection.sendall(msgspec.json.encode(question))
            connection.shutdown(socket.SHUT_WR)
            return msgspec.msgpack.decode(b"".join(_received(connection, MAX_BYTES)), type=kind)
        except (OSError, msgspec.DecodeError) as error:
            logger.info("process %s did not answer: %s", os.path.basename(path).removesuffix(_SUFFIX), error)
            return []


def _serve(server: socket.socket, find_place: FindPlace, find_records: FindRecords) -> None:
    """Answer each request in a separate thread, so that a short request does not wait for a long one."""
    free_slots = threading.BoundedSemaphore(_MAX_CONCURRENT_ANSWERS)
    while True:
        try:
            connection, _ = server.accept()
            if not free_slots.acquire(blocking=False):
                connection.close()
                continue
        except OSError as error:  # the process may not open more files now
            logger.info("this process does not accept requests for stacks: %s", error)
            time.sleep(_PAUSE_S)
            continue
        try:
            threading.Thread(
                target=_answer, args=(connection, find_place, find_records, free_slots), name=OWN_THREAD, daemon=True
            ).start()
        except RuntimeError as error:  # the process may not start more threads now
            connection.close()
            free_slots.release()
            logger.info("a request for stacks failed: %s", error)


def _answer(
    connection: socket.socket, find_place: FindPlace, find_records: FindRecords, free_slots: threading.Semaphore
) -> None:
    with connection:
        try:
            connection.settimeout(PATIENCE_S)
            question = msgspec.json.decode(b"".join(_received(connection, MAX_QUESTION)), type=Question)
            if question.edge is not None:
                connection.sendall(msgspec.msgpack.encode(find_records(question.edge)))
                return
            found = sample(question.seconds, question.hertz, find_place)
            connection.sendall(msgspec.msgpack.encode(within(found, MAX_BYTES)))
        except (OSError, msgspec.DecodeError) as error:
            logger.info("a request for stacks failed: %s", error)
        finally:
            free_slots.release()


def within(samples: Iterable[Sample], max_bytes: int) -> list[Sample]:
    """Return the most frequent samples that fit in `max_bytes` bytes. A sample that is too large is skipped, so that others still fit."""
    kept = []
    for seen in samples:
        size = len(msgspec.msgpack.encode(seen))
        if size <= max_bytes:
            max_bytes -= size
            kept.append(seen)
    return kept


def _received(connection: socket.socket, max_bytes: int) -> Iterator[bytes]:
    while max_bytes > 0 and (data := connection.recv(min(max_bytes, 65536))):
        max_bytes -= len(data)
        yield data


@contextmanager
def _reachable(folder: str) -> Iterator[str]:
    """Yield a path of the folder that is short enough for a socket's address (108 bytes), if the system has such a
    path.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        short = f"/proc/self/fd/{descriptor}"
        yield short if os.path.isdir(short) else folder
    finally:
        os.close(descriptor)
