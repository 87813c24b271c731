"""Type checkers know the values of a stream from its functions, and find what cannot be."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).with_name("programs.py")
_SAID = re.compile(r"programs\.py:(\d+): (error|note): (.*)")
_MODULES = re.compile(r"\b(?:\w+\.)+(?=\w)")


def said() -> dict[int, list[tuple[str, str]]]:
    """What mypy says of each line."""
    mypy = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", str(PROGRAMS)]
    told = subprocess.run(mypy, cwd=ROOT, capture_output=True, text=True, timeout=600).stdout
    lines: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for line in told.splitlines():
        found = _SAID.search(line)
        if found is not None:
            lines[int(found[1])].append((found[2], found[3]))
    assert lines, told
    return lines


def test_mypy_reveals_the_types_and_finds_the_errors_that_stand_beside_the_lines() -> None:
    lines = said()
    for number, line in enumerate(PROGRAMS.read_text().splitlines(), start=1):
        code, _, expected = line.partition("  # R: ")
        if expected:
            [(kind, text)] = lines.pop(number)
            revealed = _MODULES.sub("", text.partition('"')[2].rpartition('"')[0])
            assert (kind, revealed) == ("note", expected), f"{code}: {text}"
            continue
        code, _, expected = line.partition("  # E: ")
        if expected:
            errors = [text for kind, text in lines.pop(number) if kind == "error"]
            assert any(expected in text for text in errors), f"{code}: {errors}"
    assert not lines, f"unexpected: {dict(lines)}"
