"""Stacks of the Python workers of a TaskManager: each listens at a socket of its own below a folder, and is asked there.

Only the file system says who may ask: the folder is private to the user of the TaskManager. A thread that waits in `accept`
costs nothing; there is no answer before the interpreter's lock is given up.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import msgspec

from penstock.common.stacks.sampling import HERTZ, LONGEST_S, OWN_THREAD, FindPlace, Sample, sample

PATIENCE_S = 5.0
"""Beyond the time that is looked for."""
MOST_BYTES = 8 * 2**20
_AT_ONCE = 64
_MOST_ANSWERS = 8
"""At once, of a process; who asks beyond that gets none."""
_PAUSE_S = 1.0
_SUFFIX = ".stacks"

logger = logging.getLogger(__name__)


class Question(msgspec.Struct, frozen=True):
    """How long to look (s; 0: once), and how often in a second."""

    seconds: float = 0.0
    hertz: int = HERTZ


def listen(folder: str, find_place: FindPlace) -> None:
    """Answer from now on, in a thread of its own; the process's end is the end of it.

    Raises:
        OSError: there can be no socket in the folder.
    """
    os.makedirs(folder, mode=0o700, exist_ok=True)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _reachable(folder) as short:
            path = os.path.join(short, f"{os.getpid()}{_SUFFIX}")
            with suppress(FileNotFoundError):
                os.remove(path)  # of another process, which had this number before
            server.bind(path)
        server.listen()
    except BaseException:
        server.close()
        raise
    threading.Thread(target=_serve, args=(server, find_place), name=OWN_THREAD, daemon=True).start()


def ask_all(folder: str, question: Question) -> list[Sample]:
    """Of every process that listens below the folder; who does not answer in time is left out, who has gone is swept."""
    try:
        names = [name for name in os.listdir(folder) if name.endswith(_SUFFIX)]
    except FileNotFoundError:
        return []
    with _reachable(folder) as short, ThreadPoolExecutor(_AT_ONCE, thread_name_prefix=OWN_THREAD) as pool:
        answers = list(pool.map(lambda name: _ask(os.path.join(short, name), question), names))
    return sorted((seen for answer in answers for seen in answer), key=lambda seen: -seen.count)


def _ask(path: str, question: Question) -> list[Sample]:
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
            return msgspec.msgpack.decode(b"".join(_received(connection, MOST_BYTES)), type=list[Sample])
        except (OSError, msgspec.DecodeError) as error:
            logger.info("process %s does not tell its stacks: %s", os.path.basename(path).removesuffix(_SUFFIX), error)
            return []


def _serve(server: socket.socket, find_place: FindPlace) -> None:
    """Each in a thread of its own: who asks for one look does not wait for somebody's minute."""
    room = threading.BoundedSemaphore(_MOST_ANSWERS)
    while True:
        try:
            connection, _ = server.accept()
            if not room.acquire(blocking=False):
                connection.close()
                continue
        except OSError as error:  # the process may open no more files for now
            logger.info("no question about stacks is taken: %s", error)
            time.sleep(_PAUSE_S)
            continue
        try:
            threading.Thread(target=_answer, args=(connection, find_place, room), name=OWN_THREAD, daemon=True).start()
        except RuntimeError as error:  # nor start more threads
            connection.close()
            room.release()
            logger.info("a question about stacks is not answered: %s", error)


def _answer(connection: socket.socket, find_place: FindPlace, room: threading.Semaphore) -> None:
    with connection:
        try:
            connection.settimeout(PATIENCE_S)
            question = msgspec.json.decode(b"".join(_received(connection, 1024)), type=Question)
            found = sample(question.seconds, question.hertz, find_place)
            connection.sendall(msgspec.msgpack.encode(within(found, MOST_BYTES)))
        except (OSError, msgspec.DecodeError) as error:
            logger.info("a question about stacks is not answered: %s", error)
        finally:
            room.release()


def within(samples: Iterable[Sample], most: int) -> list[Sample]:
    """As many of these, the most frequent first, as need about so many bytes. One that is too large keeps no others out."""
    kept = []
    for seen in samples:
        size = len(msgspec.msgpack.encode(seen))
        if size <= most:
            most -= size
            kept.append(seen)
    return kept


def _received(connection: socket.socket, most: int) -> Iterator[bytes]:
    while most > 0 and (data := connection.recv(min(most, 65536))):
        most -= len(data)
        yield data


@contextmanager
def _reachable(folder: str) -> Iterator[str]:
    """The folder by a path that is short enough for a socket's address (108 bytes), where the system has one."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        short = f"/proc/self/fd/{descriptor}"
        yield short if os.path.isdir(short) else folder
    finally:
        os.close(descriptor)
