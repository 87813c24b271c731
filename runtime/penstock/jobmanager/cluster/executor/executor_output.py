"""The output of executors and their Python workers: prints and logs of a job, and warnings of the JVM.

A deployed TaskManager copies this output to its own output, line by line with the number of the executor as prefix. So `kubectl logs` shows
it. A deployed TaskManager and an embedded cluster also write it to files of limited size, which REST shows.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from typing import IO

from penstock.common.logs.log_file import LogFile
from penstock.common.logs.log_format import MARK, PRINTED
from penstock.common.logs.log_settings import LogSettings
from penstock.common.logs.redaction import Redaction
from penstock.jobmanager.cluster.executor.console import Console
from penstock.jobmanager.cluster.logs.files import LogFiles

_CHUNK = 1 << 16
_LONGEST = 64 * 1024
"""Maximum length of a copied line, in bytes. A longer line is copied in pieces."""
_PRINTED = re.compile(PRINTED.format("(out|err)", "([^\\x1e\\n]*)").encode())
_OF_THE_JVM = re.compile(rb"\d\d/\d\d/\d\d \d\d:\d\d:\d\d [A-Z]+ ")
_OF_A_TRACE = re.compile(rb"\s+at |Caused by: |\s+\.\.\. |[a-z]+(\.\w+)+(Exception|Error)")


def copy_output(source: IO[bytes], prefix: str, write: Callable[[bytes], object]) -> threading.Thread:
    """Copy whole lines in a separate thread, until no process has the other end of the pipe open."""
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


def _separate_lines(lines: bytes) -> Iterator[bytes]:
    """Yield the lines. A log record that follows text without a line end (a progress bar, a process that died) becomes a separate line.

    >>> list(_separate_lines(b"12 %\\x1elog\\x1elost\\n"))
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
    """Log and standard output of a TaskManager, from all executors that it runs one after the other.

    A log line starts with a mark (`taskmanager.watching.task_log`), or has the format of the JVM's log lines. All other lines are
    standard output.
    """

    def __init__(self, folder: str, name: str, settings: LogSettings, redaction: Redaction) -> None:
        bounds = (settings.max_bytes, settings.max_files, redaction)
        self.log = LogFile(os.path.join(folder, f"{name}.log"), *bounds)
        self.stdout = LogFile(os.path.join(folder, f"{name}.out"), *bounds)
        self._redaction = redaction
        self.console: Console | None = None
        """Console that also shows what functions print and log. None means that the output is only in the files."""

    @property
    def files(self) -> LogFiles:
        return LogFiles([self.log, self.stdout])

    def take(self, lines: bytes) -> None:
        """Write whole lines to the log or the standard output."""
        logged, printed = [], []
        in_trace = False
        for line in _separate_lines(lines):
            in_trace = bool(_OF_THE_JVM.match(line)) or (in_trace and bool(_OF_A_TRACE.match(line)))
            if line.startswith(MARK):
                logged.append(line[len(MARK) :])
            elif in_trace:
                logged.append(line)
            else:
                printed.append(_PRINTED.sub(b"", line))
            if self.console is not None:
                self._show(self.console, line)
        if logged:
            self.log.write(b"".join(logged))
        if printed:
            self.stdout.write(b"".join(printed))

    def _show(self, console: Console, line: bytes) -> None:
        """Show a line that a function printed or logged. Output of the JVM and of native libraries is only in the files."""
        text = self._redaction.clean_bytes(line).decode(errors="backslashreplace")
        if line.startswith(MARK):
            console.log(text.removeprefix(MARK.decode()))
        elif (found := _PRINTED.search(line)) is not None:
            stream, place = found[1], found[2].decode(errors="backslashreplace")
            printed = re.sub(_PRINTED.pattern.decode(), "", text)
            console.print(place, printed, to_stderr=stream == b"err")

    def take_with_prefix(self, prefix: str) -> Callable[[bytes], None]:
        """Return a function that calls `take` with its lines, and also writes each line with the prefix to this process's stdout."""
        head = prefix.encode()

        def take(lines: bytes) -> None:
            self.take(lines)
            clean = self._redaction.clean_bytes(lines)
            shown = (_PRINTED.sub(b"", line.removeprefix(MARK)) for line in _separate_lines(clean))
            to_stdout(b"".join(head + line for line in shown))

        return take
