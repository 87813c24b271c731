from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import penstock
from penstock.common.errors import InvalidJob
from penstock.connectors.simple.collect import CollectSink, decode_collected, encode_collected
from penstock.connectors.simple.print import PrintSink
from tests.in_process import environment, run
from tests.unit.connectors.support import writer_context


def lines_of(sink: PrintSink, subtask: int, parallelism: int) -> list[str]:
    lines: list[str] = []
    context = writer_context(subtask, parallelism, operator=SimpleNamespace(print_line=lines.append))
    sink.create_writer(context, []).write([("a", 1), None], None, 0)
    return lines


def test_lines_have_flinks_prefix() -> None:
    assert lines_of(PrintSink(), 0, 1) == ["('a', 1)", "None"]
    assert lines_of(PrintSink(), 1, 3)[1] == "2> None"
    assert lines_of(PrintSink("alerts"), 0, 1)[1] == "alerts> None"
    assert lines_of(PrintSink("alerts"), 2, 3)[1] == "alerts:3> None"


def test_lines_are_printed_by_the_process_without_a_task(capsys: pytest.CaptureFixture[str]) -> None:
    PrintSink().create_writer(writer_context(), []).write([1], None, 0)
    PrintSink("e", to_stderr=True).create_writer(writer_context(), []).write([2], None, 0)
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("1\n", "e> 2\n")


def test_a_stream_can_be_printed_to_either_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env = environment(tmp_path)
    numbers = env.from_collection([1, 2])
    numbers.print("out")
    numbers.print_to_err("err", text=lambda number: f"<{number}>")
    run(env)
    captured = capsys.readouterr()
    assert [line for line in captured.out.splitlines() if "> " in line] == ["out> 1", "out> 2"]
    assert [line for line in captured.err.splitlines() if "err> " in line] == ["err> <1>", "err> <2>"]


def test_collected_records_arrive_in_order() -> None:
    taken: list[Any] = []
    context = writer_context(operator=SimpleNamespace(results=lambda uid, values: taken.append((uid, values))))
    CollectSink("c").create_writer(context, []).write([1, ("a", {"b"})], None, 0)
    ((uid, values),) = taken
    assert uid == "c"
    assert list(map(decode_collected, values)) == [1, ("a", {"b"})]
    with pytest.raises(InvalidJob, match="execute_and_collect"):
        CollectSink("c").create_writer(writer_context(), [])


def test_a_class_of_the_main_script_is_found_again() -> None:
    program = """
from dataclasses import dataclass
from penstock.connectors.simple.collect import decode_collected, encode_collected

@dataclass
class Reading:
    id: str

# what a worker has: a class that came by value, not the object that the name leads to
Copy = dataclass(type("Reading", (), {"__annotations__": {"id": str}, "__module__": "__main__"}))
encoded = encode_collected([Copy("a")])
del Copy
assert decode_collected(encoded) == [Reading("a")], decode_collected(encoded)
del Reading
try:
    decode_collected(encoded)
except Exception as error:
    assert "'Reading' of the main script" in str(error), error
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(Path(p).parent.as_posix() for p in penstock.__path__)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr


def test_a_record_that_cannot_be_collected_is_named() -> None:
    with pytest.raises(InvalidJob, match="cannot be collected"):
        encode_collected(lambda: None)
