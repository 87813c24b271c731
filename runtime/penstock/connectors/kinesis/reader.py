"""A thread for each shard, which reads ahead while its buffer has space."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.common.errors import PenstockError, SourceError
from penstock.connectors.core.aws import code_of
from penstock.connectors.kinesis.aggregated import deaggregated
from penstock.connectors.kinesis.place import WHOLE, Place, Record
from penstock.connectors.kinesis.retention import Retention, now_ms
from penstock.connectors.kinesis.stream import LOGGER, TRIM_HORIZON, shards_of
from penstock.connectors.messages.inbox import Background, Inbox

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.connectors.core.aws import AwsTarget

_PAUSE_S = 0.2
"""Pause in seconds between two reads. A shard allows five reads a second for all its readers together."""
_IDLE_S = 1.0
_MOST = 10_000
_AHEAD = 10_000
_AHEAD_BYTES = 8 * 1024 * 1024
_EMPTY_ANSWERS = 5
"""Number of empty answers from an iterator after which the record at the iterator's position counts as missing."""
_QUIET_MS = 600_000
"""Time in ms after lost records in which a job that continues does not check for further losses."""


class Shard(Background):
    """The reader of one shard, from a place on.

    Args:
        client: the stream's client. Other readers may share it.
        properties: the split's properties.
        accepts_loss: continue after lost records.
    """

    def __init__(
        self, target: AwsTarget, client: Any, properties: dict[str, Any], place: Place, *, accepts_loss: bool
    ) -> None:
        super().__init__()
        self._target = target
        self._stream, self._shard = properties["stream"], properties["shard"]
        self._start_ms = properties["start_ms"]
        self._hashes = range(int(properties["hashes"][0]), int(properties["hashes"][1]) + 1)
        self._accepts_loss = accepts_loss
        self._received = self._taken = place
        self._is_trimmed = False
        """Whether to continue with the oldest record that still exists."""
        self._has_warned = False
        self._client = client
        self._retention = Retention(target, self._client, self._stream, self._shard)
        self._inbox = Inbox[Record](self, lambda record: len(record.data))
        self._is_read = False
        self._start(f"kinesis {self._stream} {self._shard}", self._read)

    # --- the task's side --------------------------------------------------------------------------------------

    def take(self, most: int, most_bytes: int) -> list[Record]:
        """Return received records in order, without waiting.

        Raises:
            SourceError: the shard cannot be read any longer.
        """
        with self.changed:
            taken = self._inbox.take(most, most_bytes)
            if taken:
                last = taken[-1]
                sub = WHOLE if last.is_last else last.sub
                place = Place(last.sequence, sub, max(last.time, self._taken.read_to))
                self._taken = place if self._inbox else self._received
        return taken

    @property
    def place(self) -> Place:
        """Return the place after the taken records."""
        return self._taken

    @property
    def is_over(self) -> bool:
        """Return whether the shard was split or merged, and all its records were taken."""
        return self._is_read and not self._inbox

    @property
    def waiting(self) -> int:
        return len(self._inbox)

    def close(self) -> None:
        self._stop()

    # --- the thread -------------------------------------------------------------------------------------------

    def _explained(self, error: Exception) -> PenstockError:
        return self._target.explained(SourceError, f"shard {self._shard} cannot be read", error)

    def _read(self) -> None:
        iterator: str | None = None
        proves = False
        """Whether the iterator begins at the last record that was read. If this record still exists, no record is missing."""
        is_proved = False
        empty = 0
        while self._has_room():
            if iterator is None or (not (proves or is_proved) and self._may_have_lost()):
                iterator, proves = self._iterator()
                if iterator is None:
                    self._is_read = True
                    return
            sent_at = now_ms()
            answer = self._records_at(iterator)
            if answer is None:
                iterator, proves = None, False
                self._wait(_PAUSE_S)
                continue
            records, iterator, is_proved = answer["Records"], answer.get("NextShardIterator"), False
            behind = answer.get("MillisBehindLatest") or 0
            if proves and not records and iterator and empty < _EMPTY_ANSWERS:
                empty += 1
            elif proves and not (records and records[0]["SequenceNumber"] == self._received.after):
                self._lost(f"no longer has {self._received.after}, the last record that was read")
                iterator, proves, empty = None, False, 0
                continue
            else:
                is_proved, proves, empty = proves, False, 0
                self._put(records, sent_at, behind)
                if iterator is None:
                    self._is_read = True
                    return
            self._retention.warn_if_late(behind, self._is_over)
            self._wait(_PAUSE_S if records or behind or proves else _IDLE_S / 2)

    def _wait(self, seconds: float) -> None:
        with self.changed:
            self.changed.wait(seconds)

    def _may_have_lost(self) -> bool:
        return self._retention.is_past(self._received.read_to, self._is_over)

    def _is_over(self) -> bool:
        return self._is_closed

    def _retry(self, call: Callable[[], Any]) -> Any:
        return self._target.retry(SourceError, f"shard {self._shard} cannot be read", call, self._is_over)

    def _records_at(self, iterator: str) -> Any:
        """Return the answer for the iterator, or None if the iterator is no longer valid."""
        try:
            return self._retry(partial(self._get_records, iterator))
        except SourceError as error:
            if _code(error, "ExpiredIterator", "ResourceNotFound"):
                return None  # an iterator expires after five minutes
            raise

    def _get_records(self, iterator: str) -> Any:
        answer = self._client.get_records(ShardIterator=iterator, Limit=_MOST)
        _ = (
            answer["Records"],
            answer["MillisBehindLatest"],
        )  # a KeyError rejects an incomplete answer, which must not count as the end of the shard
        return answer

    def _iterator(self) -> tuple[str | None, bool]:
        """Return an iterator, or None if the shard has no more records. Also return whether the iterator proves that no record is
        missing.

        An iterator that begins at the last read record proves that no later record was dropped."""
        place = self._received
        proves = False
        where: dict[str, Any] = {"ShardIteratorType": "TRIM_HORIZON"}
        if place.after and not self._is_trimmed:
            proves = place.sub != WHOLE or self._may_have_lost()
            kind = "AT_SEQUENCE_NUMBER" if proves else "AFTER_SEQUENCE_NUMBER"
            where = {"ShardIteratorType": kind, "StartingSequenceNumber": place.after}
        elif not place.after:
            if self._may_have_lost():
                self._lost("may have dropped records before the first read")
            if self._start_ms != TRIM_HORIZON and not self._is_trimmed:
                where = {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": self._start_ms / 1000}
        try:
            return self._retry(partial(self._get_iterator, where)), proves
        except SourceError as error:
            return self._without(error)

    def _get_iterator(self, where: dict[str, Any]) -> str:
        found = self._client.get_shard_iterator(StreamName=self._stream, ShardId=self._shard, **where)
        return str(found["ShardIterator"])

    def _without(self, error: SourceError) -> tuple[str | None, bool]:
        """Handle a place without an iterator: the requested record or shard no longer exists."""
        place = self._received
        if _code(error, "InvalidArgument") and place.after and not self._is_trimmed:
            self._lost(f"does not know {place.after}, the last record that was read: the stream was created again")
            self._received = Place("", WHOLE, now_ms())
            return self._iterator()
        if not _code(error, "ResourceNotFound"):
            raise error
        if self._shard in (shard["ShardId"] for shard in shards_of(self._target, self._client, self._stream)):
            if not place.after or self._is_trimmed:
                raise error
            self._lost(f"no longer has {place.after}, the last record that was read")
            return self._iterator()
        if self._may_have_lost() or place.sub != WHOLE:
            self._lost("no longer has the shard")
        return None, False

    def _lost(self, reason: str) -> None:
        """Handle the loss of records that the stream has deleted before they were read.

        Raises:
            SourceError: the job does not continue after lost records.
        """
        place = self._received
        if not self._accepts_loss:
            raise self._loss(reason, place)
        LOGGER.warning("%s; the job continues with the existing records", self._loss(reason, place))
        self._is_trimmed = True
        read_to = max(place.read_to, self._retention.horizon() + _QUIET_MS)
        with self.changed:
            self._received = Place(place.after, WHOLE, read_to)
            self._settle()

    def _loss(self, reason: str, place: Place) -> SourceError:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(place.read_to / 1000))
        return SourceError(
            f"{self._target.shown}: shard {self._shard} {reason}; the job has read records up to {since} UTC. The stream keeps records for "
            f"{self._retention.hours} h, so records may be lost",
            remedy="set the retention above the time that the job may be stopped, or continue without them: on_lost='continue'",
        )

    def _put(self, records: list[dict[str, Any]], sent_at: int, behind_ms: int) -> None:
        """Buffer received records, without those that were read before."""
        after, sub, read_to = self._received
        decoded: list[Record] = []
        for entry in records:
            if after and int(entry["SequenceNumber"]) <= int(after):
                if entry["SequenceNumber"] != after or sub == WHOLE:
                    continue
                decoded += [record for record in self._records(entry) if record.sub > sub]
            else:
                decoded += self._records(entry)
        if records:
            last = records[-1]["SequenceNumber"]
            after = last if not after or int(last) > int(after) else after
            read_to = max(read_to, _time(records[-1]))
            self._is_trimmed = False
        with self.changed:
            self._received = Place(after, WHOLE if records else sub, read_to if behind_ms else max(read_to, sent_at))
            self._inbox.put(decoded)
            self._settle()

    def _settle(self) -> None:
        if not self._inbox:
            self._taken = self._received

    def _records(self, entry: dict[str, Any]) -> list[Record]:
        sequence, data, time = entry["SequenceNumber"], bytes(entry["Data"]), _time(entry)
        parts = deaggregated(data)
        if parts is None:
            return [Record(sequence, entry["PartitionKey"], time, data)]
        records = [
            Record(sequence, part.key, time, part.data, sub)
            for sub, part in enumerate(parts)
            if part.hash in self._hashes
        ]
        if len(records) < len(parts) and not self._has_warned:
            self._has_warned = True
            LOGGER.warning(
                "%s: %d of %d records in aggregate %s do not belong to shard %s by their keys. They are skipped here, because the "
                "Kinesis "
                "Producer Library sends them again to their own shard. This is logged once",
                *(self._target.shown, len(parts) - len(records), len(parts), sequence, self._shard),
            )
        return [record._replace(is_last=record is records[-1]) for record in records]

    def _has_room(self) -> bool:
        """Wait for space in the buffer. Return False if the reader was closed."""
        with self.changed:
            while not self._is_closed and (len(self._inbox) >= _AHEAD or self._inbox.bytes >= _AHEAD_BYTES):
                self.changed.wait()
            return not self._is_closed


def _time(entry: dict[str, Any]) -> int:
    arrived = entry.get("ApproximateArrivalTimestamp")
    return now_ms() if arrived is None else int(arrived.timestamp() * 1000)


def _code(error: SourceError, *parts: str) -> bool:
    cause = error.__cause__
    return isinstance(cause, Exception) and any(part in code_of(cause) for part in parts)
