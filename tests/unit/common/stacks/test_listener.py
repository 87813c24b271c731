"""Every process of a TaskManager reports its stacks at a separate socket. Its folder may have a path of any length."""

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

from penstock.common.stacks.listener import Question, listen, sample_processes, within
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
    """A folder whose path is too long for the address of a socket."""
    return str(tmp_path / ("long" * 30) / "stacks")


@pytest.fixture
def pid(folder: str) -> Iterator[int]:
    """The id of a process that counts without end."""
    with subprocess.Popen([sys.executable, "-c", PROGRAM, folder], stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        found = int(started.stdout.readline())
        yield found
        with suppress(ProcessLookupError):
            os.kill(found, signal.SIGKILL)


def test_another_process_is_sampled(folder: str, pid: int) -> None:
    samples = sample_processes(folder, Question(0.5, 100))
    assert {seen.stack.place for seen in samples} == {Place("job", "0", 1)}
    counting = [seen for seen in samples if any("__main__.counts:" in frame for frame in seen.stack.frames)]
    seen_often = sum(seen.count for seen in counting)
    assert seen_often >= 10
    assert sum(seen.count for seen in counting if seen.stack.on_cpu) > seen_often / 2


def test_the_socket_of_a_killed_process_is_removed(folder: str, pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    while Path(f"/proc/{pid}").exists():
        time.sleep(0.01)
    assert os.listdir(folder) == [f"{pid}.stacks"]
    deadline = time.monotonic() + 30
    while os.listdir(folder) and time.monotonic() < deadline:  # the process takes a moment to end
        sample_processes(folder, Question())
    assert os.listdir(folder) == []
    assert sample_processes(folder, Question()) == []


def test_the_other_processes_answer_if_one_hangs(folder: str, pid: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.common.stacks.listener.PATIENCE_S", 0.3)
    monkeypatch.chdir(folder)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind("1.stacks")
        silent.listen()
        assert [seen.stack.place for seen in sample_processes(folder, Question())] == [Place("job", "0", 1)]


def test_an_invalid_request_ends_only_its_connection(folder: str, pid: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    for request in (b"", b"GET / HTTP/1.1\r\n\r\n", json.dumps({"seconds": "x"}).encode(), b"[" * 5000):
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(f"{pid}.stacks")
            stranger.sendall(request)
            stranger.shutdown(socket.SHUT_WR)
            with suppress(ConnectionResetError):  # the process has not read everything
                assert stranger.recv(100) == b""
    assert sample_processes(folder, Question()) != []


def test_a_single_sample_does_not_wait_for_a_request_of_one_minute(folder: str, pid: int) -> None:
    with ThreadPoolExecutor() as pool:
        long = pool.submit(sample_processes, folder, Question(4.0))
        time.sleep(0.3)
        began = time.monotonic()
        assert sample_processes(folder, Question()) != []
        assert time.monotonic() - began < 3
        assert long.result() != []


def test_a_process_without_free_file_descriptors_answers_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.common.stacks.listener._PAUSE_S", 0.01)
    accept, refused = socket.socket.accept, [OSError(errno.EMFILE, "Too many open files")] * 3

    def accepting(server: socket.socket) -> Any:
        if refused:
            raise refused.pop()
        return accept(server)

    monkeypatch.setattr(socket.socket, "accept", accepting)
    listen(str(tmp_path), nowhere)
    assert sample_processes(str(tmp_path), Question()) != []
    assert not refused


def test_a_missing_process_is_not_an_error(tmp_path: Path) -> None:
    assert sample_processes(str(tmp_path / "nothing"), Question()) == []


def test_an_answer_contains_the_most_frequent_stacks_that_fit() -> None:
    samples = [Sample(Stack(Place(), "t", True, ("f" * 100,)), 10 - i) for i in range(10)]
    assert [seen.count for seen in within(samples, 3 * len(msgspec.msgpack.encode(samples[0])) + 50)] == [10, 9, 8]


def test_an_answer_fits_multibyte_letters_and_other_stacks_next_to_an_endless_recursion() -> None:
    samples = [Sample(Stack(Place(), "线" * 1000, True, ("函数" * count,)), count) for count in (9000, 8, 7)]
    kept = within(samples, 9000)
    assert [seen.count for seen in kept] == [8, 7]
    assert len(msgspec.msgpack.encode(kept)) <= 9010
