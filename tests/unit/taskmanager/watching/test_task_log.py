"""Each record in the log of a worker process has its place in the job and contains no secret."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import TextIO, cast

import pytest

from penstock.common.logs.log_format import MARK, PRINTED
from penstock.taskmanager.watching.task_log import PlacedStream, place_on_stack

SECRET = "hunter2-hunter2"
WORKER = '''
import logging, sys, threading
from pathlib import Path
from penstock.datastream.functions import MapFunction
from penstock.jobmanager.runners import in_process
from tests.in_process import environment, run

run_level = in_process.run_level
def in_a_worker(*arguments, slots, clock, **more):
    """Run the level as Spark does: in the process's own slots, so with its own log."""
    return run_level(*arguments, **more)
in_process.run_level = in_a_worker

class Telling(MapFunction):
    def open(self, context):
        logging.getLogger("told").info("opened")
    def map(self, value):
        logging.getLogger("told").warning("value %d, key %s", value, "hunter2-hunter2")
        logging.getLogger("quiet").info("not wanted")
        thread = threading.Thread(target=lambda: logging.getLogger("told").info("from a thread"))
        thread.start()
        thread.join()
        try:
            raise ValueError("hunter2-hunter2 is wrong")
        except ValueError:
            logging.getLogger("told").exception("two\\nlines")
        return value

settings = dict(pair.split("=", 1) for pair in sys.argv[2:])
env = environment(Path(sys.argv[1]), **{"s3.secret-key": "hunter2-hunter2", **settings})
env.from_collection([7]).map(Telling()).name("Tell it").uid("tell").print()
run(env)
'''


@pytest.fixture
def logged(tmp_path: Path, request: pytest.FixtureRequest) -> list[bytes]:
    """The lines of a worker's log, with the settings of the test's parameter."""
    root = Path(__file__).parents[3]
    result = subprocess.run(
        [sys.executable, "-c", WORKER, str(tmp_path), *getattr(request, "param", ())],
        capture_output=True,
        check=True,
        cwd=root,
        env={"PYTHONPATH": ":".join([str(root), *filter(None, sys.path)]), "PATH": "/usr/bin:/bin"},
    )
    assert SECRET.encode() not in result.stderr, result.stderr.decode()
    return [line.removeprefix(MARK) for line in result.stderr.splitlines() if line.startswith(MARK)]


def test_records_of_a_function_name_its_operator(logged: list[bytes]) -> None:
    text = b"\n".join(logged).decode()
    assert " INFO told [good: Tell it #0, attempt 1]: opened" in text
    assert " WARNING told [good: Tell it #0, attempt 1]: value 7, key ******" in text
    assert " INFO told [good: #0, attempt 1]: from a thread" in text


def test_every_line_of_a_record_belongs_to_the_log(logged: list[bytes]) -> None:
    at = next(number for number, line in enumerate(logged) if line.endswith(b"]: two"))
    assert logged[at + 1] == b"lines"
    assert logged[at + 2].startswith(b"Traceback")
    assert b"ValueError: ****** is wrong" in logged


@pytest.mark.parametrize(
    "logged",
    [["penstock.log.format=json", "penstock.log.level=WARNING", "penstock.log.levels=told:INFO"]],
    indirect=True,
)
def test_format_and_levels_are_those_of_the_job(logged: list[bytes]) -> None:
    assert all(line.startswith(b"{") for line in logged)
    text = b"\n".join(logged).decode()
    assert '"operator": "Tell it", "uid": "tell"' in text
    assert '"message": "opened"' in text
    assert "not wanted" not in text


def test_a_record_outside_of_operators_has_no_place() -> None:
    assert place_on_stack() is None


def test_prints_leave_the_worker_as_whole_lines_with_a_mark() -> None:
    written = io.StringIO()
    stream = PlacedStream(written, partial(PRINTED.format, "out"))
    mark = PRINTED.format("out", "")
    print("a", 1, end="", file=cast("TextIO", stream))
    assert written.getvalue() == ""
    print("b\nc", file=cast("TextIO", stream))
    assert written.getvalue() == f"{mark}a 1b\n{mark}c\n"
    stream.write("\r12 %")
    stream.flush()
    stream.write(" done\n")
    assert written.getvalue().endswith(f"{mark}\r12 % done\n")


def test_threads_that_share_a_stream_lose_no_line_and_repeat_none() -> None:
    class Switching(io.StringIO):
        """A file whose writes let other threads run, like those of a terminal."""

        def write(self, text: str) -> int:
            time.sleep(0.0001)
            return super().write(text)

    written = Switching()
    stream = PlacedStream(written, lambda place: "")

    def tell(name: str) -> None:
        for number in range(100):
            stream.write(f"<{name}{number}>")
            stream.write("\n")

    threads = [threading.Thread(target=tell, args=(name,)) for name in "abcdef"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stream.flush()
    assert sorted(re.findall("<.*?>", written.getvalue())) == sorted(f"<{n}{i}>" for n in "abcdef" for i in range(100))
