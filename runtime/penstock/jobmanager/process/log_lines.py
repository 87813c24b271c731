"""The log outputs of a deployed process: stdout, which `kubectl logs` shows, and a file that REST shows."""

from __future__ import annotations

import logging
import sys

from penstock.common.logs.log_file import LogFile, LogFileHandler
from penstock.common.logs.log_format import FindPlace, nowhere, record_format
from penstock.common.logs.log_settings import LogSettings
from penstock.common.logs.redaction import Redaction


def log_here(settings: LogSettings, redaction: Redaction, file: LogFile, find_place: FindPlace = nowhere) -> None:
    """Send all logs of this process to its stdout and to the file, and to no other output."""
    form = record_format(settings.format, redaction, find_place)
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stdout), LogFileHandler(file)]
    for handler in handlers:
        handler.setFormatter(form)
    logging.basicConfig(handlers=handlers, force=True)
    settings.apply_levels()
