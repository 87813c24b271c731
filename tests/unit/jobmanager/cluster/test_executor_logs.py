"""What executors write is copied line by line, once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.jobmanager.cluster.executor_logs import ExecutorLogs

if TYPE_CHECKING:
    from pathlib import Path


class Logs:
    """A Worker's folder, and what was copied from it."""

    def __init__(self, folder: Path) -> None:
        self.executor = folder / "app-1" / "0"
        self.executor.mkdir(parents=True)
        self.copied: list[bytes] = []
        self.logs = ExecutorLogs(folder, self.copied.append)

    def say(self, text: bytes, file: str = "stdout") -> None:
        with (self.executor / file).open("ab") as out:
            out.write(text)

    def copy(self) -> list[bytes]:
        self.copied.clear()
        self.logs.copy()
        return self.copied


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    return Logs(tmp_path)


def test_lines_are_copied_once_and_whole(logs: Logs) -> None:
    logs.say(b"one\ntw")
    assert logs.copy() == [b"[0] one\n"]
    logs.say(b"o\nthree\n")
    assert logs.copy() == [b"[0] two\n", b"[0] three\n"]
    assert logs.copy() == []


def test_both_streams_and_nothing_of_sparks_own(logs: Logs) -> None:
    logs.say(b'Spark Executor Command: "java"\n========================================\n\nfailed\n', "stderr")
    logs.say(b"printed\n")
    assert logs.copy() == [b"[0] failed\n", b"[0] printed\n"]


def test_file_that_was_rolled_is_read_to_its_end(logs: Logs) -> None:
    logs.say(b"one\n")
    assert logs.copy() == [b"[0] one\n"]
    logs.say(b"two\n")
    (logs.executor / "stdout").rename(logs.executor / "stdout--rolled")
    logs.say(b"three\n")
    assert logs.copy() == [b"[0] two\n", b"[0] three\n"]


def test_a_file_that_was_rolled_with_much_in_it_is_read_to_its_end(logs: Logs) -> None:
    logs.say(b"one\n")
    logs.copy()
    logs.say(b"%0999d\n" % 0 * 3_000)
    (logs.executor / "stdout").rename(logs.executor / "stdout--rolled")
    logs.say(b"last\n")
    assert len(copied := logs.copy()) == 3_001
    assert copied[-1] == b"[0] last\n"


def test_files_of_an_application_that_is_gone_are_forgotten(logs: Logs) -> None:
    logs.say(b"one\n")
    logs.copy()
    (logs.executor / "stdout").unlink()
    assert logs.copy() == []
    logs.say(b"again\n")
    assert logs.copy() == [b"[0] again\n"]


def test_line_without_an_end_is_copied_in_pieces(logs: Logs) -> None:
    logs.say(b"x" * 200_000)
    assert sum(len(piece) for piece in logs.copy()) > 100_000
