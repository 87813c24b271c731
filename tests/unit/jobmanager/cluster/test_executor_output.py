"""What executors write is copied line by line, once, and takes no more room than it may."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.jobmanager.cluster.executor.executor_output import BoundedFile, copy_output

if TYPE_CHECKING:
    from pathlib import Path


def copied(*pieces: bytes, prefix: str = "[7] ") -> bytes:
    found: list[bytes] = []
    read, write = os.pipe()
    thread = copy_output(os.fdopen(read, "rb"), prefix, found.append)
    for piece in pieces:
        os.write(write, piece)
    os.close(write)
    thread.join(10)
    assert not thread.is_alive()
    return b"".join(found)


def test_lines_have_the_executor_in_front_however_they_come() -> None:
    assert copied(b"one\ntw", b"o\n\n", b"th\xffree\n") == b"[7] one\n[7] two\n[7] \n[7] th\xffree\n"


def test_the_last_line_needs_no_end() -> None:
    assert copied(b"Traceback\nSegmentation fault") == b"[7] Traceback\n[7] Segmentation fault\n"


def test_a_line_without_an_end_is_copied_in_pieces() -> None:
    out = copied(*[b"x" * 10_000] * 30)
    assert out.count(b"x") == 300_000
    assert 1 < out.count(b"\n") < 10


def test_a_file_does_not_grow_beyond_its_bound(tmp_path: Path) -> None:
    file = BoundedFile(str(tmp_path / "log"), 1_000)
    for number in range(1_000):
        file.write(b"%04d\n" % number)
    kept = (tmp_path / "log.1").read_bytes() + (tmp_path / "log").read_bytes()
    assert kept.endswith(b"0998\n0999\n")
    assert 1_000 < len(kept) < 2_100
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "log.1"]


def test_a_disk_that_takes_nothing_holds_up_nobody(tmp_path: Path) -> None:
    BoundedFile(str(tmp_path / "missing" / "log")).write(b"line\n")
