"""Malformed CSV: no record is lost, and reading takes linear time."""

from __future__ import annotations

import csv
import datetime
import io
import random
import time
from pathlib import Path
from typing import Any

import pyarrow.csv as pa_csv
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common.errors import InvalidJob, RecordFormatError
from penstock.connectors.core.source import ReadBounds
from penstock.connectors.file.source import blocks
from penstock.connectors.file.source.file_source import FileSource
from penstock.connectors.formats.csv import CsvDialect, CsvFormat
from penstock.connectors.formats.csv.records import RecordScanner
from penstock.connectors.formats.json_lines import JsonLinesFormat
from penstock.connectors.formats.record_format import TextLineFormat
from tests.unit.connectors.support import read_source, read_with_restarts, splits_of

TEXTS = {"id": str, "text": str}


def source(path: Path, format: Any) -> FileSource:
    return FileSource.for_record_stream_format(format, str(path)).build()


def read(path: Path, format: Any, bounds: ReadBounds | None = None) -> tuple[list[Any], list[Any]]:
    found = source(path, format)
    return read_with_restarts(found, splits_of(found)[0], bounds or ReadBounds(1_000))


def csv_format(fields: Any = None, dialect: CsvDialect | None = None, **options: Any) -> CsvFormat:
    return CsvFormat(fields or TEXTS, dialect, record="tuple", **options)


@pytest.fixture
def unclosed(tmp_path: Path) -> tuple[Path, list[tuple[str, str]]]:
    """Return a file of 2,002 records with an unclosed quote in line 4."""
    good = [(str(n), f"value {n}") for n in range(2_001)]
    lines = [f"{a},{b}\n" for a, b in good]
    lines.insert(3, '3,"never closed\n')
    path = tmp_path / "a.csv"
    path.write_text("".join(lines))
    return path, good


def test_an_unclosed_quote_is_an_error_that_names_file_and_line(unclosed: Any) -> None:
    path, _ = unclosed
    with pytest.raises(
        RecordFormatError, match=rf"{path.name}', line 4, byte \d+: the quote that opens at character 3 is not closed"
    ):
        read(path, csv_format())


@pytest.mark.parametrize("bounds", [ReadBounds(10), ReadBounds(100_000)])
def test_an_unclosed_quote_makes_only_its_own_line_malformed(unclosed: Any, bounds: ReadBounds) -> None:
    path, good = unclosed
    values, rejected = read(path, csv_format(on_error="side-output"), bounds)
    assert values == good
    assert [(r.line, r.record) for r in rejected] == [(4, '3,"never closed')]
    assert "not closed" in rejected[0].reason


def test_an_unclosed_quote_does_not_pair_with_a_quote_of_a_later_record(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('1,"a\n2,"b"\n3,"c\nc"\n4,d\n')
    values, rejected = read(path, csv_format(on_error="side-output"))
    assert values == [("2", "b"), ("3", "c\nc"), ("4", "d")]
    assert [(r.line, r.record) for r in rejected] == [(1, '1,"a')]


def test_an_error_names_the_line_in_which_the_quote_opens(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('"a\nb","c\n')
    with pytest.raises(
        RecordFormatError, match=r"line 1, .* opens at character 4 of line 2 of the record is not closed"
    ):
        read(path, csv_format())


def test_a_quote_that_is_not_closed_within_the_limit_is_malformed(
    unclosed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, good = unclosed
    monkeypatch.setattr(blocks, "_LONGEST_RECORD", 5_000)
    values, rejected = read(path, csv_format(on_error="side-output"), ReadBounds(10))
    assert values == good
    assert len(rejected) == 1


def test_a_long_quoted_text_is_one_record(tmp_path: Path) -> None:
    text = "a line, with a separator\n" * 100_000
    path = tmp_path / "a.csv"
    path.write_text(f'1,"{text}"\n2,b\n')
    assert read(path, csv_format()) == ([("1", text), ("2", "b")], [])


def test_the_time_to_read_a_quoted_text_is_linear_in_its_length() -> None:
    scanner = RecordScanner(",", '"', None)
    for piece in (b"line\n", b'say ""hi"" \n'):
        took = []
        for count in (20_000, 320_000):
            data = b'1,"' + piece * count + b'"\n'
            begin = time.process_time()
            assert scanner.last_end(data, is_last=False) == len(data)
            took.append(time.process_time() - begin)
        assert took[1] < 100 * max(took[0], 0.001), "16 times the text takes about 16 times as long"


def test_malformed_lines_are_found_by_few_calls_of_the_parser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    parse = pa_csv.read_csv
    monkeypatch.setattr(pa_csv, "read_csv", lambda *a, **k: calls.append(1) or parse(*a, **k))
    path = tmp_path / "a.csv"
    path.write_text("".join(f"{n},x,1\n" if n % 10 == 0 else f"{n},{n}\n" for n in range(4_000)))
    values, rejected = read(path, csv_format({"a": int, "b": int}, on_error="side-output"), ReadBounds(100_000))
    assert (len(values), len(rejected)) == (3_600, 400)
    assert len(calls) < 20, "the parser says which lines have the wrong number of columns"
    calls.clear()
    path.write_text("".join(f"{n},x\n" if n % 10 == 0 else f"{n},{n}\n" for n in range(4_000)))
    values, rejected = read(path, csv_format({"a": int, "b": int}, on_error="side-output"), ReadBounds(100_000))
    assert (len(values), len(rejected)) == (3_600, 400)
    assert len(calls) < 450


@pytest.mark.parametrize("format", [csv_format, lambda **k: TextLineFormat(**k), lambda **k: JsonLinesFormat(**k)])
def test_a_line_that_is_too_long_goes_to_the_side_output(
    format: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "_LONGEST_RECORD", 5_000)
    monkeypatch.setattr(blocks, "_KEPT", 10)
    path = tmp_path / "a"
    good = b'{"id":1}' if format is not csv_format else b"1,a"
    path.write_bytes(good + b"\n" + b"x" * 100_000 + b"\n" + good + b"\n")
    values, rejected = read(path, format(on_error="side-output"), ReadBounds(10))
    assert len(values) == 2
    assert [(r.line, r.offset, r.record) for r in rejected] == [(2, len(good) + 1, "x" * 10)]
    with pytest.raises(RecordFormatError, match=r"line 2, .* the line is longer than"):
        read(path, format(), ReadBounds(10))


PIECES = st.lists(st.sampled_from([",", '"', "\n", "a", '""', "b,c", '"x"', "\r\n"]), max_size=30)


@settings(max_examples=150, deadline=None)
@given(pieces=PIECES, is_last=st.booleans(), escape=st.sampled_from([None, "\\"]))
def test_the_fast_and_the_slow_scan_agree_and_lose_no_byte(
    pieces: list[str], is_last: bool, escape: str | None
) -> None:
    data = "".join(pieces).encode()
    scanner = RecordScanner(",", '"', escape)
    found = scanner.scan(data, is_last=is_last)
    assert found == scanner._one_by_one(data, is_last=is_last)
    assert scanner.last_end(data, is_last=is_last) == (found.ends[-1] if found.ends else 0)
    assert found.ends == sorted(set(found.ends))
    assert not is_last or not data or found.ends[-1] == len(data)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_the_block_boundaries_do_not_change_the_result(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    choose = random.Random(seed)
    path.write_text(
        "".join(
            choose.choice(["a,b\n", '"x\ny",z\n', '"', "1,2,3\n", 'k,"v"\n', '5" nail,1\n', '"a""b",\n'])
            for _ in range(25)
        )
    )
    whole, *others = (
        read(path, csv_format(on_error="side-output"), ReadBounds(*bounds))
        for bounds in ((100_000, 1 << 20), (1, 1 << 20), (3, 40))
    )
    for other in others:
        assert other[0] == whole[0]
        assert [r[:-1] for r in other[1]] == [r[:-1] for r in whole[1]]


@settings(max_examples=40, deadline=None)
@given(rows=st.lists(st.tuples(*[st.text(st.sampled_from('ab,"\n ;é'), max_size=8)] * 2), min_size=1, max_size=20))
def test_output_of_pythons_csv_module_is_read(rows: list[tuple[str, str]], tmp_path_factory: Any) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(rows)
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    path.write_text(text.getvalue())
    assert read(path, csv_format(), ReadBounds(2)) == (rows, [])


def test_optional_columns_missing_in_a_file_are_none(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("b,a\n1,x\n")
    fields = {"a": str, "b": int, "note": str | None, "tags": list[str] | None}
    assert read_source(source(path, csv_format(fields, CsvDialect(header="names")))) == [("x", 1, None, None)]
    with pytest.raises(RecordFormatError, match="columns b, a, but the job declares a, b, note"):
        read_source(source(path, csv_format({"a": str, "b": int, "note": str}, CsvDialect(header="names"))))


@pytest.mark.parametrize(
    ("wrong", "message"), [({"header": True}, "cannot have header=True"), ({"quote": "ab"}, "quote")]
)
def test_a_wrong_option_of_csv_names_the_line_of_the_program(wrong: Any, message: str) -> None:
    with pytest.raises(InvalidJob, match=message) as refused:
        CsvDialect(**wrong)
    assert refused.value.location.startswith(f"{__file__}:")


def test_times_with_offsets_become_aware_datetimes(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("2020-01-01T00:00:00Z,x\n2020-01-01T02:00:00.5+02:00,y\n,z\n")
    format = CsvFormat({"at": datetime.datetime | None, "name": str})
    utc = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    assert read_source(source(path, format)) == [
        {"at": utc, "name": "x"},
        {"at": utc.replace(microsecond=500_000), "name": "y"},
        {"at": None, "name": "z"},
    ]
    path.write_text("2020-01-01T00:00:00,x\n")
    assert read_source(source(path, format)) == [{"at": datetime.datetime(2020, 1, 1), "name": "x"}]
    path.write_text("yesterday,x\n")
    with pytest.raises(RecordFormatError, match=r"line 1, .*yesterday"):
        read_source(source(path, format))


def test_utf_8_sig_is_accepted_as_a_charset(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("é\nb\n", "utf-8-sig")
    assert read_source(source(path, TextLineFormat("utf-8-sig"))) == ["é", "b"]
