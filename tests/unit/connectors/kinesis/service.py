"""A fake Kinesis with one shard. Like Amazon's, it drops old records without an error."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from botocore.exceptions import ClientError

from penstock.connectors.core.source import ReadBounds

HOUR = 3_600_000
ALL_HASHES = ("0", str(2**128 - 1))


def refusal(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": {}}, "Operation")


def now() -> int:
    return int(time.time() * 1000)


class Kept(NamedTuple):
    number: str
    time: int
    data: bytes


class Kinesis:
    def __init__(self) -> None:
        self.records: list[Kept] = []
        self.hours = 24
        self.hashes = ALL_HASHES
        self.count = 10**55
        self.is_listed = True
        self.describes: Exception | None = None
        self.calls: list[str] = []
        self.stands = False
        """Whether an iterator at a dropped number returns only empty responses."""

    def put(self, data: bytes, ago: int = 0) -> str:
        """Add a record.

        Args:
            ago: age of the record in ms.
        """
        self.count += 10**40
        self.records.append(Kept(str(self.count), now() - ago, data))
        return self.records[-1].number

    def drop(self) -> None:
        self.records = [record for record in self.records if record.time > now() - self.hours * HOUR]

    def describe_stream_summary(self, **_: Any) -> Any:
        self.calls.append("describe")
        if self.describes is not None:
            raise self.describes
        return {"StreamDescriptionSummary": {"RetentionPeriodHours": self.hours}}

    def list_shards(self, **_: Any) -> Any:
        hashes = {"StartingHashKey": self.hashes[0], "EndingHashKey": self.hashes[1]}
        return {"Shards": [{"ShardId": "shard-0", "HashKeyRange": hashes}] if self.is_listed else []}

    def get_shard_iterator(self, **request: Any) -> Any:
        if not self.is_listed:
            raise refusal("ResourceNotFoundException")
        kind = request["ShardIteratorType"]
        self.calls.append(kind)
        number = int(request.get("StartingSequenceNumber", 0)) + (kind == "AFTER_SEQUENCE_NUMBER")
        if kind == "AT_TIMESTAMP":
            number = min(
                (int(each.number) for each in self.records if each.time >= request["Timestamp"] * 1000), default=0
            )
        if self.stands and number and not any(int(each.number) == number for each in self.records):
            return {"ShardIterator": "stands"}
        return {"ShardIterator": str(number)}

    def get_records(self, **request: Any) -> Any:
        iterator = request["ShardIterator"]
        if iterator == "stands":
            return {"Records": [], "NextShardIterator": iterator, "MillisBehindLatest": self.hours * HOUR}
        found = [each for each in self.records if int(each.number) >= int(iterator)]
        records = [
            {
                "SequenceNumber": each.number,
                "PartitionKey": "a",
                "Data": each.data,
                "ApproximateArrivalTimestamp": datetime.fromtimestamp(each.time / 1000, UTC),
            }
            for each in found
        ]
        following = str(int(found[-1].number) + 1) if found else iterator
        return {"Records": records, "NextShardIterator": following, "MillisBehindLatest": 0}


def read_until(reader: Any, count: int, most: int = 10_000, until: Callable[[], bool] | None = None) -> list[Any]:
    """Return the records read until `count` of them have arrived or `until` returns True."""
    found: list[Any] = []
    deadline = time.monotonic() + 10
    while (len(found) < count if until is None else not until()) and time.monotonic() < deadline:
        batch = reader.read(ReadBounds(max_records=most))
        found += [] if batch is None else batch.rows().values
        time.sleep(0.002)
    return found
