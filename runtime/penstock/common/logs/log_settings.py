"""What the configuration says of logging."""

from __future__ import annotations

import logging
from typing import Literal, cast

import msgspec

from penstock.common.config import options
from penstock.common.configuration import Configuration
from penstock.common.errors import InvalidJob

_CHATTY = ("py4j", "botocore", "aiobotocore", "s3fs", "fsspec", "asyncio", "httpx", "httpcore")
"""Loggers that say at INFO what nobody asked for."""


class LogSettings(msgspec.Struct, frozen=True):
    """Levels, form and bounds; travels to the workers with the job."""

    level: str = "INFO"
    levels: dict[str, str] = {}
    """By logger."""
    format: Literal["text", "json"] = "text"
    max_bytes: int = 10 * 2**20
    """Of a file, before it begins anew."""
    max_files: int = 2
    """How many are kept of each, the one that is written among them."""

    @staticmethod
    def from_configuration(conf: Configuration) -> LogSettings:
        """
        Raises:
            InvalidJob: a level that there is not; names the logger.
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
        """To the loggers of this process."""
        logging.getLogger().setLevel(self.level)
        for name in _CHATTY:
            logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLevelName(self.level)))
        for name, level in self.levels.items():
            logging.getLogger("" if name == "root" else name).setLevel(level)


def _level(name: str, level: str) -> str:
    known = options.LOG_LEVEL_NAMES
    if level.upper() not in known:
        raise InvalidJob(
            f"{options.LOG_LEVELS.key} gives logger {name!r} level {level!r}, which there is not",
            remedy=f"give one of {', '.join(known)}",
        )
    return level.upper()
