from __future__ import annotations

import bz2
import csv
import gzip
import json
import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common.errors import InvalidJob, RecordFormatError, SourceError
from penstock.common.time import Duration
from penstock.connectors.core.source import ReadBounds, ReaderContext
from penstock.connectors.file.source.file_source import FileEnumeratorProvider, FileSource
from penstock.connectors.formats.csv import CsvDialect, CsvFormat
from penstock.connectors.formats.json_lines import JsonLinesFormat
from penstock.connectors.formats.parquet import ParquetFormat
from penstock.connectors.formats.record_format import RejectedRecord, StreamFormat, TextLineFormat
from tests.unit.connectors.support import open_split, read_all, read_source, read_with_restarts, source_of, splits_of

if TYPE_CHECKING:
    from pathlib import Path

TEXT = StreamFormat.text_line_format()


def compressed(codec: str, data: bytes) -> bytes:
    out = pa.BufferOutputStream()
    with pa.CompressedOutputStream(out, codec) as stream:
        stream.write(data)
    return bytes(out.getvalue())


zstd = partial(compressed, "zstd")
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": zstd,
    ".bz2": bz2.compress,
    ".lz4": partial(compressed, "lz4"),
    ".br": partial(compressed, "brotli"),
}


@settings(max_examples=60, deadline=None)
@given(
    lines=st.lists(st.text(st.characters(exclude_characters="\n\r", codec="utf-8"), max_size=40), max_size=60),
    ending=st.sampled_from(["\n", "\r\n"]),
    last=st.booleans(),
    suffix=st.sampled_from(sorted(COMPRESS)),
    records=st.integers(1, 20),
    size=st.integers(1, 300),
)
def test_lines_are_read_once_over_any_bounds_restarts_and_compression(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[str],
    ending: str,
    last: bool,
    suffix: str,
    records: int,
    size: int,
) -> None:
    path = tmp_path_factory.mktemp("lines") / f"a.txt{suffix}"
    text = ending.join(lines) + (ending if last and lines else "")
    path.write_bytes(COMPRESS[suffix](text.encode()))
    expected = text.split(ending)
    if not expected[-1]:
        expected.pop()
    source = source_of(TEXT, path)
    bounds = ReadBounds(records, size)
    assert read_source(source, bounds) == expected
    values, rejected = read_with_restarts(source, splits_of(source)[0], bounds)
    assert (values, rejected) == (expected, [])


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 30), max_size=40),
    last=st.booleans(),
    split_size=st.integers(1, 120),
    size=st.integers(1, 100),
)
def test_ranges_of_a_file_contain_every_line_once(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], last: bool, split_size: int, size: int
) -> None:
    path = tmp_path_factory.mktemp("ranges") / "a.txt"
    lines = [f"{n}" + "x" * length for n, length in enumerate(lengths)]
    path.write_text("\n".join(lines) + ("\n" if last and lines else ""))
    source = source_of(TEXT, path, split_size=split_size)
    values = [
        value for split in splits_of(source) for value in read_with_restarts(source, split, ReadBounds(5, size))[0]
    ]
    assert values == lines


@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(
        st.tuples(
            st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), max_size=12).filter(
                lambda t: t.strip() != ""
            ),
            st.none() | st.integers(-(2**63), 2**63 - 1),
        ),
        max_size=30,
    ),
    size=st.integers(1, 200),
)
def test_quoted_csv_is_read_once_over_any_bounds(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, int | None]], size: int
) -> None:
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
    source = source_of(CsvFormat({"text": str, "n": int | None}, record="tuple"), path)
    values, rejected = read_with_restarts(source, splits_of(source)[0], ReadBounds(7, size))
    assert (values, rejected) == (rows, [])


def test_max_records_is_respected_if_lines_become_short(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x" * 1000 + "\n" + "y\n" * 5000)
    source = source_of(TEXT, tmp_path)
    reader = open_split(source, splits_of(source)[0])
    sizes = []
    while not reader.finished:
        batch = reader.read(ReadBounds(100))
        sizes.append(0 if batch is None else len(batch))
    assert sum(sizes) == 5001
    assert max(sizes) <= 126


def test_files_are_read_in_order_of_modification_then_name(tmp_path: Path) -> None:
    for name, time in (("c", 1), ("b", 2), ("a", 2), ("sub/d", 1)):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{name}\n")
        os.utime(path, (time, time))
    assert read_source(source_of(TEXT, tmp_path)) == ["c", "sub/d", "a", "b"]


def test_hidden_files_and_directories_are_not_read(tmp_path: Path) -> None:
    for name in (".part-0.inprogress.1", "_SUCCESS", ".git/x", "_temporary/x", "data"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{name}\n")
    assert read_source(source_of(TEXT, tmp_path)) == ["data"]


def test_patterns_and_urls_find_files(tmp_path: Path) -> None:
    for name in ("a-1.log", "a-2.log", "b-1.log", ".a-3.log", "_a-4.log"):
        (tmp_path / name).write_text(f"{name}\n")
    assert len(read_source(source_of(TEXT, f"{tmp_path}/*"))) == 3
    assert read_source(source_of(TEXT, f"{tmp_path}/_a-4.log")) == ["_a-4.log"]
    assert sorted(read_source(source_of(TEXT, f"{tmp_path}/a-*.log"))) == ["a-1.log", "a-2.log"]
    assert read_source(source_of(TEXT, f"file://{tmp_path}/b-1.log")) == ["b-1.log"]


def test_a_circular_link_is_followed_once(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "up").symlink_to(tmp_path)
    assert read_source(source_of(TEXT, tmp_path)) == ["a"]


def test_a_gzip_file_with_several_members_is_read_completely(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"1\n2") + gzip.compress(b"3\n4\n"))
    (tmp_path / "b.zst").write_bytes(zstd(b"5\n") + zstd(b"6\n"))
    assert read_source(source_of(TEXT, tmp_path)) == ["1", "23", "4", "5", "6"]


def test_a_utf_8_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbf1\n2\n")
    assert read_source(source_of(TEXT, tmp_path), ReadBounds(1)) == ["1", "2"]


def test_a_charset_with_wide_line_ends_is_refused() -> None:
    with pytest.raises(InvalidJob, match="UTF-16"):
        TextLineFormat("UTF-16")
    assert TextLineFormat("latin-1").decoder(b"")(b"\xe9\n").rows().values == ["é"]


def test_csv_headers_are_skipped_in_every_range(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n,id,other\n" + "".join(f"{n},s{n},x\n" for n in range(50)))
    format = CsvFormat({"id": str, "n": int}, CsvDialect(quote=None, header="names"), record="tuple")
    expected = [(f"s{n}", n) for n in range(50)]
    assert read_source(source_of(format, tmp_path)) == expected
    assert read_source(source_of(format, tmp_path, split_size=37), ReadBounds(3)) == expected


def test_a_strict_header_must_match_the_schema(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n,id\n1,a\n")
    with pytest.raises(RecordFormatError, match="header has the columns n, id"):
        read_source(source_of(CsvFormat({"id": str, "n": int}, CsvDialect(header="strict")), tmp_path))


@pytest.mark.parametrize("on_error", ["fail", "side-output"])
def test_an_error_names_the_file_with_a_wrong_header(tmp_path: Path, on_error: str) -> None:
    (tmp_path / "a.csv").write_text("id,x\n1,2\n")
    (tmp_path / "b.csv").write_text("y,id\n1,2\n")
    format = CsvFormat({"id": int, "x": int}, CsvDialect(header="names"), on_error=on_error)
    with pytest.raises(
        RecordFormatError, match=r"columns y, id, but the job declares id, x, in '.*/b\.csv', line 1"
    ) as caught:
        read_source(source_of(format, tmp_path))
    assert "header='skip'" in caught.value.remedy


@pytest.mark.parametrize("header", ["none", "skip", "names", "strict"])
@pytest.mark.parametrize(
    ("name", "content"), [("b.csv", b""), ("b.csv", b"\xef\xbb\xbf"), ("b.csv.gz", gzip.compress(b"", mtime=0))]
)
def test_an_empty_file_among_others_has_no_records(tmp_path: Path, header: str, name: str, content: bytes) -> None:
    heading = "" if header == "none" else "id,x\n"
    (tmp_path / "a.csv").write_text(f"{heading}1,2\n")
    (tmp_path / name).write_bytes(content)
    (tmp_path / "c.csv").write_text(f"{heading}3,4\n")
    format = CsvFormat({"id": int, "x": int}, CsvDialect(header=header), record="tuple")
    assert sorted(read_source(source_of(format, tmp_path))) == [(1, 2), (3, 4)]


def test_a_stray_quote_does_not_swallow_the_file(tmp_path: Path) -> None:
    rows = [('5" pipe' if n == 3 else f"p{n}", n) for n in range(400)]
    (tmp_path / "a.csv").write_text("".join(f"{text},{n}\n" for text, n in rows))
    assert read_source(source_of(CsvFormat({"text": str, "n": int}, record="tuple"), tmp_path)) == rows


def test_malformed_lines_of_a_file_go_to_the_side_output_once(tmp_path: Path) -> None:
    lines = [f'{{"n":{n}}}' if n % 7 else f"bad {n}" for n in range(100)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    format = JsonLinesFormat({"n": int}, record="tuple", on_error="side-output", error_tag="bad")
    source = source_of(format, tmp_path)
    assert source.side_output_tags() == ("bad",)
    values, rejected = read_with_restarts(source, splits_of(source)[0], ReadBounds(10))
    assert values == [(n,) for n in range(100) if n % 7]
    assert [(r.line, r.record) for r in rejected] == [(n + 1, f"bad {n}") for n in range(0, 100, 7)]
    assert all(isinstance(r, RejectedRecord) and r.path == str(tmp_path / "a.jsonl") for r in rejected)


def test_a_malformed_line_fails_the_job_by_default(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"n":1}\n{"n":x}\n')
    source = source_of(JsonLinesFormat({"n": int}), tmp_path)
    assert source.side_output_tags() == ()
    with pytest.raises(RecordFormatError, match=r"a\.jsonl', line 2, byte 8") as caught:
        read_source(source)
    assert "side-output" in caught.value.remedy


def test_line_numbers_continue_after_a_restore(tmp_path: Path) -> None:
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"".join(b"%d\n" % n for n in range(50)) + b"\xff\n"))
    source = source_of(TEXT, tmp_path)
    with pytest.raises(RecordFormatError, match="line 51"):
        read_with_restarts(source, splits_of(source)[0], ReadBounds(10))


def test_a_truncated_gzip_file_is_named(tmp_path: Path) -> None:
    content = gzip.compress(os.urandom(3_000_000).hex().encode())
    (tmp_path / "a.gz").write_bytes(content[: len(content) // 2])
    with pytest.raises(RecordFormatError, match=r"decompress .*a\.gz"):
        read_source(source_of(TEXT, tmp_path))


def test_a_binary_file_is_not_buffered_without_limit(tmp_path: Path) -> None:
    with (tmp_path / "a.txt").open("wb") as file:
        file.truncate(300 << 20)
    with pytest.raises(
        RecordFormatError, match=r"malformed line in .*a\.txt', line 1, byte 0: the line is longer than 64 MiB"
    ):
        read_source(source_of(TEXT, tmp_path))


def test_continuous_mode_reads_new_and_changed_files(tmp_path: Path) -> None:
    first = tmp_path / "a"
    first.write_text("1\n")
    os.utime(first, (1, 1))
    source = (
        FileSource.for_record_stream_format(TEXT, str(tmp_path)).monitor_continuously(Duration.of_seconds(1)).build()
    )
    assert not source.bounded
    enumerator = source.create_enumerator()
    assert enumerator.discovery_interval_ms == 1000
    assert not enumerator.is_finished()
    (split,) = enumerator.discover()
    assert enumerator.discover() == []
    (tmp_path / "b").write_text("2\n")
    assert [s.properties["path"] for s in enumerator.discover()] == [str(tmp_path / "b")]
    state = json.loads(json.dumps(enumerator.snapshot()))

    first.write_text("1\n3\n")
    os.utime(first, (2, 2))
    restored = source.create_enumerator()
    restored.restore(state)
    (changed,) = restored.discover()
    assert changed.id != split.id
    assert read_all(open_split(source, changed)) == ["1", "3"]
    assert read_all(open_split(source, split)) == ["1"], "the old split ends where the file ended"


def test_a_file_that_disappears_briefly_is_not_read_again(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("1\n")
    source = source_of(TEXT, tmp_path, discovery_interval_ms=1)
    enumerator = source.create_enumerator()
    assert len(enumerator.discover()) == 1
    stat = path.stat()
    path.rename(tmp_path / ".a")
    assert enumerator.discover() == []
    (tmp_path / ".a").rename(path)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert enumerator.discover() == []


def test_continuous_mode_waits_in_an_empty_directory(tmp_path: Path) -> None:
    source = source_of(TEXT, tmp_path, f"{tmp_path}/*.later", discovery_interval_ms=1)
    source.validate()
    assert source.create_enumerator().discover() == []


@pytest.mark.parametrize(
    ("path", "message"), [("missing", "does not exist"), ("empty", "is empty"), ("*.none", "does not exist")]
)
def test_a_path_that_cannot_be_read_is_found_on_the_client(tmp_path: Path, path: str, message: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match=message) as caught:
        source_of(TEXT, tmp_path / path).validate()
    assert str(tmp_path / path) in caught.value.message
    assert caught.value.remedy


def test_a_missing_permission_is_found_on_the_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_text("1\n")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(SourceError, match="permission denied"):
        source_of(TEXT, tmp_path).validate()


def test_a_file_that_shrank_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("1\n" * 1000)
    source = source_of(TEXT, path)
    (split,) = splits_of(source)
    path.write_text("1\n")
    with pytest.raises(SourceError, match="ends at byte 2, but had 2000 bytes when it was listed"):
        read_all(open_split(source, split))


def test_a_deleted_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("1\n")
    source = source_of(TEXT, path)
    (split,) = splits_of(source)
    path.unlink()
    with pytest.raises(SourceError, match="does not exist"):
        read_all(open_split(source, split))


def test_many_splits_are_read_in_turns_with_few_open_files(tmp_path: Path) -> None:
    for n in range(200):
        (tmp_path / f"{n:03d}").write_text(f"{n}\n{n}\n")
    source = source_of(TEXT, tmp_path)
    source_reader = source.create_reader(ReaderContext(0, 1, "source"))
    readers = [source_reader.open_split(split, None) for split in splits_of(source)]
    before = len(os.listdir("/proc/self/fd"))
    values = []
    most = 0
    for _ in range(2):
        for reader in readers:
            batch = reader.read(ReadBounds(1, 4))
            values += [] if batch is None else batch.rows().values
            most = max(most, len(os.listdir("/proc/self/fd")) - before)
    while not all(reader.finished for reader in readers):
        for reader in readers:
            batch = None if reader.finished else reader.read(ReadBounds(1, 4))
            values += [] if batch is None else batch.rows().values
    assert sorted(values) == sorted([str(n) for n in range(200)] * 2)
    assert most <= 64


def test_many_parquet_files_are_read_in_turns_with_few_open_files(tmp_path: Path) -> None:
    for n in range(100):
        pq.write_table(pa.table({"n": [n] * 3}), tmp_path / f"{n:03d}.parquet")
    source = source_of(ParquetFormat({"n": int}, record="tuple"), tmp_path)
    source_reader = source.create_reader(ReaderContext(0, 1, "source"))
    readers = [source_reader.open_split(split, None) for split in splits_of(source)]
    before = len(os.listdir("/proc/self/fd"))
    values = []
    while not all(reader.finished for reader in readers):
        for reader in readers:
            batch = None if reader.finished else reader.read(ReadBounds(1))
            values += [] if batch is None else batch.rows().values
            assert len(os.listdir("/proc/self/fd")) - before <= 64
    assert sorted(values) == sorted([(n,) for n in range(100)] * 3)
    assert len(os.listdir("/proc/self/fd")) == before


def test_lag_is_the_number_of_unread_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n" * 100)
    source = source_of(TEXT, tmp_path)
    reader = open_split(source, splits_of(source)[0])
    assert reader.lag() == 200
    reader.read(ReadBounds(50, 50))
    assert reader.lag() == 150
    read_all(reader)
    assert reader.lag() == 0


def test_builders_have_the_names_of_pyflink(tmp_path: Path) -> None:
    builder = FileSource.for_record_stream_format(TEXT, str(tmp_path))
    builder.set_file_enumerator(FileEnumeratorProvider.default_splittable_file_enumerator())
    source = builder.process_static_file_set().build()
    assert source.bounded
    assert source.split_size == 64 << 20
    quoted = FileSource.for_record_stream_format(CsvFormat({"a": str}), str(tmp_path))
    quoted.set_file_enumerator(FileEnumeratorProvider.default_splittable_file_enumerator())
    assert quoted.build().split_size is None
    with pytest.raises(InvalidJob):
        source_of(CsvFormat({"a": str}), tmp_path, split_size=10)
    with pytest.raises(InvalidJob):
        FileSource.for_record_stream_format(TEXT).build()
    with pytest.raises(InvalidJob):
        builder.monitor_continuously(0)
