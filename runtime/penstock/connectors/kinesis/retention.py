"""How long a stream keeps records, and whether some may be gone that nobody has read.

Kinesis tells of no record that it has dropped. What can be known: until when all was read (`Place.read_to`), how long the stream keeps, and whether the
last record that was read is still there, for which it is asked. Only if the first is longer ago than the second and the third is gone, too, something may be lost.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.common.errors import SourceError
from penstock.connectors.aws import code_of
from penstock.connectors.kinesis.stream import LOGGER

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.connectors.aws import AwsTarget

HOUR_MS = 3_600_000
LEAST_MS = 24 * HOUR_MS
"""No stream keeps for less."""
_ASKED_MS = 600_000
_WARNED_MS = HOUR_MS


def now_ms() -> int:
    return int(time.time() * 1000)


class Retention:
    """Of a stream, as a shard's reader needs it: it is asked only once a reader is behind by half of what every stream keeps."""

    def __init__(self, target: AwsTarget, client: Any, stream: str, shard: str) -> None:
        self._target = target
        self._client = client
        self._stream, self._shard = stream, shard
        self._kept_ms = LEAST_MS
        self._asked_at = 0
        self._warned_at = 0

    def is_past(self, read_to: int, is_over: Callable[[], bool]) -> bool:
        """Whether the stream may have dropped records that came after this time, ms."""
        age = now_ms() - read_to
        return age > LEAST_MS and age > self._kept(is_over)

    def horizon(self) -> int:
        """What came before is gone, ms."""
        return now_ms() - self._kept_ms

    @property
    def hours(self) -> int:
        return self._kept_ms // HOUR_MS

    def look(self, behind_ms: int, is_over: Callable[[], bool]) -> None:
        """Warn, once an hour, if a reader is so far behind that records may be gone before it comes to them."""
        now = now_ms()
        if behind_ms * 2 <= LEAST_MS or now - self._warned_at < _WARNED_MS or behind_ms * 2 <= self._kept(is_over):
            return
        self._warned_at = now
        LOGGER.warning(
            "%s: shard %s is read %.1f h behind, and the stream drops records after %d h: give the job more parallelism, or let the stream keep longer",
            self._target.shown,
            self._shard,
            behind_ms / HOUR_MS,
            self.hours,
        )

    def _kept(self, is_over: Callable[[], bool]) -> int:
        now = now_ms()
        if now - self._asked_at >= _ASKED_MS:
            ask = partial(self._client.describe_stream_summary, StreamName=self._stream)
            try:
                told = self._target.asked(SourceError, "cannot be described", ask, is_over)
                self._kept_ms = int(told["StreamDescriptionSummary"]["RetentionPeriodHours"]) * HOUR_MS
            except SourceError as error:
                cause = error.__cause__
                if not isinstance(cause, Exception) or "AccessDenied" not in code_of(cause):
                    raise
                LOGGER.warning("%s; it is taken to keep records for 24 h", error)
            self._asked_at = now
        return self._kept_ms
