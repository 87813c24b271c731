"""The logging settings of a configuration."""

from __future__ import annotations

import logging
from typing import Literal, cast

import msgspec

from penstock.common.config import options
from penstock.common.configuration import Configuration
from penstock.common.errors import InvalidJob

_CHATTY = ("py4j", "botocore", "aiobotocore", "s3fs", "fsspec", "asyncio", "httpx", "httpcore")
"""Loggers whose INFO messages are not useful."""


class LogSettings(msgspec.Struct, frozen=True):
    """Levels, format and bounds. They travel to the workers with the job."""

    level: str = "INFO"
    levels: dict[str, str] = {}
    """Level of each logger by its name."""
    format: Literal["text", "json"] = "text"
    max_bytes: int = 10 * 2**20
    """Maximum bytes of a file before the next file starts."""
    max_files: int = 2
    """Number of kept files, including the current file."""

    @staticmethod
    def from_configuration(conf: Configuration) -> LogSettings:
        """Read the settings.

        Raises:
            InvalidJob: a level does not exist. The error names the logger.
        """
        levels = {name: _level(name, level) for name, level in conf.get(options.LOG_LEVELS).items()}
        return LogSettings(
            level=conf.get(options.LOG_LEVEL),
            levels=levels,
            format=cast("Literal['text', 'json']", conf.get(options.LOG_FORMAT)),
            max_bytes=conf.get(options.LOG_MAX_SIZE),
            max_files=conf.get(options.LOG_MAX_FILES),
        )

    def apply_levels(self) -> None:
        """Set the levels of this process's loggers."""
        logging.getLogger().setLevel(self.level)
        for name in _CHATTY:
            logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLevelName(self.level)))
        for name, level in self.levels.items():
            logging.getLogger("" if name == "root" else name).setLevel(level)


def _level(name: str, level: str) -> str:
    known = options.LOG_LEVEL_NAMES
    if level.upper() not in known:
        raise InvalidJob(
            f"{options.LOG_LEVELS.key} sets logger {name!r} to {level!r}, which is not a log level",
            remedy=f"use one of {', '.join(known)}",
        )
    return level.upper()
