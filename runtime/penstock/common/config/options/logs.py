"""Logs: their levels, format and files."""

from __future__ import annotations

from penstock.common.config.option import choice_option, int_option, map_option, size_option

LOG_LEVEL_NAMES = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
LOG_LEVEL = choice_option(
    "penstock.log.level",
    LOG_LEVEL_NAMES,
    "INFO",
    "Log level of master, workers and the functions of jobs. In the process of `python job.py`, the program sets "
    "the levels.",
)
LOG_LEVELS = map_option(
    "penstock.log.levels",
    "Log levels of single loggers and their child loggers, such as `penstock.checkpoint:DEBUG,botocore:ERROR`.",
)
LOG_FORMAT = choice_option(
    "penstock.log.format", ("text", "json"), "text", "Format of log records. json: one object in each line."
)
LOG_MAX_SIZE = size_option(
    "penstock.log.max-size",
    10 * 2**20,
    "Maximum size of a log file and of a file of stdout. A larger file is rotated.",
    minimum=1 << 16,
)
LOG_MAX_FILES = int_option(
    "penstock.log.max-files",
    2,
    "Number of files that are kept of each log and stdout, including the current file.",
    minimum=1,
)
