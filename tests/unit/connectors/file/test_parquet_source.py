"""Parquet files as a source: bounds, restarts, casts, and files that cannot be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common.errors import RecordFormatError
from penstock.connectors.core.source import ReadBounds
from penstock.connectors.formats.parquet import ParquetFormat
from tests.unit.connectors.support import read_source, read_with_restarts, source_of, splits_of

if TYPE_CHECKING:
    from pathlib import Path


def parquet_file(path: Path, rows: int, group: int) -> pa.Table:
    table = pa.table({"id": [f"s{n}" for n in range(rows)], "n": range(rows), "extra": [None] * rows})
    pq.write_table(table, path, row_group_size=group)
    return table


@settings(max_examples=30, deadline=None)
@given(
    rows=st.integers(0, 60),
    group=st.integers(1, 25),
    records=st.integers(1, 30),
    split_size=st.none() | st.integers(200, 2000),
)
def test_parquet_is_read_once_over_any_bounds_restarts_and_ranges(
    tmp_path_factory: pytest.TempPathFactory, rows: int, group: int, records: int, split_size: int | None
) -> None:
    path = tmp_path_factory.mktemp("parquet") / "a.parquet"
    parquet_file(path, rows, group)
    source = source_of(ParquetFormat({"n": int, "id": str}, record="tuple", batch_size=7), path, split_size=split_size)
    expected = [(n, f"s{n}") for n in range(rows)]
    assert read_source(source, ReadBounds(records)) == expected
    bounds = ReadBounds(records)
    assert [v for s in splits_of(source) for v in read_with_restarts(source, s, bounds)[0]] == expected


def test_parquet_columns_are_cast_only_without_loss(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": pa.array([1, 2], pa.int32())}), tmp_path / "a.parquet")
    assert read_source(source_of(ParquetFormat({"n": float}, record="tuple"), tmp_path)) == [(1.0,), (2.0,)]
    pq.write_table(pa.table({"n": pa.array([1.5], pa.float64())}), tmp_path / "a.parquet")
    with pytest.raises(RecordFormatError, match="row group 0"):
        read_source(source_of(ParquetFormat({"n": int}), tmp_path))


def test_undeclared_parquet_columns_are_read_as_dicts(tmp_path: Path) -> None:
    parquet_file(tmp_path / "a.parquet", 2, 2)
    assert read_source(source_of(ParquetFormat(), tmp_path))[1] == {"id": "s1", "n": 1, "extra": None}


def test_a_missing_parquet_column_and_a_forbidden_null_are_named(tmp_path: Path) -> None:
    parquet_file(tmp_path / "a.parquet", 2, 2)
    with pytest.raises(RecordFormatError, match=r"no column 'celsius'.*it has id, n, extra"):
        read_source(source_of(ParquetFormat({"celsius": float}), tmp_path))
    with pytest.raises(RecordFormatError, match=r"'extra'.*holds nulls"):
        read_source(source_of(ParquetFormat({"extra": str}), tmp_path))
    assert read_source(source_of(ParquetFormat({"EXTRA": str | None, "N": int}, case_sensitive=False), tmp_path))


@pytest.mark.parametrize(
    ("ends", "content"),
    [((0, 2), b"a\xff"), ((0, 1, 2), "ä".encode())],  # the second pair splits a character
)
@pytest.mark.parametrize("is_nested", [False, True])
def test_parquet_texts_that_are_not_utf_8_are_named(
    tmp_path: Path, ends: tuple[int, ...], content: bytes, is_nested: bool
) -> None:
    offsets = pa.py_buffer(b"".join(end.to_bytes(4, "little") for end in ends))
    wrong: Any = pa.StringArray.from_buffers(len(ends) - 1, offsets, pa.py_buffer(content))
    if is_nested:
        wrong = pa.ListArray.from_arrays(pa.array([0, len(ends) - 1], pa.int32()), wrong)
    pq.write_table(pa.table({"id": wrong}), tmp_path / "a.parquet")
    with pytest.raises(RecordFormatError, match=r"cannot read the Parquet file .*a\.parquet', row group 0: .*UTF8"):
        read_source(source_of(ParquetFormat({"id": list[str] if is_nested else str}), tmp_path))


def test_texts_of_every_script_are_read_from_parquet(tmp_path: Path) -> None:
    texts = ["", "ä", None, "漢字", "🙂", "a\0b", "x" * 100_000]
    pq.write_table(pa.table({"id": texts * 3}), tmp_path / "a.parquet")
    source = source_of(ParquetFormat({"id": str | None}, record="tuple", batch_size=4), tmp_path)
    assert read_source(source, ReadBounds(3)) == [(text,) for text in texts * 3]


def test_a_file_that_is_not_parquet_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_text("x" * 100)
    with pytest.raises(RecordFormatError, match=r"a\.parquet"):
        read_source(source_of(ParquetFormat(), tmp_path))
