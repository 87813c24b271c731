"""A thread for each shard, which reads ahead as far as there is room."""

from __future__ import annotations

import threading
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.common.errors import PenstockError, SourceError
from penstock.connectors.aws import code_of
from penstock.connectors.kinesis.aggregated import taken_apart
from penstock.connectors.kinesis.place import WHOLE, Place
from penstock.connectors.kinesis.retention import Retention, now_ms
from penstock.connectors.kinesis.shards import TRIM_HORIZON, shards_of
from penstock.connectors.kinesis.stream import LOGGER

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.connectors.aws import AwsTarget

_PAUSE_S = 0.2
"""Five reads a second are what a shard gives, to all its readers."""
_IDLE_S = 1.0
_MOST = 10_000
_AHEAD = 10_000
_AHEAD_BYTES = 8 * 1024 * 1024
_EMPTY_ANSWERS = 5
"""So often an answer without records may come before the one that the iterator points at, until that counts as gone."""
_QUIET_MS = 600_000
"""For so long the next loss is not looked for, where the job goes on over them."""


class Record(NamedTuple):
    sequence: str
    key: str
    time: int
    """When it came to the stream, ms."""
    data: bytes
    sub: int = 0
    is_last: bool = True
    """Of those that the producer has put together."""

    def value(self) -> bytes:
        return self.data


class Shard:
    """One shard, from a place.

    Args:
        client: of the stream; others may use it, too.
        told: the split's properties.
        goes_on: over records that were lost.
    """

    def __init__(self, target: AwsTarget, client: Any, told: dict[str, Any], place: Place, *, goes_on: bool) -> None:
        self._target = target
        self._stream, self._shard = told["stream"], told["shard"]
        self._start_ms = told["start_ms"]
        self._hashes = range(int(told["hashes"][0]), int(told["hashes"][1]) + 1)
        self._goes_on = goes_on
        self._received = self._taken = place
        self._is_trimmed = False
        """It goes on with the oldest that is there."""
        self._is_told = False
        self._client = client
        self._retention = Retention(target, self._client, self._stream, self._shard)
        self._inbox: deque[Record] = deque()
        self._bytes = 0
        self._changed = threading.Condition()
        self._error: PenstockError | None = None
        self._is_closed = False
        self._is_read = False
        threading.Thread(target=self._run, name=f"kinesis {self._stream} {self._shard}", daemon=True).start()

    # --- the task's side --------------------------------------------------------------------------------------

    def take(self, most: int, most_bytes: int) -> list[Record]:
        """What has come, in order; does not wait.

        Raises:
            SourceError: the shard cannot be read any more.
        """
        taken: list[Record] = []
        size = 0
        with self._changed:
            while self._inbox and len(taken) < most and size < most_bytes:
                taken.append(self._inbox.popleft())
                size += len(taken[-1].data)
            self._bytes -= size
            if taken:
                last = taken[-1]
                sub = WHOLE if last.is_last else last.sub
                place = Place(last.sequence, sub, max(last.time, self._taken.read_to))
                self._taken = place if self._inbox else self._received
                self._changed.notify_all()
            elif self._error is not None:
                raise self._error
        return taken

    @property
    def place(self) -> Place:
        """Behind what was taken."""
        return self._taken

    @property
    def is_over(self) -> bool:
        """It was split or merged, and all of it was taken."""
        return self._is_read and not self._inbox

    @property
    def waiting(self) -> int:
        return len(self._inbox)

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    # --- the thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._read()
        except PenstockError as error:
            self._error = error
        except Exception as error:  # nobody else would hear of it
            self._error = self._target.explained(SourceError, f"shard {self._shard} cannot be read", error)

    def _read(self) -> None:
        iterator: str | None = None
        proves = False
        """The last record that was read is to come first."""
        is_proved = False
        empty = 0
        while self._has_room():
            if iterator is None or (not (proves or is_proved) and self._may_have_lost()):
                iterator, proves = self._iterator()
                if iterator is None:
                    self._is_read = True
                    return
            asked_at = now_ms()
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
                self._lost(f"does not have {self._received.after} any more, the last record that was read")
                iterator, proves, empty = None, False, 0
                continue
            else:
                is_proved, proves, empty = proves, False, 0
                self._put(records, asked_at, behind)
                if iterator is None:
                    self._is_read = True
                    return
            self._retention.look(behind, self._is_over)
            self._wait(_PAUSE_S if records or behind or proves else _IDLE_S / 2)

    def _wait(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait(seconds)

    def _may_have_lost(self) -> bool:
        return self._retention.is_past(self._received.read_to, self._is_over)

    def _is_over(self) -> bool:
        return self._is_closed

    def _asked(self, call: Callable[[], Any]) -> Any:
        return self._target.asked(SourceError, f"shard {self._shard} cannot be read", call, self._is_over)

    def _records_at(self, iterator: str) -> Any:
        """None: the iterator is good no more."""
        try:
            return self._asked(partial(self._get_records, iterator))
        except SourceError as error:
            if _code(error, "ExpiredIterator", "ResourceNotFound"):
                return None  # it is good for five minutes
            raise

    def _get_records(self, iterator: str) -> Any:
        answer = self._client.get_records(ShardIterator=iterator, Limit=_MOST)
        _ = answer["Records"], answer["MillisBehindLatest"]  # else it is none, and the shard is not at its end
        return answer

    def _iterator(self) -> tuple[str | None, bool]:
        """None: there is nothing to read any more. Whether it points at the last record that was read, as a proof that nothing behind that is lost."""
        place = self._received
        proves = False
        where: dict[str, Any] = {"ShardIteratorType": "TRIM_HORIZON"}
        if place.after and not self._is_trimmed:
            proves = place.sub != WHOLE or self._may_have_lost()
            kind = "AT_SEQUENCE_NUMBER" if proves else "AFTER_SEQUENCE_NUMBER"
            where = {"ShardIteratorType": kind, "StartingSequenceNumber": place.after}
        elif not place.after:
            if self._may_have_lost():
                self._lost("may have dropped records, and none was read before")
            if self._start_ms != TRIM_HORIZON and not self._is_trimmed:
                where = {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": self._start_ms / 1000}
        try:
            return self._asked(partial(self._get_iterator, where)), proves
        except SourceError as error:
            return self._without(error)

    def _get_iterator(self, where: dict[str, Any]) -> str:
        found = self._client.get_shard_iterator(StreamName=self._stream, ShardId=self._shard, **where)
        return str(found["ShardIterator"])

    def _without(self, error: SourceError) -> tuple[str | None, bool]:
        """When there is no iterator: what was asked for is gone."""
        place = self._received
        if _code(error, "InvalidArgument") and place.after and not self._is_trimmed:
            self._lost(f"does not know {place.after}, the last record that was read: it was made anew")
            self._received = Place("", WHOLE, now_ms())
            return self._iterator()
        if not _code(error, "ResourceNotFound"):
            raise error
        if self._shard in (shard["ShardId"] for shard in shards_of(self._target, self._client, self._stream)):
            if not place.after or self._is_trimmed:
                raise error
            self._lost(f"does not have {place.after} any more, the last record that was read")
            return self._iterator()
        if self._may_have_lost() or place.sub != WHOLE:
            self._lost("does not have the shard any more")
        return None, False

    def _lost(self, told: str) -> None:
        """
        Raises:
            SourceError: the job does not go on over it.
        """
        place = self._received
        if not self._goes_on:
            raise self._loss(told, place)
        LOGGER.warning("%s; it goes on with what is there", self._loss(told, place))
        self._is_trimmed = True
        read_to = max(place.read_to, self._retention.horizon() + _QUIET_MS)
        with self._changed:
            self._received = Place(place.after, WHOLE, read_to)
            self._settle()

    def _loss(self, told: str, place: Place) -> SourceError:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(place.read_to / 1000))
        return SourceError(
            f"{self._target.shown}: shard {self._shard} {told}; the job has read what came until {since} UTC, and the stream keeps records for "
            f"{self._retention.hours} h: records may be lost",
            remedy="let the stream keep records for longer than the job may stand still, or go on without them: on_lost='continue'",
        )

    def _put(self, records: list[dict[str, Any]], asked_at: int, behind_ms: int) -> None:
        """What has come, without what was read before."""
        after, sub, read_to = self._received
        made: list[Record] = []
        for told in records:
            if after and int(told["SequenceNumber"]) <= int(after):
                if told["SequenceNumber"] != after or sub == WHOLE:
                    continue
                made += [record for record in self._records(told) if record.sub > sub]
            else:
                made += self._records(told)
        if records:
            last = records[-1]["SequenceNumber"]
            after = last if not after or int(last) > int(after) else after
            read_to = max(read_to, _time(records[-1]))
            self._is_trimmed = False
        with self._changed:
            self._received = Place(after, WHOLE if records else sub, read_to if behind_ms else max(read_to, asked_at))
            self._inbox.extend(made)
            self._bytes += sum(len(record.data) for record in made)
            self._settle()

    def _settle(self) -> None:
        if not self._inbox:
            self._taken = self._received

    def _records(self, told: dict[str, Any]) -> list[Record]:
        sequence, data, time = told["SequenceNumber"], bytes(told["Data"]), _time(told)
        parts = taken_apart(data)
        if parts is None:
            return [Record(sequence, told["PartitionKey"], time, data)]
        made = [
            Record(sequence, part.key, time, part.data, sub)
            for sub, part in enumerate(parts)
            if part.hash in self._hashes
        ]
        if len(made) < len(parts) and not self._is_told:
            self._is_told = True
            LOGGER.warning(
                "%s: %d of %d records that a producer has put together as %s are not of shard %s by their keys, and are left to the one whose they are, to which the "
                "Kinesis Producer Library sends them again; this is told once",
                *(self._target.shown, len(parts) - len(made), len(parts), sequence, self._shard),
            )
        return [record._replace(is_last=record is made[-1]) for record in made]

    def _has_room(self) -> bool:
        """Wait for it; False: nobody reads any more."""
        with self._changed:
            while not self._is_closed and (len(self._inbox) >= _AHEAD or self._bytes >= _AHEAD_BYTES):
                self._changed.wait()
            return not self._is_closed


def _time(told: dict[str, Any]) -> int:
    arrived = told.get("ApproximateArrivalTimestamp")
    return now_ms() if arrived is None else int(arrived.timestamp() * 1000)


def _code(error: SourceError, *parts: str) -> bool:
    cause = error.__cause__
    return isinstance(cause, Exception) and any(part in code_of(cause) for part in parts)
