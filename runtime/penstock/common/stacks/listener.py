"""Stacks of a TaskManager's Python workers, and records on edges. Each worker answers requests at its own socket in a shared folder.

The file system is the access control: the folder is private to the user of the TaskManager. A thread that waits in
`accept` costs nothing. A worker cannot answer while another thread holds the GIL.

The answer with records has several parts, each with its length first. A client closes the connection when it has enough records from all
workers. The worker then stops its search.
"""

from __future__ import annotations

import logging
import os
import select
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
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
_LENGTH = struct.Struct(">I")
"""Length of a part of an answer with records."""
_SUFFIX = ".stacks"

T = TypeVar("T")
logger = logging.getLogger(__name__)


class Question(msgspec.Struct, frozen=True):
    """The sampling time in seconds (0 means one sample), and the samples per second. `edge`: ask for records instead of stacks."""

    seconds: float = 0.0
    hertz: int = HERTZ
    edge: EdgeQuestion | None = None


FindRecords = Callable[[EdgeQuestion], Generator[list[EdgeRecord], None, None]]
"""Function that yields new records several times a second, or an empty list, until it has enough or the time is over."""


def no_records(question: EdgeQuestion) -> Generator[list[EdgeRecord], None, None]:
    """Yield no record: the process runs no task."""
    yield from ()


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
    """Return the last records on an edge in all processes that listen in the folder. Return as soon as all together have enough records."""
    found: list[EdgeRecord] = []
    sent = msgspec.json.encode(Question(question.seconds, edge=question))
    deadline = time.monotonic() + min(question.seconds, LONGEST_S) + PATIENCE_S
    with ExitStack() as opened, selectors.DefaultSelector() as selector:
        for path in opened.enter_context(_sockets_in(folder)):
            connection = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            connection.setblocking(False)  # a process that accepts no connections must not delay the others
            if _is_connected(connection, path):
                with suppress(OSError):  # the process has just ended
                    connection.sendall(sent)
                    connection.shutdown(socket.SHUT_WR)
                    selector.register(connection, selectors.EVENT_READ, _Parts(connection))
        while selector.get_map() and len(found) < question.count and time.monotonic() < deadline:
            for key, _ in selector.select(deadline - time.monotonic()):
                try:
                    found += key.data.received()
                except (OSError, EOFError, msgspec.DecodeError) as error:
                    logger.debug("a process sends no more records: %s", error)
                    selector.unregister(key.fileobj)
    return newest(found, question.count)


class _Parts:
    """The parts of an answer of one process."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._bytes = bytearray()

    def received(self) -> list[EdgeRecord]:
        """Return the records of the parts that are now complete.

        Raises:
            EOFError: the answer has ended, or it is too large.
            OSError: the connection is lost.
            msgspec.DecodeError: the answer is not valid.
        """
        data = self._connection.recv(65536)
        self._bytes += data
        if not data or len(self._bytes) > MAX_BYTES:
            raise EOFError("end of the answer" if not data else f"a part has more than {MAX_BYTES} bytes")
        found: list[EdgeRecord] = []
        while len(self._bytes) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._bytes)[0]
            if len(self._bytes) < end:
                break
            found += msgspec.msgpack.decode(self._bytes[_LENGTH.size : end], type=list[EdgeRecord])
            del self._bytes[:end]
        return found


@contextmanager
def _sockets_in(folder: str) -> Iterator[list[str]]:
    """Yield the paths of the processes' sockets."""
    try:
        names = [name for name in os.listdir(folder) if name.endswith(_SUFFIX)]
    except FileNotFoundError:
        yield []
        return
    with _reachable(folder) as short:
        yield [os.path.join(short, name) for name in names]


def _ask_processes(folder: str, question: Question, kind: type[list[T]]) -> list[list[T]]:
    with _sockets_in(folder) as paths, ThreadPoolExecutor(_AT_ONCE, thread_name_prefix=OWN_THREAD) as pool:
        return list(pool.map(lambda path: _ask_process(path, question, kind), paths))


def _is_connected(connection: socket.socket, path: str) -> bool:
    """Connect to a process, and return whether it accepts. Remove the socket of a process that has ended."""
    try:
        connection.connect(path)
    except (ConnectionRefusedError, FileNotFoundError):
        with suppress(FileNotFoundError):
            os.remove(path)
        return False
    except OSError:
        return False
    return True


def _ask_process(path: str, question: Question, kind: type[list[T]]) -> list[T]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(PATIENCE_S)
        if not _is_connected(connection, path):
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
                _send_records(connection, question.edge, find_records)
                return
            found = sample(question.seconds, question.hertz, find_place)
            connection.sendall(msgspec.msgpack.encode(within(found, MAX_BYTES)))
        except (OSError, msgspec.DecodeError) as error:
            logger.info("a request for stacks failed: %s", error)
        finally:
            free_slots.release()


def _send_records(connection: socket.socket, question: EdgeQuestion, find_records: FindRecords) -> None:
    closed = select.poll()
    closed.register(connection, 0)  # reports only that the client has closed the connection
    with closing(find_records(question)) as parts:
        for part in parts:
            if closed.poll(0):
                return
            if part:
                content = msgspec.msgpack.encode(part)
                connection.sendall(_LENGTH.pack(len(content)) + content)


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
