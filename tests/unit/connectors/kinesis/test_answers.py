"""Responses of Kinesis that are partial, temporary errors, or too late."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError

from penstock.common.errors import SinkError, SourceError
from penstock.common.serialization import SimpleStringSchema
from penstock.connectors.core.aws import AwsTarget
from penstock.connectors.core.sink import WriterContext
from penstock.connectors.core.source import Split
from penstock.connectors.kinesis.place import WHOLE, Place
from penstock.connectors.kinesis.reader import Shard
from penstock.connectors.kinesis.stream import TRIM_HORIZON, stream_of
from penstock.datastream.connectors.kinesis import KinesisSource, KinesisStreamsSink


def refusal(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": {}}, "Operation")


def shard_named(name: str, **parents: str) -> dict[str, Any]:
    return {"ShardId": name, "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": str(2**128 - 1)}, **parents}


class Service:
    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.sent: list[bytes] = []
        self.iterators: list[dict[str, Any]] = []
        self.shards: list[dict[str, Any]] = []

    def _next(self) -> Any:
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def put_records(self, **request: Any) -> Any:
        refused = self._next() or ()
        results = [
            {"ErrorCode": "ProvisionedThroughputExceededException"} if n in refused else {"SequenceNumber": str(n)}
            for n in range(len(request["Records"]))
        ]
        self.sent += [record["Data"] for n, record in enumerate(request["Records"]) if n not in refused]
        return {"Records": results}

    def get_shard_iterator(self, **request: Any) -> Any:
        self.iterators.append(request)
        return {"ShardIterator": "it"}

    def get_records(self, **_: Any) -> Any:
        numbers = self._next()
        if numbers == "end":
            return {"Records": [], "MillisBehindLatest": 0}
        now = datetime.now(UTC)
        records = [
            {"SequenceNumber": str(n), "PartitionKey": "k", "Data": b"%d" % n, "ApproximateArrivalTimestamp": now}
            for n in numbers or ()
        ]
        return {"Records": records, "NextShardIterator": "it", "MillisBehindLatest": 1}

    def list_shards(self, **_: Any) -> Any:
        return {"Shards": self.shards}


@pytest.fixture
def using(monkeypatch: pytest.MonkeyPatch) -> Any:
    def use(service: Service) -> Service:
        monkeypatch.setattr(AwsTarget, "client", lambda *_, **__: service)
        return service

    return use


def written(*values: str, **options: Any) -> None:
    builder = KinesisStreamsSink.builder().set_stream_name("s").set_serialization_schema(SimpleStringSchema())
    builder.set_partition_key_generator(lambda value: value)
    for name, value in options.items():
        getattr(builder, f"set_{name}")(value)
    writer = builder.build().create_writer(WriterContext(0, 1, 0, "out", "job"), [])
    try:
        writer.write(list(values), None, 0)
        writer.prepare_commit(1)
    finally:
        writer.close()


def test_only_records_that_were_not_accepted_are_sent_again(using: Any) -> None:
    service = using(Service(refusal("ProvisionedThroughputExceededException"), {0, 2}, {1}))
    written("a", "b", "c", "d")
    assert service.sent == [b"b", b"d", b"a", b"c"]


def test_fail_on_error_fails_the_job_at_once(using: Any) -> None:
    using(Service({1}))
    with pytest.raises(SinkError, match="rejected 1 records: ProvisionedThroughputExceeded"):
        written("a", "b", fail_on_error=True)


def test_requests_have_the_configured_sizes(using: Any) -> None:
    service = using(Service())
    sizes: list[int] = []
    real = service.put_records

    def noting(**request: Any) -> Any:
        sizes.append(len(request["Records"]))
        return real(**request)

    service.put_records = noting
    written(*"abcdefg", max_batch_size=3, max_in_flight_requests=1)
    assert sizes == [3, 3, 1]
    written("aa", "bbb", "c", max_batch_size_in_bytes=8, max_in_flight_requests=1)
    assert sizes[3:] == [1, 2]


def read(service: Service, count: int, sequence: str = "") -> tuple[Shard, list[int]]:
    properties = {"stream": "s", "shard": "shard-0", "start_ms": TRIM_HORIZON, "hashes": ["0", str(2**128 - 1)]}
    shard = Shard(
        stream_of("s", "", None, 5.0),
        service,
        properties,
        Place(sequence, WHOLE, int(time.time() * 1000)),
        accepts_loss=False,
    )
    found: list[int] = []
    until = time.monotonic() + 10
    while len(found) < count and time.monotonic() < until:
        found += [int(record.data) for record in shard.take(100, 1 << 20)]
        time.sleep(0.005)
    return shard, found


def test_an_expired_iterator_is_replaced_after_the_last_record(using: Any) -> None:
    service = using(
        Service(
            [1, 2], refusal("ExpiredIteratorException"), refusal("ProvisionedThroughputExceededException"), [3], "end"
        )
    )
    shard, found = read(service, 3)
    assert found == [1, 2, 3]
    assert [request["ShardIteratorType"] for request in service.iterators] == ["TRIM_HORIZON", "AFTER_SEQUENCE_NUMBER"]
    assert service.iterators[1]["StartingSequenceNumber"] == "2"
    until = time.monotonic() + 10
    while not shard.is_over and time.monotonic() < until:
        time.sleep(0.01)
    assert shard.is_over


def test_an_incomplete_response_does_not_end_a_shard(using: Any) -> None:
    """botocore returns an incomplete response as a result without its fields."""
    service = using(Service([1]))
    real = service.get_records
    halves: list[dict[str, Any]] = [{}, {"Records": []}]

    def half(**request: Any) -> Any:
        return halves.pop(0) if halves else real(**request)

    service.get_records = half
    shard, found = read(service, 1)
    assert found == [1]
    assert not shard.is_over
    shard.close()


def test_a_permanent_refusal_fails_the_reader(using: Any) -> None:
    service = using(Service(refusal("AccessDeniedException")))
    with pytest.raises(SourceError, match=r"a right is missing \(AccessDeniedException\)"):
        read(service, 1, "7")
    assert service.iterators[0]["StartingSequenceNumber"] == "7"


def test_child_shards_wait_for_their_parents_and_deleted_shards_are_forgotten(using: Any) -> None:
    service = using(Service())
    shard = shard_named("p")
    children = [shard_named("c1", ParentShardId="p"), shard_named("c2", ParentShardId="p")]
    merged = shard_named("m", ParentShardId="c1", AdjacentParentShardId="c2")
    service.shards = [shard, *children, merged, shard_named("orphan", ParentShardId="long gone")]
    source = KinesisSource("s", SimpleStringSchema(), start="trim_horizon")
    enumerator = source.create_enumerator()

    splits: dict[str, Split] = {}

    def found() -> list[str]:
        new = enumerator.discover()
        splits.update({split.properties["shard"]: split for split in new})
        return [split.properties["shard"] for split in new]

    def end(shard: str, read_to: int) -> None:
        enumerator.on_split_ended(splits[shard], Place("7", WHOLE, read_to).position())

    assert found() == ["p", "orphan"]
    since = splits["p"].properties["since"]
    assert abs(since - time.time() * 1000) < 60_000
    end("p", since + 5)
    again = source.create_enumerator()
    again.restore(json.loads(json.dumps(enumerator.snapshot())))
    enumerator = again
    assert found() == ["c1", "c2"]
    assert splits["c1"].properties["since"] == since + 5  # the child's records are newer than all of its parent's
    end("c2", since + 7)
    assert found() == []
    end("c1", since + 9)
    assert found() == ["m"]
    assert splits["m"].properties["since"] == since + 9
    service.shards = [merged]
    assert found() == []
    assert enumerator.snapshot()["found"] == ["s/m"]
    assert enumerator.snapshot()["finished"] == {}
