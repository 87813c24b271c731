"""The output of executors: copied line by line, once, and with a limited size."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

import pytest

from penstock.common.errors import UserFunctionError
from penstock.common.logs.log_format import MARK, PRINTED
from penstock.common.logs.log_settings import LogSettings
from penstock.common.logs.redaction import Redaction
from penstock.jobmanager.cluster.executor.console import Console, ConsoleHandler
from penstock.jobmanager.cluster.executor.executor_output import ExecutorOutput, copy_output

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


def test_lines_start_with_the_executor_for_any_chunks() -> None:
    assert copied(b"one\ntw", b"o\n\n", b"th\xffree\n") == b"[7] one\n[7] two\n[7] \n[7] th\xffree\n"


def test_the_last_line_needs_no_line_end() -> None:
    assert copied(b"Traceback\nSegmentation fault") == b"[7] Traceback\n[7] Segmentation fault\n"


def test_a_line_without_an_end_is_copied_in_pieces() -> None:
    out = copied(*[b"x" * 10_000] * 30)
    assert out.count(b"x") == 300_000
    assert 1 < out.count(b"\n") < 10


@pytest.fixture
def output(tmp_path: Path) -> ExecutorOutput:
    return ExecutorOutput(str(tmp_path), "taskmanager", LogSettings(), Redaction(["hunter22"]))


def test_log_and_stdout_are_separated(output: ExecutorOutput) -> None:
    output.take(
        MARK
        + b"2026 INFO m: logged\nprinted\n26/01/31 12:00:00 WARN TaskSetManager: lost\n"
        + b"java.io.IOException: gone\n\tat org.apache.spark.X.y(X.java:1)\nprinted, too\n"
    )
    assert output.stdout.read(0, 1_000).data == b"printed\nprinted, too\n"
    assert output.log.read(0, 1_000).data == (
        b"2026 INFO m: logged\n26/01/31 12:00:00 WARN TaskSetManager: lost\njava.io.IOException: gone\n"
        b"\tat org.apache.spark.X.y(X.java:1)\n"
    )


def test_a_log_record_after_text_without_a_line_end_is_in_the_log(
    output: ExecutorOutput, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    output.take_with_prefix("[7] ")(b"\r12 %" + MARK + b"warned\n" + b" 13 %\n" + b"a\x1eb\n")
    assert output.log.read(0, 100).data == b"warned\n"
    assert output.stdout.read(0, 100).data == b"\r12 %\n 13 %\na\x1eb\n"
    assert b"[7] warned\n" in capfdbinary.readouterr().out


def test_secrets_are_neither_stored_nor_printed(
    output: ExecutorOutput, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    output.take_with_prefix("[7] ")(MARK + b"key hunter22\nprinted hunter22\n")
    assert output.log.read(0, 100).data == b"key ******\n"
    assert output.stdout.read(0, 100).data == b"printed ******\n"
    assert capfdbinary.readouterr().out == b"[7] key ******\n[7] printed ******\n"


def test_a_console_shows_prints_and_logs_with_operator_and_subtask(
    output: ExecutorOutput, capsys: pytest.CaptureFixture[str]
) -> None:
    output.console = Console()
    stamp = MARK + b"2026-01-31 12:00:00,123 "
    output.take(
        PRINTED.format("out", "Map #1").encode()
        + b"got hunter22\n"
        + PRINTED.format("err", "").encode()
        + b"odd\n"
        + stamp
        + b"INFO mine [orders: Map #1, attempt 2]: noted\n"
        + stamp
        + b"INFO penstock.taskmanager.level [orders: attempt 2]: opened\n"
        + stamp
        + b"WARNING penstock.state [orders: attempt 2]: slow\n"
        + b"%3|1|FAIL|rdkafka#1\n26/01/31 12:00:00 WARN TaskSetManager: lost\n"
    )
    shown = capsys.readouterr()
    assert shown.out == "[Map #1] got ******\n"
    assert shown.err == "odd\n[Map #1] INFO mine: noted\nWARNING penstock.state: slow\n"
    assert output.stdout.read(0, 1_000).data == b"got ******\nodd\n%3|1|FAIL|rdkafka#1\n"


def test_a_failure_is_shown_without_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    handler = ConsoleHandler(Redaction(["hunter22"]))
    trace = "Traceback (most recent call last):\n  File"
    error = UserFunctionError("boom")
    given = (type(error), error, None)
    record = logging.LogRecord("m", logging.WARNING, "f", 1, "failed: %s\n%s", ("hunter22", trace), given)
    handler.handle(record)
    assert capsys.readouterr().err == "WARNING failed: ******\n"
