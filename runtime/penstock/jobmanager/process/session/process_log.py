"""The logs and the output of a JobManager's process, kept for REST.

A program that `python job.py` runs is its own master. Its handlers, log levels and stdout are not changed. Records that its levels let
through are also kept for REST. If the program has no handlers, warnings and errors are shown on stderr.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TextIO, cast

from penstock.common.config import options
from penstock.common.configuration import Configuration
from penstock.common.logs.log_file import LogFile, LogFileHandler
from penstock.common.logs.log_format import record_format
from penstock.common.logs.log_settings import LogSettings
from penstock.common.logs.redaction import Redaction
from penstock.jobmanager.cluster.executor.console import ConsoleHandler, head
from penstock.jobmanager.cluster.logs.files import LogFiles
from penstock.jobmanager.process.log_lines import log_here
from penstock.taskmanager.watching.task_log import PlacedStream, place_on_stack


@contextmanager
def master_log(settings: Configuration) -> Iterator[LogFiles]:
    """Keep the logs and the output of a deployed JobManager's process during the block."""
    log, redaction = LogSettings.from_configuration(settings), Redaction.of(settings.to_dict(), *_in_files(settings))
    with tempfile.TemporaryDirectory(prefix="penstock-log-", ignore_cleanup_errors=True) as folder:
        files = [
            LogFile(os.path.join(folder, name), log.max_bytes, log.max_files, redaction)
            for name in ("jobmanager.log", "jobmanager.out")
        ]
        log_here(log, redaction, files[0], place_on_stack)
        before = sys.stdout
        sys.stdout = _Copied(before, files[1])
        try:
            yield LogFiles(files)
        finally:
            sys.stdout = before


@contextmanager
def program_log(settings: Configuration) -> Iterator[LogFiles]:
    """Keep the logs of a program that is its own JobManager during the block. Log levels change only if the configuration sets a level."""
    log, redaction = LogSettings.from_configuration(settings), Redaction.of(settings.to_dict(), *_in_files(settings))
    with tempfile.TemporaryDirectory(prefix="penstock-log-", ignore_cleanup_errors=True) as folder:
        file = LogFile(os.path.join(folder, "jobmanager.log"), log.max_bytes, log.max_files, redaction)
        handler = LogFileHandler(file)
        handler.setFormatter(record_format(log.format, redaction, place_on_stack))
        root = logging.getLogger()
        handlers: list[logging.Handler] = [handler]
        if not root.handlers:  # the program configured no logging, so failures and restarts would not be shown
            handlers.append(ConsoleHandler(redaction))
        for added in handlers:
            root.addHandler(added)
        if any(settings.contains_key(option.key) for option in (options.LOG_LEVEL, options.LOG_LEVELS)):
            log.apply_levels()
        try:
            yield LogFiles([file])
        finally:
            for added in handlers:
                root.removeHandler(added)


@contextmanager
def program_console(settings: Configuration) -> Iterator[None]:
    """Show the output of functions in this process like the output of workers, until the block ends."""
    root, handler = logging.getLogger(), ConsoleHandler(Redaction.of(settings.to_dict()), place_on_stack)
    if not root.handlers:
        root.addHandler(handler)
    before = sys.stdout, sys.stderr
    placed = [cast("TextIO", PlacedStream(stream, partial(_head, stream))) for stream in before]
    sys.stdout, sys.stderr = placed
    try:
        yield
    finally:
        root.removeHandler(handler)
        for stream in placed:
            stream.flush()
        if (sys.stdout, sys.stderr) == tuple(placed):
            sys.stdout, sys.stderr = before


def _head(stream: TextIO, place: str) -> str:
    return "" if _is_debugging() else head(stream, place)


def _is_debugging() -> bool:
    """Return whether a debugger of the standard library has called this code. If so, the debugger writes the current
    line."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") == "bdb":
            return True
        frame = frame.f_back
    return False


def _in_files(settings: Configuration) -> list[str]:
    """Return the secrets in files that the configuration names."""
    found = []
    for option in (options.REST_TOKEN_FILE, options.REST_READER_TOKEN_FILE, options.SPARK_SECRET_FILE):
        path = settings.get(option)
        try:
            if path:
                found.append(Path(path).read_text().strip())
        except (OSError, UnicodeDecodeError):
            continue  # the code that needs the file reports it
    return found


class _Copied:
    """Standard output whose lines are also written to a file."""

    def __init__(self, to: TextIO, file: LogFile) -> None:
        self._to = to
        self._file = file
        self._rest = ""

    def write(self, text: str) -> int:
        *whole, self._rest = (self._rest + text).split("\n")
        if whole:
            self._file.write("".join(f"{line}\n" for line in whole).encode(errors="backslashreplace"))
        return self._to.write(text)

    def __getattr__(self, name: str) -> object:
        return getattr(self._to, name)
