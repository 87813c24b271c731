"""PyFlink's examples print the same output on Penstock and on Flink.

These are the examples of the DataStream API in the wheel that need no server and no table.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.environments import python_of, site_packages
from tests.integration.pyflink.run_programs import MARK

pytestmark = pytest.mark.slow

RUNNER = Path(__file__).parent / "run_programs.py"
PATIENCE_S = 500.0
_IMPORT = re.compile(r"^(\s*(?:from|import)\s+)pyflink\b", re.MULTILINE)
_SUBTASK = re.compile(r"^\d+> ")
_FLOAT = re.compile(r"\d+\.\d+")


@pytest.fixture(scope="module")
def examples() -> list[Path]:
    python_of("flink")
    found = sorted((site_packages("flink") / "pyflink" / "examples" / "datastream").rglob("*.py"))
    return [path for path in found if "connectors" not in path.parts and "pyflink.table" not in path.read_text()]


def as_compared(line: str) -> str:
    """Return the line for the comparison: without the number of the subtask, and with Flink's FLOAT precision of 32 bits."""
    return _FLOAT.sub(lambda number: f"{float(number[0]):.6g}", _SUBTASK.sub("", line))


def of_programs(output: str) -> dict[str, list[str]]:
    """Return the lines of each program, by the name of its file."""
    found: dict[str, list[str]] = {}
    for part in output.split(MARK)[1:]:
        path, *lines = part.splitlines()
        found[Path(path).name] = [as_compared(line) for line in lines]
    return found


def run(python: Path | str, *arguments: Path | str, **environment: str) -> dict[str, list[str]]:
    done = subprocess.run(
        [python, RUNNER, *arguments],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    return of_programs(done.stdout)


@pytest.mark.timeout(2 * PATIENCE_S)
def test_examples_of_pyflink_print_the_same_output_as_on_flink(examples: list[Path], tmp_path: Path) -> None:
    python = python_of("flink")
    on_flink = run(python, *examples, PATH=f"{python.parent}:{os.environ['PATH']}", PYTHONPATH="")
    changed = []
    for path in examples:
        changed.append(tmp_path / path.name)
        changed[-1].write_text(_IMPORT.sub(r"\1penstock", path.read_text()))
    here = run(sys.executable, "--in-process", *changed)
    assert len(on_flink) == len(examples) > 5
    for path in examples:
        one, other = here[path.name], on_flink[path.name]
        if not is_ordered(path.read_text()):
            one, other = sorted(one), sorted(other)
        assert one == other, path.name


def is_ordered(program: str) -> bool:
    """Return whether the output has an order: it comes from one subtask, and not from batch mode, which has no order of keys."""
    return "set_parallelism(1)" in program and "BATCH" not in program
