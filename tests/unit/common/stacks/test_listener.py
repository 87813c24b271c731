"""Every process of a TaskManager tells what it does at a socket of its own, below a folder of any length."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.common.stacks.listener import Question, ask_all, listen, within
from penstock.common.stacks.sampling import Place, Sample, Stack, nowhere

PROGRAM = textwrap.dedent(
    """
    import os, sys
    from penstock.common.stacks.listener import listen
    from penstock.common.stacks.sampling import Place

    def counts():
        while True:
            sum(range(1000))

    if child := os.fork():  # as Spark's daemon does
        os.waitpid(child, 0)
        sys.exit()
    listen(sys.argv[1], lambda frames: Place("job", "0", 1))
    print(os.getpid(), flush=True)
    counts()
    """
)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """With a path that no socket's address has room for."""
    return str(tmp_path / ("long" * 30) / "stacks")


@pytest.fixture
def pid(folder: str) -> Iterator[int]:
    """Of a process that counts without end."""
    with subprocess.Popen([sys.executable, "-c", PROGRAM, folder], stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        found = int(started.stdout.readline())
        yield found
        with suppress(ProcessLookupError):
            os.kill(found, signal.SIGKILL)


def test_another_process_is_looked_into(folder: str, pid: int) -> None:
    samples = ask_all(folder, Question(0.5, 100))
    assert {seen.stack.place for seen in samples} == {Place("job", "0", 1)}
    counting = [seen for seen in samples if any("__main__.counts:" in frame for frame in seen.stack.frames)]
    seen_often = sum(seen.count for seen in counting)
    assert seen_often >= 10
    assert sum(seen.count for seen in counting if seen.stack.on_cpu) > seen_often / 2


def test_one_that_was_killed_is_swept(folder: str, pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    while Path(f"/proc/{pid}").exists():
        time.sleep(0.01)
    assert os.listdir(folder) == [f"{pid}.stacks"]
    deadline = time.monotonic() + 30
    while os.listdir(folder) and time.monotonic() < deadline:  # it takes a moment to end
        ask_all(folder, Question())
    assert os.listdir(folder) == []
    assert ask_all(folder, Question()) == []


def test_the_others_answer_when_one_hangs(folder: str, pid: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.common.stacks.listener.PATIENCE_S", 0.3)
    monkeypatch.chdir(folder)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind("1.stacks")
        silent.listen()
        assert [seen.stack.place for seen in ask_all(folder, Question())] == [Place("job", "0", 1)]


def test_what_is_no_question_ends_only_its_connection(folder: str, pid: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    for said in (b"", b"GET / HTTP/1.1\r\n\r\n", json.dumps({"seconds": "x"}).encode(), b"[" * 5000):
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(f"{pid}.stacks")
            stranger.sendall(said)
            stranger.shutdown(socket.SHUT_WR)
            with suppress(ConnectionResetError):  # it has not read all
                assert stranger.recv(100) == b""
    assert ask_all(folder, Question()) != []


def test_one_look_does_not_wait_for_somebodys_minute(folder: str, pid: int) -> None:
    with ThreadPoolExecutor() as pool:
        long = pool.submit(ask_all, folder, Question(4.0))
        time.sleep(0.3)
        began = time.monotonic()
        assert ask_all(folder, Question()) != []
        assert time.monotonic() - began < 3
        assert long.result() != []


def test_a_process_that_has_no_file_left_answers_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.common.stacks.listener._PAUSE_S", 0.01)
    accept, refused = socket.socket.accept, [OSError(errno.EMFILE, "Too many open files")] * 3

    def accepting(server: socket.socket) -> Any:
        if refused:
            raise refused.pop()
        return accept(server)

    monkeypatch.setattr(socket.socket, "accept", accepting)
    listen(str(tmp_path), nowhere)
    assert ask_all(str(tmp_path), Question()) != []
    assert not refused


def test_nobody_there_is_no_error(tmp_path: Path) -> None:
    assert ask_all(str(tmp_path / "nothing"), Question()) == []


def test_an_answer_has_the_most_frequent_that_fit() -> None:
    samples = [Sample(Stack(Place(), "t", True, ("f" * 100,)), 10 - i) for i in range(10)]
    assert [seen.count for seen in within(samples, 3 * len(msgspec.msgpack.encode(samples[0])) + 50)] == [10, 9, 8]


def test_an_answer_has_room_for_letters_of_many_bytes_and_for_others_beside_an_endless_recursion() -> None:
    samples = [Sample(Stack(Place(), "线" * 1000, True, ("函数" * count,)), count) for count in (9000, 8, 7)]
    kept = within(samples, 9000)
    assert [seen.count for seen in kept] == [8, 7]
    assert len(msgspec.msgpack.encode(kept)) <= 9010
