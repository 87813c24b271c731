"""The recorder of terminals: real output with its colours becomes an animated SVG. The picture of the README shows real commands."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tools.terminal import COMMANDS, ROWS, TYPING_S, Line, draw, record

PICTURE = Path(__file__).resolve().parents[2] / "docs/pictures/terminal.svg"
SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    """Return the lines of a picture. A prompt and its command are one line."""
    lines: dict[str, str] = {}
    for text in ET.fromstring(svg).iter(f"{SVG}text"):
        lines[text.attrib["y"]] = " ".join(filter(None, [lines.get(text.attrib["y"]), "".join(text.itertext())]))
    return list(lines.values())


def test_commands_run_in_order_in_a_terminal_and_a_folder(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    here = (
        f"{shlex.quote(sys.executable)} -c 'import os, sys; print(os.path.basename(os.getcwd()), sys.stdout.isatty())'"
    )
    lines = record([here, "cd inner", here], tmp_path)
    assert [line.text for line in lines] == [here, f"{tmp_path.name} True", "cd inner", here, "inner True"]
    assert [line.is_command for line in lines] == [True, False, True, True, False]
    times = [line.at for line in lines]
    assert times == sorted(times)
    assert times[1] >= times[0] + len(here) * TYPING_S


def test_a_long_pause_is_shortened_and_a_line_without_an_end_is_kept(tmp_path: Path) -> None:
    _, first, last = record(["sh -c 'echo first; sleep 1.5; printf last'"], tmp_path)
    assert (first.text, last.text) == ("first", "last")
    assert 0.5 < last.at - first.at < 1.2


def test_a_command_that_fails_is_an_error_with_its_output(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError) as failure:
        record(["sh -c 'echo broken >&2; exit 3'"], tmp_path)
    assert (failure.value.returncode, failure.value.output) == (3, "broken")


def test_the_picture_shows_each_line_at_its_time_and_scrolls_to_the_end() -> None:
    output = [Line(2.0 + number, f"line {number} <&>") for number in range(ROWS)]
    svg = draw([Line(1.0, "ls", is_command=True), *output], "title")
    assert texts(svg) == ["$ ls", *(line.text for line in output)]
    duration = output[-1].at + 4
    shown = {
        int(n): float(at) for n, at in re.findall(r"@keyframes l(\d+)\{0%\{opacity:0\}([\d.]+)%\{opacity:1\}\}", svg)
    }
    assert shown[3] == pytest.approx(100 * 4.0 / duration, abs=0.01)
    assert re.findall(r"translateY\(-(\d+)px\);animation", svg) == ["20"]


def test_colours_of_the_terminal_become_classes() -> None:
    svg = draw(
        [Line(1.0, "x", is_command=True), Line(2.0, "\x1b[32m\x1b[1m4 passed\x1b[0m\x1b[32m in 1s\x1b[0m")], "title"
    )
    assert '<tspan class="bold green">4 passed</tspan><tspan class="green"> in 1s</tspan>' in svg


def test_the_picture_of_the_readme_is_small_and_shows_these_commands() -> None:
    svg = PICTURE.read_text()
    assert len(svg) < 150_000
    assert [line.removeprefix("$ ") for line in texts(svg) if line.startswith("$ ")] == list(COMMANDS)
    assert f"docs/pictures/{PICTURE.name}" in (PICTURE.parents[2] / "README.md").read_text()
