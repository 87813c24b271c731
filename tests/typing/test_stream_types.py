"""Type checkers know the values of a stream from its functions, and find what cannot be."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).with_name("programs.py")
OVERRIDES = Path(__file__).with_name("overrides.py")
_SAID = re.compile(r"programs\.py:(\d+): (error|note): (.*)")
_MODULES = re.compile(r"\b(?:\w+\.)+(?=\w)")
_REVEALED = re.compile(r'(?:Revealed type is|Type of ".*" is) "(.*)"', re.DOTALL)

Said = dict[int, list[tuple[str, str]]]
"""The messages of each line: whether it is an error, and its text."""


def types_of_mypy() -> Said:
    mypy = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", str(PROGRAMS)]
    result = subprocess.run(mypy, cwd=ROOT, capture_output=True, text=True, timeout=600).stdout
    lines: Said = defaultdict(list)
    for line in result.splitlines():
        found = _SAID.search(line)
        if found is not None:
            lines[int(found[1])].append((found[2], found[3]))
    assert lines, result
    return lines


def types_of_pyright() -> Said:
    pyright = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, str(PROGRAMS)]
    result = subprocess.run(pyright, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert result.stdout.startswith("{"), result.stderr + result.stdout
    lines: Said = defaultdict(list)
    for found in json.loads(result.stdout)["generalDiagnostics"]:
        lines[found["range"]["start"]["line"] + 1].append((found["severity"], found["message"]))
    assert lines, result.stdout
    return lines


def check(lines: Said, *, texts: bool) -> None:
    """
    Args:
        texts: the errors have the words that stand beside the lines; else they need only be there.
    """
    for number, line in enumerate(PROGRAMS.read_text().splitlines(), start=1):
        code, _, expected = line.partition("  # R: ")
        if expected:
            [(_, text)] = lines.pop(number)
            revealed = _REVEALED.search(text)
            assert revealed is not None, f"{code}: {text}"
            assert _MODULES.sub("", revealed[1]) == expected, f"{code}: {text}"
            continue
        code, _, expected = line.partition("  # E: ")
        if expected:
            errors = [text for kind, text in lines.pop(number, []) if kind == "error"]
            assert errors, f"{code}: nothing is said of it"
            assert not texts or any(expected in text for text in errors), f"{code}: {errors}"
    assert not lines, f"unexpected: {dict(lines)}"


def test_mypy_reveals_the_types_and_finds_the_errors_that_stand_beside_the_lines() -> None:
    check(types_of_mypy(), texts=True)


def test_pyright_reveals_the_same_types_and_finds_errors_in_the_same_lines() -> None:
    check(types_of_pyright(), texts=False)


def test_overrides_may_rename_the_parameters_of_every_base_class() -> None:
    pyright = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, str(OVERRIDES)]
    result = subprocess.run(pyright, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert "0 errors, 0 warnings" in result.stdout, result.stderr + result.stdout
