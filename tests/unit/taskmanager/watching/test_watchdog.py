"""A task that hangs reports its place. A task that exceeds its time limit reports a failure."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from penstock.functions.async_io.async_functions import AsyncFunctionDescriptor
from penstock.functions.async_io.async_retry_strategies import AsyncRetryStrategy
from penstock.taskmanager.operators.async_io.requests import RequestLoop
from penstock.taskmanager.protocol import STEP_TIMEOUT, TaskFailure, Whereabouts
from penstock.taskmanager.watching.watchdog import OPENING, PROCESSING, Watchdog

PATIENCE_S = 20.0
ORDERED = AsyncFunctionDescriptor.OutputMode.ORDERED


class Listener:
    """A listener that stores the reports of the watchdog, and releases the hanging function."""

    def __init__(self) -> None:
        self.reports: list[Whereabouts | TaskFailure] = []
        self.waits_for: type = Whereabouts
        self.go_on = threading.Event()

    def __call__(self, report: Whereabouts | TaskFailure) -> None:
        self.reports.append(report)
        if isinstance(report, self.waits_for):
            self.go_on.set()

    def users_function_that_waits(self) -> None:
        assert self.go_on.wait(PATIENCE_S)


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> Listener:
    monkeypatch.setattr("penstock.taskmanager.watching.watchdog.CHECK_INTERVAL_S", 0.01)
    monkeypatch.setattr("penstock.taskmanager.watching.watchdog.SLOW_S", 0.05)
    return Listener()


@pytest.fixture
def watchdog(listener: Listener) -> Iterator[Watchdog]:
    watchdog = Watchdog(listener, {OPENING: 0.1})
    yield watchdog
    watchdog.close()


def test_a_step_beyond_its_limit_is_a_failure_with_the_line(listener: Listener, watchdog: Watchdog) -> None:
    listener.waits_for = TaskFailure
    with watchdog.step(OPENING, "lookup", "job.py:40"):
        listener.users_function_that_waits()
    failure = cast("TaskFailure", listener.reports[-1])
    assert (failure.kind, failure.name, failure.location) == (STEP_TIMEOUT, "lookup", "job.py:40")
    assert "opening functions has not ended within 0.1 s" in failure.message
    assert __file__ in failure.message
    assert "assert self.go_on.wait(PATIENCE_S)" in failure.traceback
    assert "penstock/taskmanager" not in failure.traceback


def test_a_limit_of_0_means_no_limit(listener: Listener) -> None:
    watchdog = Watchdog(listener, {OPENING: 0.0})
    listener.waits_for = TaskFailure
    with watchdog.step(OPENING):
        assert not listener.go_on.wait(1.5)
    watchdog.close()
    assert not [report for report in listener.reports if isinstance(report, TaskFailure)]


def test_a_slow_batch_is_reported_and_is_not_a_failure(listener: Listener, watchdog: Watchdog) -> None:
    with watchdog.step("starts the watchdog"):
        pass
    watchdog.since = time.perf_counter()
    listener.users_function_that_waits()
    watchdog.since = 0.0
    where = cast("Whereabouts", listener.reports[0])
    assert where.step == PROCESSING
    assert where.seconds >= 0.05
    assert "users_function_that_waits" in where.line


def test_a_thread_that_waits_for_another_reports_the_place_of_that_thread(
    listener: Listener, watchdog: Watchdog
) -> None:
    """An async function runs on a separate event loop, and a barrier waits for its work there."""

    async def never(value: int) -> list[int]:
        return [value]

    descriptor = AsyncFunctionDescriptor(never, 60_000, 1, AsyncRetryStrategy.no_restart(), ORDERED)
    loop = RequestLoop(descriptor, None, lambda: None)
    loop.start(lambda: None)
    with watchdog.step("starts the watchdog"):
        pass
    watchdog.since = time.perf_counter()
    loop.call(listener.users_function_that_waits)
    watchdog.since = 0.0
    loop.close(lambda: None)
    assert "users_function_that_waits" in cast("Whereabouts", listener.reports[0]).line


def test_a_step_within_a_batch_leaves_the_batch_as_it_was(listener: Listener, watchdog: Watchdog) -> None:
    watchdog.since = time.perf_counter()
    with watchdog.step("a short one", "lookup"):
        pass
    listener.users_function_that_waits()
    where = cast("Whereabouts", listener.reports[0])
    assert (where.step, where.operator) == (PROCESSING, "")


def test_a_step_that_ends_in_time_is_not_reported(
    listener: Listener, watchdog: Watchdog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.taskmanager.watching.watchdog.SLOW_S", 0.5)  # a busy machine may pause a step
    with watchdog.step(OPENING):
        pass
    for _ in range(60):  # all steps together take longer than the limit
        watchdog.since = time.perf_counter()
        time.sleep(0.01)
        watchdog.since = 0.0
    assert not listener.reports


def test_code_that_holds_the_gil_is_ended_with_its_stack(tmp_path: Path) -> None:
    """No Python code runs in such a process any more, and neither does its watchdog."""
    program = textwrap.dedent("""
        import ctypes
        from penstock.taskmanager.watching import watchdog
        watchdog.GRACE_S = 0.5
        dog = watchdog.Watchdog(print, {watchdog.OPENING: 0.5})
        with dog.step(watchdog.OPENING):
            ctypes.PyDLL(None).sleep(60)
    """)
    script = tmp_path / "keeps_the_lock.py"
    script.write_text(program)
    began = time.monotonic()
    environment = {"PYTHON_FAULTHANDLER_DIR": str(tmp_path), "PYTHONPATH": ":".join(sys.path)}
    with subprocess.Popen([sys.executable, str(script)], env=environment) as process:
        assert process.wait(50) == 1
    assert time.monotonic() - began < 50
    dump = (tmp_path / str(process.pid)).read_text()
    assert "Timeout" in dump
    assert f'File "{script}", line 7' in dump


def test_a_step_is_never_combined_with_the_time_of_another_one(listener: Listener) -> None:
    """A batch of one minute must never appear as one minute of opening functions."""
    seen: list[tuple[str, float]] = []

    class Recorded(Watchdog):
        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            if name in {"_step", "since"} and "_step" in self.__dict__:
                seen.append((self._step, self.since))

    watchdog = Recorded(listener, {OPENING: 0.1})
    watchdog.since = long_ago = time.perf_counter() - 60
    with watchdog.step(OPENING, "lookup"):
        pass
    watchdog.close()
    assert (PROCESSING, long_ago) in seen[-3:]
    assert not [since for step, since in seen if step == OPENING and 0 < since <= long_ago]
    assert not listener.reports


def test_a_process_above_its_memory_limit_reports_the_line_and_ends() -> None:
    source = """
import json, sys, time
from penstock.taskmanager.watching.watchdog import Watchdog

def report(failure):
    print(json.dumps([failure.kind, failure.code, failure.message, failure.remedy]), flush=True)

def grow(kept):
    while True:
        kept.append(bytearray(b"x") * (1 << 20))
        time.sleep(0.001)

watchdog = Watchdog(report, {}, 150 << 20)
with watchdog.step("processing"):
    grow([])
"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    kind, code, message, remedy = json.loads(done.stdout)
    assert (kind, code) == ("MemoryLimitExceeded", "MEMORY_LIMIT")
    assert "above its limit of 150 MiB (penstock.program.memory.worker-limit)" in message
    assert "(at <string>:" in message
    assert "rocksdb" in remedy
