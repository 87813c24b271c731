"""A thread for each shard, which reads ahead as far as there is room."""

from __future__ import annotations

import threading
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.common.errors import PenstockError, SourceError
from penstock.connectors.aws import code_of
from penstock.connectors.kinesis.shards import TRIM_HORIZON

if TYPE_CHECKING:
    from penstock.connectors.aws import AwsTarget

_PAUSE_S = 0.2
"""Five reads a second are what a shard gives, to all its readers."""
_IDLE_S = 1.0
_MOST = 10_000
_AHEAD = 10_000
_AHEAD_BYTES = 8 * 1024 * 1024
_AGGREGATED = b"\xf3\x89\x9a\xc2"
"""How what the Kinesis Producer Library has put together begins."""


class Record(NamedTuple):
    sequence: str
    key: str
    time: int
    """When it came to the stream, ms."""
    data: bytes

    def value(self) -> bytes:
        return self.data


class Shard:
    """One shard, from a position.

    Args:
        sequence: number of the last record that was read; "": none was.
        start_ms: where it begins then.
    """

    def __init__(self, target: AwsTarget, stream: str, shard: str, sequence: str, start_ms: int) -> None:
        self._target = target
        self._stream, self._shard = stream, shard
        self._sequence = sequence
        """Of the last record that was received."""
        self._start_ms = start_ms
        self._client = target.client(SourceError)
        self._inbox: deque[Record] = deque()
        self._bytes = 0
        self._changed = threading.Condition()
        self._error: PenstockError | None = None
        self._is_closed = False
        self._is_read = False
        threading.Thread(target=self._run, name=f"kinesis {stream} {shard}", daemon=True).start()

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
                self._changed.notify_all()
            elif self._error is not None:
                raise self._error
        return taken

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
        while self._has_room():
            if iterator is None:
                iterator = self._asked(self._iterator)
            try:
                answer = self._asked(partial(self._client.get_records, ShardIterator=iterator, Limit=_MOST))
            except SourceError as error:
                cause = error.__cause__
                if not isinstance(cause, Exception) or "ExpiredIterator" not in code_of(cause):
                    raise
                iterator = None  # it is good for five minutes
                continue
            self._put(answer["Records"])
            iterator = answer.get("NextShardIterator")
            if iterator is None:
                self._is_read = True
                return
            with self._changed:
                self._changed.wait(_PAUSE_S if answer["Records"] or answer.get("MillisBehindLatest") else _IDLE_S / 2)

    def _asked(self, call: Any) -> Any:
        return self._target.asked(SourceError, f"shard {self._shard} cannot be read", call, lambda: self._is_closed)

    def _iterator(self) -> str:
        where: dict[str, Any] = {"ShardIteratorType": "TRIM_HORIZON"}
        if self._sequence:
            where = {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": self._sequence}
        elif self._start_ms != TRIM_HORIZON:
            where = {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": self._start_ms / 1000}
        found = self._client.get_shard_iterator(StreamName=self._stream, ShardId=self._shard, **where)
        return str(found["ShardIterator"])

    def _put(self, records: list[dict[str, Any]]) -> None:
        made = [self._record(record) for record in records]
        with self._changed:
            self._inbox.extend(made)
            self._bytes += sum(len(record.data) for record in made)
        if made:
            self._sequence = made[-1].sequence

    def _record(self, told: dict[str, Any]) -> Record:
        data = bytes(told["Data"])
        if data.startswith(_AGGREGATED):
            raise SourceError(
                f"{self._target.shown} has records that the Kinesis Producer Library has aggregated ({told['SequenceNumber']}), which are not taken apart here",
                remedy="switch AggregationEnabled off in the producer",
            )
        arrived = told.get("ApproximateArrivalTimestamp")
        at = time.time() if arrived is None else arrived.timestamp()
        return Record(told["SequenceNumber"], told["PartitionKey"], int(at * 1000), data)

    def _has_room(self) -> bool:
        """Wait for it; False: nobody reads any more."""
        with self._changed:
            while not self._is_closed and (len(self._inbox) >= _AHEAD or self._bytes >= _AHEAD_BYTES):
                self._changed.wait()
            return not self._is_closed
