"""Processes of a TaskManager send the records that a client asks for, until the client has enough."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.common.stacks.edge_records import EdgeQuestion
from penstock.common.stacks.listener import records_of_processes

PROGRAM = textwrap.dedent(
    """
    import os, sys, time
    from penstock.common.stacks.edge_records import EdgeRecord
    from penstock.common.stacks.listener import listen
    from penstock.common.stacks.sampling import nowhere

    def found(question):
        try:
            for number in range(int(sys.argv[2])):
                yield [EdgeRecord(number, 0, f"{sys.argv[3]}{number}")]
            until = time.monotonic() + question.seconds
            while time.monotonic() < until:
                time.sleep(0.02)
                yield []
        finally:
            print("ended", flush=True)

    listen(sys.argv[1], nowhere, found)
    print("listens", flush=True)
    time.sleep(600)
    """
)
SECONDS = 20.0
Start = Callable[[str, int], "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """A function that starts a process with a name and a number of records."""
    processes: list[subprocess.Popen[str]] = []

    def started(name: str, records: int) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", PROGRAM, str(tmp_path), str(records), name]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "listens\n"
        return process

    yield started
    for process in processes:
        process.kill()
        process.communicate()


def requested(folder: Path, count: int, seconds: float = SECONDS) -> tuple[list[str], float]:
    began = time.monotonic()
    found = records_of_processes(str(folder), EdgeQuestion("job", "uid", None, count, seconds))
    return [record.text for record in found], time.monotonic() - began


def test_a_process_without_the_records_is_not_awaited(tmp_path: Path, start: Start) -> None:
    without = start("none", 0)
    start("a", 3)
    texts, took_s = requested(tmp_path, 3)
    assert texts == ["a0", "a1", "a2"]
    assert took_s < SECONDS / 2
    assert without.stdout is not None
    assert without.stdout.readline() == "ended\n", "the process stops its search when the client has enough records"


def test_records_of_several_processes_count_together(tmp_path: Path, start: Start) -> None:
    start("a", 2)
    start("b", 2)
    texts, took_s = requested(tmp_path, 4)
    assert sorted(texts) == ["a0", "a1", "b0", "b1"]
    assert took_s < SECONDS / 2


def test_too_few_records_are_returned_after_the_time(tmp_path: Path, start: Start) -> None:
    start("a", 2)
    start("none", 0)
    texts, took_s = requested(tmp_path, 4, 0.5)
    assert texts == ["a0", "a1"]
    assert 0.5 <= took_s < SECONDS / 2


def test_no_process_is_no_error(tmp_path: Path) -> None:
    assert requested(tmp_path, 4)[0] == requested(tmp_path / "missing", 4)[0] == []
