"""Records that the Kinesis Producer Library has aggregated are split, and a reader may stop in the middle of an aggregate."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from penstock.common.serialization import SimpleStringSchema
from penstock.connectors.core.aws import AwsTarget
from penstock.connectors.core.source import ReaderContext, Split
from penstock.connectors.kinesis.aggregated import MAGIC, UserRecord, deaggregated, hash_of
from penstock.datastream.connectors.kinesis import KinesisSource
from tests.unit.connectors.kinesis.service import ALL_HASHES, Kinesis, read_until


def message(records: list[tuple[str, str | None, bytes]], **extra: Any) -> bytes:
    """Return an aggregate of the library, encoded with Google's protobuf."""
    found: bytes = _message_class()(
        partition_key_table=[key for key, _, _ in records],
        explicit_hash_key_table=[hash for _, hash, _ in records if hash is not None],
        records=[
            {"partition_key_index": n, "data": data, "tags": [{"key": "t", "value": "v"}]}
            | ({} if hash is None else {"explicit_hash_key_index": sum(h is not None for _, h, _ in records[:n])})
            for n, (_, hash, data) in enumerate(records)
        ],
        **extra,
    ).SerializeToString()
    return found


def aggregated(*records: tuple[str, str | None, bytes]) -> bytes:
    content = message(list(records))
    return MAGIC + content + hashlib.md5(content).digest()


def _message_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="kpl.proto", package="kpl", syntax="proto2")
    kinds = {"string": 9, "bytes": 12, "uint64": 4, "message": 11}
    for name, fields in {
        "Tag": [("key", "string", 2), ("value", "string", 1)],
        "Record": [
            *(("partition_key_index", "uint64", 2), ("explicit_hash_key_index", "uint64", 1)),
            *(("data", "bytes", 2), ("tags", "Tag", 3)),
        ],
        "AggregatedRecord": [
            *(("partition_key_table", "string", 3), ("explicit_hash_key_table", "string", 3)),
            ("records", "Record", 3),
        ],
    }.items():
        described = file.message_type.add(name=name)
        for number, (field, kind, label) in enumerate(fields, 1):
            made = described.field.add(name=field, number=number, label=label, type=kinds.get(kind, 11))
            if kind not in kinds:
                made.type_name = f".kpl.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("kpl.AggregatedRecord"))


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Kinesis:
    made = Kinesis()
    monkeypatch.setattr(AwsTarget, "client", lambda *_, **__: made)
    return made


def reader_of(source: KinesisSource, split: Split, position: Any = None) -> Any:
    again = Split(split.id, json.loads(json.dumps(split.properties)))
    return source.create_reader(ReaderContext(0, 1, "in")).open_split(again, json.loads(json.dumps(position)))


def test_disaggregated_records_keep_their_keys_hashes_and_data() -> None:
    parts = [("a", None, b"1"), ("ä" * 200, "17", b""), ("a", str(2**128 - 1), b"x" * 1_000_000), ("d", None, b"4")]
    assert deaggregated(aggregated(*parts)) == [
        UserRecord("a", int(hashlib.md5(b"a").hexdigest(), 16), b"1"),
        UserRecord("ä" * 200, 17, b""),
        UserRecord("a", 2**128 - 1, b"x" * 1_000_000),
        UserRecord("d", hash_of("d"), b"4"),
    ]
    assert deaggregated(aggregated()) is None  # only magic number and digest


def test_a_record_that_only_resembles_an_aggregate_is_a_plain_record() -> None:
    whole = aggregated(("a", None, b"1"), ("b", None, b"2"))
    for length in range(len(whole)):
        assert deaggregated(whole[:length]) is None
    for at in range(len(whole)):
        assert deaggregated(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]) is None
    for wrong in (b"\x1a\x05\x08", b"\x1a\x02\x08\x00", b"\x0a\x01\xff", b"\x1a\x04\x08\x09\x1a\x00", b"\xff" * 12):
        assert deaggregated(MAGIC + wrong + hashlib.md5(wrong).digest()) is None
    unknown = b"\x25abcd\x29abcdefgh\x38\x07" + message([("a", None, b"1")])
    assert deaggregated(MAGIC + unknown + hashlib.md5(unknown).digest()) == [UserRecord("a", hash_of("a"), b"1")]


def test_a_reader_continues_in_the_middle_of_an_aggregate(service: Kinesis) -> None:
    service.put(b"first")
    service.put(aggregated(*((f"k{n}", None, b"%d" % n) for n in range(5))))
    service.put(aggregated(("k", None, b"5"), ("k", None, b"6")))
    service.put(b"last")
    source = KinesisSource("s", SimpleStringSchema(), start="trim_horizon")
    (split,) = source.create_enumerator().discover()
    whole = ["first", *map(str, range(7)), "last"]
    for first in range(1, len(whole) + 1):
        one = reader_of(source, split)
        already_read = read_until(one, first, most=1)
        assert already_read == whole[:first]
        other = reader_of(source, split, one.position)
        one.close()
        assert read_until(other, len(whole) - first) == whole[first:]
        other.close()


def test_records_of_other_shards_are_skipped(service: Kinesis, caplog: pytest.LogCaptureFixture) -> None:
    """The library's shard map is outdated after a split. The library sends such records again to the right shard."""
    service.hashes = ("0", "99")
    service.put(aggregated(("a", "5", b"mine"), ("b", "100", b"other"), ("c", None, b"far"), ("d", "99", b"mine, too")))
    service.put(aggregated(("b", "100", b"other")))
    service.put(aggregated(("b", "0", b"last")))
    source = KinesisSource("s", SimpleStringSchema(), start="trim_horizon")
    (split,) = source.create_enumerator().discover()
    reader = reader_of(source, split)
    assert read_until(reader, 3) == ["mine", "mine, too", "last"]
    assert caplog.text.count("2 of 4 records in aggregate") == 1
    assert reader.position["sub"] == -1
    reader.close()
    service.hashes = ALL_HASHES


def test_the_position_moves_past_aggregates_without_records(service: Kinesis) -> None:
    service.hashes = ("0", "99")
    service.put(b"mine")
    service.put(aggregated(("b", "100", b"other")))
    source = KinesisSource("s", SimpleStringSchema(), start="trim_horizon")
    (split,) = source.create_enumerator().discover()
    reader = reader_of(source, split)
    assert read_until(reader, 1) == ["mine"]
    read_until(reader, 1, until=lambda: reader.position["after"] == service.records[-1].number)
    assert reader.position["after"] == service.records[-1].number
    reader.close()
