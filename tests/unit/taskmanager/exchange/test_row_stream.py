"""A task sleeps until rows arrive or its patience ends, and it reads no bytes that belong to Spark."""

from __future__ import annotations

import io
import os
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from typing import Any, BinaryIO

import pytest

from penstock.taskmanager.exchange.row_stream import SENT, TICK_ROW, ArrivingRows, RowSerializer

END = struct.pack(">i", -1)


def framed(*rows: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(row)) + row for row in rows)


@contextmanager
def pipe() -> Iterator[tuple[BufferedReader, BinaryIO]]:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb", 65536) as reader, os.fdopen(writing, "wb", 0) as writer:
        yield reader, writer


def test_rows_arrive_in_order_and_the_bytes_after_them_remain() -> None:
    with pipe() as (reader, writer):
        writer.write(framed(b"a", b"", b"ccc") + END + b"of Spark")
        assert list(ArrivingRows(reader)) == [b"a", b"", b"ccc"]
        assert reader.read(8) == b"of Spark"


@pytest.mark.parametrize("size", [65_531, 65_532, 65_533, 65_536, 65_537, 300_000])
def test_a_row_may_be_larger_than_the_streams_buffer(size: int) -> None:
    rows = [b"x" * size, b"y", bytes(size), b"z"]
    with pipe() as (reader, writer):
        sender = threading.Thread(target=lambda: [writer.write(part) for part in (framed(*rows), END, b"!")])
        sender.start()
        assert list(ArrivingRows(reader)) == rows
        assert reader.read(1) == b"!"
        sender.join()


def test_a_row_whose_bytes_arrive_one_by_one_is_one_row() -> None:
    with pipe() as (reader, writer):

        def send() -> None:
            for byte in framed(b"slow") + END:
                time.sleep(0.002)
                writer.write(bytes((byte,)))

        sender = threading.Thread(target=send)
        sender.start()
        assert list(ArrivingRows(reader)) == [b"slow"]
        sender.join()


def test_a_tick_occurs_if_no_row_arrives_in_time() -> None:
    with pipe() as (reader, writer):
        rows = ArrivingRows(reader)
        rows.patience = lambda: 0.05
        writer.write(framed(b"a", b"b"))
        assert [next(rows), next(rows)] == [b"a", b"b"]
        started = time.monotonic()
        assert next(rows) == TICK_ROW
        assert 0.04 < time.monotonic() - started < 20
        writer.write(framed(b"c"))
        assert next(rows) == b"c"


def test_rows_in_the_streams_buffer_are_returned_without_waiting() -> None:
    with pipe() as (reader, writer):
        rows = ArrivingRows(reader)
        rows.patience = lambda: pytest.fail("rows are available")
        writer.write(framed(*(b"row" for _ in range(1000))))
        assert [next(rows) for _ in range(1000)] == [b"row"] * 1000


def test_the_task_waits_for_a_row_if_its_patience_is_unlimited() -> None:
    with pipe() as (reader, writer):
        rows = ArrivingRows(reader)
        writer.write(framed(b"a"))
        assert next(rows) == b"a"
        sender = threading.Timer(0.1, lambda: writer.write(framed(b"b")))
        sender.start()
        assert next(rows) == b"b"
        sender.join()


def test_the_end_of_the_connection_is_not_a_row() -> None:
    with pipe() as (reader, writer):
        rows = ArrivingRows(reader)
        writer.write(framed(b"a"))
        assert next(rows) == b"a"
        writer.close()
        with pytest.raises(EOFError, match="closed the connection"):
            next(rows)


def test_rows_that_are_made_together_are_sent_with_one_write() -> None:
    """Each write wakes up a thread of the executor."""
    written: list[bytes] = []

    class Raw(io.RawIOBase):
        def writable(self) -> bool:
            return True

        def write(self, data: Any) -> int:
            written.append(bytes(data))
            return len(data)

    RowSerializer().dump_stream([b"a", b"b", SENT, b"c", SENT, SENT], io.BufferedWriter(Raw()))
    assert written == [framed(b"a", b"b"), framed(b"c")]
