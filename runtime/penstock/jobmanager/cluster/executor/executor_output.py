"""What executors and their Python workers write: a job's own prints and logs, and the JVM's warnings.

A deployed TaskManager copies it to its own output, line by line with the executor's number in front, because nobody who has
only `kubectl logs` would look anywhere else. There and on an embedded cluster it goes to files that stay small, for REST to show.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from typing import IO

from penstock.common.logs.log_file import LogFile
from penstock.common.logs.log_format import MARK
from penstock.common.logs.log_settings import LogSettings
from penstock.common.logs.redaction import Redaction
from penstock.jobmanager.cluster.logs.files import LogFiles

_CHUNK = 1 << 16
_LONGEST = 64 * 1024
"""A line without an end is copied in pieces of that many bytes."""
_OF_THE_JVM = re.compile(rb"\d\d/\d\d/\d\d \d\d:\d\d:\d\d [A-Z]+ ")
_OF_A_TRACE = re.compile(rb"\s+at |Caused by: |\s+\.\.\. |[a-z]+(\.\w+)+(Exception|Error)")


def copy_output(source: IO[bytes], prefix: str, write: Callable[[bytes], object]) -> threading.Thread:
    """Copy whole lines until the last process that has the other end has gone; from a thread of its own."""
    thread = threading.Thread(target=_copy, args=(source, prefix.encode(), write), name="executor-output", daemon=True)
    thread.start()
    return thread


def _copy(source: IO[bytes], prefix: bytes, write: Callable[[bytes], object]) -> None:
    rest = b""
    with source:
        while chunk := os.read(source.fileno(), _CHUNK):
            *whole, rest = (rest + chunk).split(b"\n")
            if len(rest) > _LONGEST:
                whole, rest = [*whole, rest], b""
            if whole:
                write(b"".join(prefix + line + b"\n" for line in whole))
    if rest:
        write(prefix + rest + b"\n")


def to_stdout(lines: bytes) -> None:
    sys.stdout.buffer.write(lines)
    sys.stdout.buffer.flush()


def _apart(lines: bytes) -> Iterator[bytes]:
    """The lines, and what was logged behind text without an end (a progress bar, a process that died) on a line of its own.

    >>> list(_apart(b"12 %\\x1elog\\x1elost\\n"))
    [b'12 %\\n', b'\\x1elog\\x1elost\\n']
    """
    for line in lines.splitlines(keepends=True):
        printed, mark, logged = line.partition(MARK)
        if mark and printed:
            yield printed + b"\n"
            yield mark + logged
        else:
            yield line


class ExecutorOutput:
    """The log and the stdout of a TaskManager, over all executors that it has one after the other.

    A line of the log has a mark in front (`taskmanager.watching.task_log`), or begins as those of the JVM do; all else was printed.
    """

    def __init__(self, folder: str, name: str, settings: LogSettings, redaction: Redaction) -> None:
        bounds = (settings.max_bytes, settings.max_files, redaction)
        self.log = LogFile(os.path.join(folder, f"{name}.log"), *bounds)
        self.stdout = LogFile(os.path.join(folder, f"{name}.out"), *bounds)
        self._redaction = redaction

    @property
    def files(self) -> LogFiles:
        return LogFiles([self.log, self.stdout])

    def take(self, lines: bytes) -> None:
        """Whole lines."""
        logged, printed = [], []
        in_trace = False
        for line in _apart(lines):
            in_trace = bool(_OF_THE_JVM.match(line)) or (in_trace and bool(_OF_A_TRACE.match(line)))
            if line.startswith(MARK):
                logged.append(line[len(MARK) :])
            elif in_trace:
                logged.append(line)
            else:
                printed.append(line)
        if logged:
            self.log.write(b"".join(logged))
        if printed:
            self.stdout.write(b"".join(printed))

    def take_and_tell(self, prefix: str) -> Callable[[bytes], None]:
        """The same, and all of it to this process's stdout with the prefix in front of each line."""
        head = prefix.encode()

        def take(lines: bytes) -> None:
            self.take(lines)
            clean = self._redaction.clean_bytes(lines)
            to_stdout(b"".join(head + line.removeprefix(MARK) for line in _apart(clean)))

        return take
