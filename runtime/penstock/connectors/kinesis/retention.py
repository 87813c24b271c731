"""How long a stream keeps records, and whether it may have dropped unread records.

Kinesis does not report records that it has dropped. Three facts are known: the time up to which all records were read
(`Place.read_to`), the stream's retention, and whether the last read record still exists. Records may be lost only if
the read time is older than the retention and the last read record no longer exists.
"""

from __future__ import annotations

import math
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.common.errors import SourceError
from penstock.connectors.core.aws import code_of
from penstock.connectors.kinesis.stream import LOGGER

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.connectors.core.aws import AwsTarget

HOUR_MS = 3_600_000
LEAST_MS = 24 * HOUR_MS
"""Minimum retention of a stream, in ms."""
_QUERY_MS = 600_000
_WARNED_MS = HOUR_MS


def now_ms() -> int:
    return int(time.time() * 1000)


class Retention:
    """The retention of a stream, for a shard's reader.

    It queries the service only if the reader is behind by half of the minimum retention."""

    def __init__(self, target: AwsTarget, client: Any, stream: str, shard: str) -> None:
        self._target = target
        self._client = client
        self._stream, self._shard = stream, shard
        self._kept_ms = LEAST_MS
        self._queried_at = self._warned_at = -math.inf
        """Times by the monotonic clock, in ms."""

    def is_past(self, read_to: int, is_over: Callable[[], bool]) -> bool:
        """Return whether the stream may have dropped records that arrived after `read_to` (ms)."""
        age = now_ms() - read_to
        return age > LEAST_MS and age > self._kept(is_over)

    def horizon(self) -> int:
        """Return the time in ms before which the stream has dropped all records."""
        return now_ms() - self._kept_ms

    @property
    def hours(self) -> int:
        return self._kept_ms // HOUR_MS

    def warn_if_late(self, behind_ms: int, is_over: Callable[[], bool]) -> None:
        """Warn, at most once an hour, if the reader is so far behind that records may be dropped before it reads them."""
        now = time.monotonic() * 1000
        if behind_ms * 2 <= LEAST_MS or now - self._warned_at < _WARNED_MS or behind_ms * 2 <= self._kept(is_over):
            return
        self._warned_at = now
        LOGGER.warning(
            "%s: shard %s is read %.1f h behind, and the stream drops records after %d h. Increase the job's parallelism or the stream's "
            "retention",
            self._target.shown,
            self._shard,
            behind_ms / HOUR_MS,
            self.hours,
        )

    def _kept(self, is_over: Callable[[], bool]) -> int:
        now = time.monotonic() * 1000
        if now - self._queried_at >= _QUERY_MS:
            query = partial(self._client.describe_stream_summary, StreamName=self._stream)
            try:
                answer = self._target.retry(SourceError, "cannot be described", query, is_over)
                self._kept_ms = int(answer["StreamDescriptionSummary"]["RetentionPeriodHours"]) * HOUR_MS
            except SourceError as error:
                cause = error.__cause__
                if not isinstance(cause, Exception) or "AccessDenied" not in code_of(cause):
                    raise
                LOGGER.warning("%s; assuming a retention of 24 h", error)
            self._queried_at = now
        return self._kept_ms
