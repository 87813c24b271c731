"""Log files have a limited size, and a reader misses no line that is still available."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.common.logs.log_file import LogFile
from penstock.common.logs.redaction import Redaction

if TYPE_CHECKING:
    from pathlib import Path


def lines(first: int, last: int) -> bytes:
    return b"".join(b"line %06d\n" % number for number in range(first, last))


def read_on(file: LogFile, start: int, most: int = 100) -> tuple[bytes, int]:
    found = b""
    while True:
        part = file.read(start, most)
        found += part.data
        start = part.end
        if not part.data:
            return found, start


@pytest.mark.parametrize("files", [1, 2, 3])
def test_files_do_not_exceed_their_size_limit(tmp_path: Path, files: int) -> None:
    file = LogFile(str(tmp_path / "log"), 1_000, files)
    for number in range(1_000):
        file.write(lines(number, number + 1))
    names = ["log", *(f"log.{number}" for number in range(1, files))]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert all(path.stat().st_size <= 1_000 for path in tmp_path.iterdir())
    assert file.kept == sum(path.stat().st_size for path in tmp_path.iterdir())
    kept, _ = read_on(file, 0)
    assert kept == lines(1_000 - len(kept) // 12, 1_000)


def test_a_reader_misses_no_line_however_often_the_file_restarts(tmp_path: Path) -> None:
    file = LogFile(str(tmp_path / "log"), 500, 2)
    found, at = b"", 0
    for number in range(0, 600, 30):
        file.write(lines(number, number + 30))
        more, at = read_on(file, at)
        found += more
    assert found == lines(0, 600)


def test_a_late_reader_continues_with_the_remaining_lines(tmp_path: Path) -> None:
    file = LogFile(str(tmp_path / "log"), 500, 2)
    file.write(lines(0, 1))
    _, at = read_on(file, 0)
    for number in range(1, 500):
        file.write(lines(number, number + 1))
    part = file.read(at, 10_000)
    assert part.start > at
    assert part.data == lines(500 - len(part.data) // 12, 500)
    assert part.end == part.size == 500 * 12


def test_the_tail_starts_with_a_whole_line(tmp_path: Path) -> None:
    file = LogFile(str(tmp_path / "log"))
    file.write(lines(0, 100))
    assert file.read(-30, 1_000).data == lines(98, 100)
    assert file.read(-10_000, 10_000).data == lines(0, 100)


def test_a_part_ends_with_a_whole_line_but_a_long_line_is_returned_in_pieces(tmp_path: Path) -> None:
    file = LogFile(str(tmp_path / "log"))
    file.write(lines(0, 10) + b"x" * 1_000 + b"\n")
    assert file.read(0, 30).data == lines(0, 2)
    assert read_on(file, 0)[0] == lines(0, 10) + b"x" * 1_000 + b"\n"


def test_a_full_disk_does_not_block_the_log(tmp_path: Path) -> None:
    file = LogFile(str(tmp_path / "missing" / "log"))
    file.write(b"line\n")
    assert file.read(0, 100).data == b""


def test_written_lines_contain_no_secret(tmp_path: Path) -> None:
    file = LogFile(str(tmp_path / "log"), redaction=Redaction(["hunter22"]))
    file.write(b"the password is hunter22\n")
    assert (tmp_path / "log").read_bytes() == b"the password is ******\n"
