"""ORC files: every row once over any restarts, values of every type, and errors for damaged files and values that do not fit."""

from __future__ import annotations

import gc
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.orc as orc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common.errors import InvalidJob, RecordFormatError
from penstock.common.typeinfo import Types
from penstock.common.types import Row
from penstock.connectors.core.source import ReadBounds
from penstock.datastream.connectors.file_system import FileSink, FileSource
from penstock.datastream.formats.orc import OrcBulkWriters, OrcFormat, OrcWriterFactory
from penstock.records.batch import ColumnBatch
from tests.unit.connectors.support import (
    open_split,
    read_source,
    read_with_restarts,
    snapshot,
    splits_of,
    visible,
    writer_context,
)


def source_of(format: OrcFormat, path: Path) -> FileSource:
    return FileSource.for_bulk_file_format(format, str(path)).build()


def orc_file(path: Path, rows: int, stripe: int) -> None:
    """Return an ORC file. Arrow writes a stripe for each table that is large enough."""
    with orc.ORCWriter(str(path), stripe_size=1) as writer:
        for begin in range(0, rows, stripe):
            part = range(begin, min(rows, begin + stripe))
            writer.write(pa.table({"id": [f"s{n}" for n in part], "n": pa.array(part, pa.int64())}))
        if not rows:
            writer.write(pa.table({"id": pa.array([], pa.string()), "n": pa.array([], pa.int64())}))


@settings(max_examples=20, deadline=None)
@given(rows=st.sampled_from([0, 1, 60, 3000]), stripe=st.sampled_from([1024, 1500, 5000]), records=st.integers(1, 2000))
def test_every_row_is_read_once_over_any_bounds_and_restarts(
    tmp_path_factory: pytest.TempPathFactory, rows: int, stripe: int, records: int
) -> None:
    path = tmp_path_factory.mktemp("orc") / "a.orc"
    orc_file(path, rows, stripe)
    source = source_of(OrcFormat({"n": int, "id": str}, record="tuple"), path)
    expected = [(n, f"s{n}") for n in range(rows)]
    bounds = ReadBounds(max(records, rows // 20))
    assert read_source(source, bounds) == expected
    assert [v for s in splits_of(source) for v in read_with_restarts(source, s, bounds)[0]] == expected


def test_a_restored_reader_continues_at_the_stripe_of_its_position(tmp_path: Path) -> None:
    orc_file(tmp_path / "a.orc", 10_000, 2_000)
    assert orc.ORCFile(str(tmp_path / "a.orc")).nstripes > 2
    source = source_of(OrcFormat({"n": int}, record="tuple"), tmp_path)
    (split,) = splits_of(source)
    reader = open_split(source, split, None)
    reader.read(ReadBounds(2_500))
    reader.read(ReadBounds(2_500))
    assert reader.position[0] >= 1
    reader.close()


class Reading(NamedTuple):
    id: str
    n: int | None
    celsius: float
    at: datetime
    day: date
    price: Decimal
    raw: bytes
    on: bool
    tags: list[str]
    more: dict[str, int]


READING = Reading(
    "ä",
    None,
    0.1,
    datetime(2026, 1, 1, 12, 0, 0, 123456),
    date(1969, 12, 31),
    Decimal("1.10"),
    b"\x00\xff",
    True,
    [],
    {},
)
TYPES = pa.schema(
    [
        *(("id", pa.string()), ("n", pa.int64()), ("celsius", pa.float64()), ("at", pa.timestamp("us"))),
        *(("day", pa.date32()), ("price", pa.decimal128(10, 2)), ("raw", pa.binary()), ("on", pa.bool_())),
        *(("tags", pa.list_(pa.string())), ("more", pa.map_(pa.string(), pa.int64()))),
    ]
)


def written(path: Path, factory: Any, values: list[Any]) -> Path:
    sink = FileSink.for_bulk_format(str(path), factory).build()
    writer = sink.create_writer(writer_context(), [])
    writer.write(values, None, 0)
    sink.create_committer({}).commit(snapshot(writer, 1)[0])
    (found,) = visible(path)
    return found


def test_values_of_every_type_are_read_back(tmp_path: Path) -> None:
    values = [READING, READING._replace(n=-5, tags=["a", ""], more={"k": 2**40}, at=datetime(1900, 1, 1))]
    path = written(tmp_path, OrcWriterFactory(TYPES), values)
    assert path.suffix == ".orc"
    found = read_source(source_of(OrcFormat(TYPES, record="tuple"), path))
    assert [(*row[:-1], dict(row[-1])) for row in found] == [tuple(value) for value in values]
    times = pa.schema([("at", pa.timestamp("us", "UTC"))])
    noon = datetime(2026, 7, 1, 12, tzinfo=UTC)
    path = written(tmp_path / "zones", OrcWriterFactory(times), [(noon,)])
    assert read_source(source_of(OrcFormat(times, record="tuple"), path)) == [(noon,)]


@pytest.mark.parametrize("compression", ["SNAPPY", "ZSTD", "ZLIB", "LZ4", "NONE"])
def test_rows_are_written_through_pyflinks_api(tmp_path: Path, compression: str) -> None:
    row_type = Types.ROW_NAMED(["id", "n"], [Types.STRING(), Types.INT()])
    factory = OrcBulkWriters.for_row_type(row_type, {"orc.compress": compression, "orc.stripe.size": "67108864"})
    path = written(tmp_path, factory, [Row("a", 1), Row("b", 2)])
    assert orc.ORCFile(str(path)).compression == {"NONE": "UNCOMPRESSED"}.get(compression, compression)
    assert read_source(source_of(OrcFormat(row_type), path)) == [Row(id="a", n=1), Row(id="b", n=2)]
    assert read_source(source_of(OrcFormat(), path)) == [{"id": "a", "n": 1}, {"id": "b", "n": 2}]


def test_columns_and_values_of_numpy_are_written(tmp_path: Path) -> None:
    def no_rows(columns: pa.RecordBatch) -> list[Any]:
        raise AssertionError("rows were made")

    sink = FileSink.for_bulk_format(str(tmp_path), OrcWriterFactory({"id": str, "n": int}, stripe_bytes=1)).build()
    writer = sink.create_writer(writer_context(), [])
    columns = pa.record_batch({"n": pa.array([1, 2], pa.int32()), "id": ["a", "b"]})
    writer.write_batch(ColumnBatch(columns, None, no_rows), 0)
    writer.write([(np.str_("c"), np.int64(3))], None, 0)
    sink.create_committer({}).commit(snapshot(writer, 1)[0])
    (path,) = visible(tmp_path)
    assert orc.read_table(path).to_pylist() == [{"id": "a", "n": 1}, {"id": "b", "n": 2}, {"id": "c", "n": 3}]


def test_an_abandoned_part_causes_no_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ignored: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    sink = FileSink.for_bulk_format(str(tmp_path), OrcWriterFactory({"n": int}, stripe_bytes=10)).build()
    writer = sink.create_writer(writer_context(), [])
    writer.write([(n,) for n in range(2500)], None, 0)
    writer.close()
    del writer
    gc.collect()
    assert ignored == []
    assert capfd.readouterr().err == ""
    assert visible(tmp_path) == []


def test_damaged_files_are_named(tmp_path: Path) -> None:
    orc_file(tmp_path / "whole", 3000, 1024)
    whole = (tmp_path / "whole").read_bytes()
    path = tmp_path / "in" / "a.orc"
    path.parent.mkdir()
    source = source_of(OrcFormat({"n": int, "id": str}), path)
    damaged = [whole[: len(whole) // 2], whole[:-1], b"", b"ORC", b"{}\n", whole[:-20] + b"\xff" * 20]
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(RecordFormatError, match="cannot read the ORC file"):
            read_source(source)
    for at in range(
        3, len(whole), 97
    ):  # ORC has no checksums, so a damaged file may return other values, but raise no other error
        path.write_bytes(whole[:at] + b"\xff" * 8 + whole[at + 8 :])
        try:
            read_source(source)
        except RecordFormatError as error:
            assert str(path) in str(error)  # noqa: PT017 - it need not come


def test_values_that_do_not_fit_are_named(tmp_path: Path) -> None:
    orc_file(tmp_path / "a.orc", 3, 3)
    with pytest.raises(RecordFormatError, match="no column 'celsius'"):
        read_source(source_of(OrcFormat({"celsius": float}), tmp_path))
    with pytest.raises(RecordFormatError, match="stripe 0, has the type string and cannot be read as int64"):
        read_source(source_of(OrcFormat({"id": int}), tmp_path))
    with orc.ORCWriter(str(tmp_path / "a.orc")) as writer:
        writer.write(pa.table({"n": pa.array([1, None], pa.int64())}))
    with pytest.raises(RecordFormatError, match="holds nulls"):
        read_source(source_of(OrcFormat({"n": int}), tmp_path))
    assert read_source(source_of(OrcFormat({"N": int | None}, record="tuple", case_sensitive=False), tmp_path)) == [
        (1,),
        (None,),
    ]
    with pytest.raises(RecordFormatError, match="'n' cannot be written as int64"):
        written(tmp_path / "out", OrcWriterFactory({"n": int}), [("many",)])
    with pytest.raises(RecordFormatError, match="cannot be written as ORC"):
        written(tmp_path / "out", OrcWriterFactory(pa.schema([("n", pa.duration("us"))])), [(1,)])
    for wrong in ({"orc.compress": "LZO"}, {"orc.bloom.filter.columns": "n"}, {"orc.stripe.size": "64 MB"}):
        with pytest.raises(InvalidJob, match=r"compression='lzo'|do not know|orc.stripe.size"):
            OrcBulkWriters.for_row_type({"n": int}, wrong)
