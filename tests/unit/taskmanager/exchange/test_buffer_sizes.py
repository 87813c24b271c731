"""Buffers have a limit in bytes for records of any size. Large rows are split into segments."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common.errors import StateTypeError
from penstock.connectors.formats.json_lines import JsonLinesFormat
from penstock.connectors.formats.object_batch import ObjectBatch
from penstock.graph.transformation import Exchange, Partitioning
from penstock.records.batch import MIN_TIMESTAMP, Batch, ColumnBatch, RowBatch
from penstock.taskmanager.exchange import writer as exchange_module
from penstock.taskmanager.exchange.column_buffer import FULL_BYTES, FULL_RECORDS
from penstock.taskmanager.exchange.rows import MARKER, Buffer, decode_buffer
from penstock.taskmanager.exchange.segments import SEGMENT_BYTES, join_segments, split_into_segments
from penstock.taskmanager.exchange.writer import BUFFER_BYTES, BUFFER_RECORDS, ExchangeWriter
from penstock.taskmanager.exchange.writers import create_writer
from tests.unit.taskmanager.support import exchange

if TYPE_CHECKING:
    from collections.abc import Iterable

PARTITIONINGS = {
    "one-target": Partitioning(Exchange.GLOBAL),
    "rebalance": Partitioning(Exchange.REBALANCE),
    "key-groups": Partitioning(Exchange.KEY_GROUP, key_selector=lambda value: value[0]),
    "broadcast": Partitioning(Exchange.BROADCAST),
}
TARGETS = 3


def writer_to(rows: list[tuple[int, bytes]], of: str = "rebalance") -> ExchangeWriter:
    return create_writer(exchange(PARTITIONINGS[of], TARGETS), 0, lambda target, row: rows.append((target, row)))


def values_of(buffers: Iterable[Buffer]) -> list[object]:
    return [value for buffer in buffers if (batch := buffer.batch()) is not None for value in batch.rows().values]


@pytest.mark.parametrize("of", PARTITIONINGS)
@pytest.mark.parametrize("size", [10, 8_000, 1_000_000])
def test_a_buffer_has_at_most_twice_its_bytes_or_one_record(of: str, size: int) -> None:
    sent: list[tuple[int, bytes]] = []
    writer = writer_to(sent, of)
    count = max(60, min(50_000, 20_000_000 // size))
    records = [(n, bytes(size)) for n in range(count)]
    for begin in range(0, count, 10_000):
        writer.write(RowBatch(records[begin : begin + 10_000], list(range(begin, min(begin + 10_000, count)))))
    writer.flush()
    buffers = [decode_buffer(row) for _, row in sent]
    assert all(buffer.size <= 1 or len(buffer.row) <= 2 * BUFFER_BYTES for buffer in buffers)
    if size == 10:
        assert max(buffer.size for buffer in buffers) > BUFFER_RECORDS / 2
    if size == 1_000_000:
        assert {buffer.size for buffer in buffers if buffer.size} == {1}
    received = values_of(buffers)
    assert sorted(received) == (records if of != "broadcast" else sorted(records * TARGETS))  # type: ignore[type-var]


@given(
    sizes=st.lists(st.sampled_from([1, 10, 100, 5_000, 100_000, 400_000]), max_size=60), seed=st.integers(0, 1 << 20)
)
def test_records_of_any_sizes_arrive_once_in_order_and_before_the_watermark_that_covers_them(
    sizes: list[int], seed: int
) -> None:
    """Record n has event time n. The watermark after it means that no record at or below n follows."""
    rng = random.Random(seed)
    sent: list[tuple[int, bytes]] = []
    writer = writer_to(sent)
    begin = 0
    while begin < len(sizes):
        end = min(len(sizes), begin + rng.randrange(1, 20))
        writer.write(RowBatch([(n, bytes(sizes[n])) for n in range(begin, end)], list(range(begin, end))))
        if rng.random() < 0.5:
            writer.watermark(end - 1)
        if rng.random() < 0.3:
            writer.flush()
        begin = end
    writer.flush()
    assert all(b.size <= 1 or len(b.row) <= 2 * BUFFER_BYTES for b in (decode_buffer(row) for _, row in sent))
    for _, rows in groupby(sorted(sent, key=lambda pair: pair[0]), key=lambda pair: pair[0]):
        known, last = -(1 << 63), -1
        for buffer in (decode_buffer(row) for _, row in rows):
            for number, content in values_of([buffer]):
                assert number > last
                assert number > known, "the record arrived after a watermark that covers it"
                assert len(content) == sizes[number]
                last = number
            known = max(known, buffer.watermark)
    assert sorted(n for n, _ in values_of(decode_buffer(row) for _, row in sent)) == list(range(len(sizes)))


def test_columns_are_also_split_by_bytes() -> None:
    sent: list[tuple[int, bytes]] = []
    writer = writer_to(sent, "one-target")
    columns = pa.record_batch({"n": np.arange(1_000), "content": [bytes(8_000)] * 1_000})
    for _ in range(3):
        writer.write(ColumnBatch(columns, None, rows_of))
    buffers = [decode_buffer(row) for _, row in sent]
    assert max(len(buffer.row) for buffer in buffers) <= 2 * FULL_BYTES
    assert values_of(buffers) == list(range(1_000)) * 3


def rows_of(batch: pa.RecordBatch) -> list[object]:
    return list(batch.column(0).to_pylist())


def pairs_of(batch: pa.RecordBatch) -> list[object]:
    return list(zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True))


class Line(msgspec.Struct):
    key: int
    n: int


DECODE = JsonLinesFormat(Line).decoder(b"")


class ByFirst:
    field = "key"

    def __call__(self, value: Any) -> Any:
        return value.key if isinstance(value, Line) else value[0]


def batch_in(form: str, begin: int, count: int) -> Batch:
    """Return records (key, n), from n = `begin` on, at time n."""
    numbers = np.arange(begin, begin + count)
    times = None if form.startswith("timeless") else numbers
    if form == "objects":
        lines = b"".join(b'{"key":%d,"n":%d}\n' % (n % 7, n) for n in numbers.tolist())
        decoded = DECODE(lines)
        assert isinstance(decoded, ObjectBatch)
        return decoded.with_timestamps(times)
    if form == "rows":
        return RowBatch([(n % 7, n) for n in numbers.tolist()], numbers.tolist())
    kind = pa.int32() if form == "other columns" else pa.int64()
    columns = pa.record_batch({"key": pa.array(numbers % 7, kind), "n": numbers})
    return ColumnBatch(columns, times, pairs_of)


@given(
    parts=st.lists(
        st.tuples(
            st.sampled_from(["rows", "columns", "timeless columns", "other columns", "objects"]),
            st.sampled_from([1, 5, 300, 5_000]),
            st.sampled_from(["", "", "flush", "watermark"]),
        ),
        max_size=12,
    ),
    kind=st.sampled_from([Exchange.KEY_GROUP, Exchange.FORWARD, Exchange.BROADCAST]),
    targets=st.sampled_from([1, 3]),
)
def test_waiting_columns_keep_their_order_times_and_watermarks(
    parts: list[tuple[str, int, str]], kind: Exchange, targets: int
) -> None:
    sent: list[tuple[int, Buffer]] = []
    by_key = Partitioning(kind, ByFirst(), key_field="key") if kind is Exchange.KEY_GROUP else Partitioning(kind)
    spec = replace(exchange(by_key, targets), takes_columns=True)
    writer = create_writer(spec, 0, lambda target, row: sent.append((target, decode_buffer(row))))
    begin, timed = 0, []
    for form, count, then in parts:
        writer.write(batch_in(form, begin, count))
        begin += count
        timed += [not form.startswith("timeless")] * count
        if then == "watermark":
            writer.watermark(begin - 1)
        elif then == "flush":
            writer.flush()
            assert not writer.has_unflushed
    writer.flush()
    assert not writer.has_unflushed
    found = []
    for target in range(targets):
        known, numbers = MIN_TIMESTAMP, []
        for buffer in (buffer for to, buffer in sent if to == target):
            batch = buffer.batch()
            rows = RowBatch([]) if batch is None else batch.rows()
            of_buffer = [value.n if isinstance(value, Line) else value[1] for value in rows.values]
            assert not of_buffer or (timed[of_buffer[0]], min(of_buffer) > known) == (rows.timestamps is not None, True)
            assert rows.timestamps is None or rows.timestamps == of_buffer
            numbers += of_buffer
            known = max(known, buffer.watermark)
        assert numbers == sorted(numbers)
        found += numbers
    copies = targets if kind is Exchange.BROADCAST else 1
    assert sorted(found) == sorted(list(range(begin)) * copies)


@pytest.mark.parametrize("form", ["columns", "objects"])
def test_small_batches_of_columns_share_a_buffer(form: str) -> None:
    sent: list[tuple[int, bytes]] = []
    by_key = Partitioning(Exchange.KEY_GROUP, ByFirst(), key_field="key")
    spec = replace(exchange(by_key, TARGETS), takes_columns=True)
    writer = create_writer(spec, 0, lambda target, row: sent.append((target, row)))
    for begin in range(0, 30_000, 300):
        writer.write(batch_in(form, begin, 300))
    writer.flush()
    sizes = [decode_buffer(row).size for _, row in sent]
    assert sum(sizes) == 30_000
    assert (
        len(sizes) <= 30_000 / FULL_RECORDS + 3 * TARGETS
    )  # the first ones are small: the size of records is not known yet


def test_a_record_that_is_too_large_for_a_buffer_is_refused_with_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange_module, "LARGEST_RECORD_BYTES", 1_000_000)
    writer = writer_to([])
    refusal = r"a bytes of 1,100,\d+ bytes cannot be sent to another subtask.*1,000,000"
    with pytest.raises(StateTypeError, match=refusal):
        writer.write(RowBatch([b"small"] * 300 + [bytes(1_100_000)] + [b"small"] * 300))


@given(
    lengths=st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from([1, 4, SEGMENT_BYTES, SEGMENT_BYTES + 1, 200_000])), max_size=20
    ),
    seed=st.integers(0, 1 << 20),
)
def test_segments_of_rows_of_several_senders_are_joined(lengths: list[tuple[int, int]], seed: int) -> None:
    rng = random.Random(seed)
    rows = [(sender, bytes((1, sender)) + rng.randbytes(length)) for sender, length in lengths]
    waiting = {
        sender: [part for _, part in split_into_segments([(7, row) for of, row in rows if of == sender], sender)]
        for sender in range(3)
    }
    mixed: list[bytes] = []
    while any(waiting.values()):
        mixed.append(waiting[rng.choice([sender for sender, parts in waiting.items() if parts])].pop(0))
    assert all(len(part) <= SEGMENT_BYTES for part in mixed)
    received = list(join_segments(mixed))
    for sender in range(3):
        assert [row for row in received if row[1] == sender] == [row for of, row in rows if of == sender]


def test_the_last_segment_of_a_marker_is_recognizable() -> None:
    """The shuffle's reader uses it for the alignment."""
    parts = [
        part
        for _, part in split_into_segments([(0, bytes((MARKER,)) + bytes(100_000)), (0, b"\x01" + bytes(100_000))], 2)
    ]
    assert [part[1] for part in parts] == [2, 2, 2, 3, 0, 0, 0, 1]


def sent_by_key(batches: Iterable[ColumnBatch]) -> list[object]:
    sent: list[tuple[int, bytes]] = []
    by_key = Partitioning(Exchange.KEY_GROUP, ByFirst(), key_field="key")
    writer = create_writer(
        replace(exchange(by_key, TARGETS), takes_columns=True), 0, lambda target, row: sent.append((target, row))
    )
    for batch in batches:
        writer.write(batch)
    writer.flush()
    return values_of(decode_buffer(row) for _, row in sent)


def test_dictionaries_that_cannot_be_joined_are_sent_one_by_one() -> None:
    def batch_of(begin: int) -> ColumnBatch:
        names = pa.array([f"n{n}" for n in range(begin, begin + 100)]).cast(pa.dictionary(pa.int8(), pa.string()))
        keys = np.arange(begin, begin + 100) % 7
        return ColumnBatch(pa.record_batch({"key": keys, "name": names}), None, pairs_of)

    expected = [(n % 7, f"n{n}") for n in range(300)]
    assert sorted(sent_by_key(map(batch_of, (0, 100, 200)))) == sorted(expected)  # type: ignore[type-var]


@pytest.mark.parametrize("kind", [Exchange.KEY_GROUP, Exchange.FORWARD, Exchange.BROADCAST])
@pytest.mark.parametrize("targets", [1, TARGETS])
def test_reused_memory_of_a_batch_does_not_change_written_records(kind: Exchange, targets: int) -> None:
    sent: list[Buffer] = []
    by_key = Partitioning(kind, ByFirst(), key_field="key") if kind is Exchange.KEY_GROUP else Partitioning(kind)
    spec = replace(exchange(by_key, targets), takes_columns=True)
    writer = create_writer(spec, 0, lambda target, row: sent.append(decode_buffer(row)))
    keys, numbers, times = (np.zeros(300, np.int64) for _ in range(3))
    for begin in range(0, 3_000, 300):
        numbers[:] = times[:] = np.arange(begin, begin + 300)
        keys[:] = numbers % 7
        writer.write(ColumnBatch(pa.record_batch({"key": keys, "n": numbers}), times, pairs_of))
    writer.flush()
    copies = targets if kind is Exchange.BROADCAST else 1
    assert sorted(values_of(sent)) == sorted([(n % 7, n) for n in range(3_000)] * copies)  # type: ignore[type-var]
    stamps = [t for buffer in sent if (batch := buffer.batch()) is not None for t in batch.rows().timestamps or ()]
    assert sorted(stamps) == sorted(list(range(3_000)) * copies)
