"""Record commands in a terminal as an animated picture: `python -m tools.terminal docs/pictures/terminal.svg`.

The commands really run, in an empty folder. The picture has their output, with its colours and its timing, but long pauses are shortened.
It is an SVG with CSS animations and no script, so it also moves in a README on GitHub. For readers who prefer no motion it shows the end.
"""

from __future__ import annotations

import errno
import os
import pty
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from rich.style import Style
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

COMMANDS = ("penstock init my-job", "cd my-job", "python job.py --count 300", "python -m pytest -q")
COLUMNS, ROWS = 78, 15
"""Size of the terminal, in characters."""
FONT_SIZE, CHARACTER, LINE, MARGIN, BAR = 14, 8.43, 20, 14, 30
"""Sizes in pixels: the font, the width of a character, the height of a line, the margin, the title bar."""
TYPING_S, LONGEST_PAUSE_S, LAST_PAUSE_S = 0.04, 0.9, 4.0
"""Time per typed character, the longest pause between two lines, and the pause before the animation starts again."""
COLOURS = ("", "red", "green", "yellow", "blue", "magenta", "cyan", "")
"""Names of the terminal's colours in `STYLE`. Black and white text has no name."""
STYLE = """
text{{font:{size}px ui-monospace,"DejaVu Sans Mono",Menlo,Consolas,monospace;fill:#d5dbe3;white-space:pre}}
.prompt{{fill:#5ad1a5;font-weight:bold}}.command{{fill:#fff}}
.red{{fill:#ff7b72}}.green{{fill:#7ee787}}.yellow{{fill:#e3b341}}.blue{{fill:#79c0ff}}.magenta{{fill:#d2a8ff}}.cyan{{fill:#76e3ea}}
.bold{{font-weight:bold}}.dim{{opacity:.7}}
#screen{{transform:translateY(-{scrolled}px);animation:scroll {duration:.1f}s step-end infinite}}
@media(prefers-reduced-motion:reduce){{*{{animation:none!important}}}}
"""


@dataclass(frozen=True)
class Line:
    """A line on the screen, the time in seconds at which it appears, and whether a person types it."""

    at: float
    text: str
    is_command: bool = False

    def typed_s(self) -> float:
        return len(self.text) * TYPING_S if self.is_command else 0.0


def record(commands: Sequence[str], folder: Path) -> list[Line]:
    """Run the commands in order, in a terminal, and return what a reader sees. `cd` applies to the commands after it.

    Raises:
        subprocess.CalledProcessError: a command failed. The error has its output.
    """
    lines: list[Line] = []
    now = 0.5
    for command in commands:
        lines.append(Line(now, command, is_command=True))
        now += lines[-1].typed_s() + 0.4
        if command.startswith("cd "):
            folder /= command.removeprefix("cd ")
            continue
        before = time.monotonic()
        for text in run(command, folder):
            now += min(time.monotonic() - before, LONGEST_PAUSE_S)
            before = time.monotonic()
            lines.append(Line(now, text))
        now += LONGEST_PAUSE_S
    return lines


def run(command: str, folder: Path) -> Iterator[str]:
    """Run a command in a pseudo-terminal, and yield each line when it is complete."""
    controller, terminal = pty.openpty()
    search = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    size = {"COLUMNS": str(COLUMNS), "LINES": str(ROWS), "TERM": "xterm-256color"}
    process = subprocess.Popen(
        shlex.split(command), cwd=folder, env=os.environ | size | {"PATH": search}, stdout=terminal, stderr=terminal
    )
    os.close(terminal)
    lines = []
    for text in _lines(controller):
        lines.append(text)
        yield text
    if code := process.wait():
        raise subprocess.CalledProcessError(code, command, "\n".join(lines))


def _lines(controller: int) -> Iterator[str]:
    rest = b""
    while True:
        try:
            got = os.read(controller, 4096)
        except OSError as error:  # Linux reports the end of a terminal in this way
            if error.errno != errno.EIO:
                raise
            got = b""
        *complete, rest = (rest + got).replace(b"\r\n", b"\n").split(b"\n")
        for line in complete or ([rest] if rest and not got else []):
            yield line.decode()
        if not got:
            os.close(controller)
            return


def draw(lines: Sequence[Line], title: str) -> str:
    """Return the picture of the lines, as SVG."""
    duration = lines[-1].at + LAST_PAUSE_S
    width, height = round(COLUMNS * CHARACTER + 2 * MARGIN), BAR + ROWS * LINE + MARGIN
    scrolled = max(0, len(lines) - ROWS) * LINE
    style = STYLE.format(size=FONT_SIZE, scrolled=scrolled, duration=duration)
    rules = [_scrolling(lines, duration)]
    shapes = []
    for number, line in enumerate(lines):
        y = number * LINE + FONT_SIZE
        start, end = (100 * at / duration for at in (line.at, line.at + line.typed_s()))
        rules.append(f"@keyframes l{number}{{0%{{opacity:0}}{start:.2f}%{{opacity:1}}}}")
        show = f"animation:l{number} {duration:.1f}s step-end infinite"
        if not line.is_command:
            shapes.append(f'<text y="{y}" style="{show}">{_coloured(line.text)}</text>')
            continue
        shapes.append(f'<text y="{y}" style="{show}"><tspan class="prompt">$</tspan></text>')
        rules.append(_typing(number, len(line.text), start, end))
        typing = f"animation:t{number} {duration:.1f}s step-end infinite"
        shapes.append(
            f'<text x="{2 * CHARACTER:.1f}" y="{y}" class="command" style="{typing}">{escape(line.text)}</text>'
        )
    circles = "".join(
        f'<circle cx="{MARGIN + 6 + 20 * n}" cy="{BAR / 2}" r="6" fill="{colour}"/>'
        for n, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">\n'
        f"<title>{escape(title)}</title>\n<style>{style}{chr(10).join(rules)}\n</style>\n"
        f'<rect width="{width}" height="{height}" rx="8" fill="#161b22"/>{circles}\n'
        f'<svg x="{MARGIN}" y="{BAR}" width="{width - 2 * MARGIN}" height="{ROWS * LINE}"><g id="screen">\n'
        + "\n".join(shapes)
        + "\n</g></svg>\n</svg>\n"
    )


def _scrolling(lines: Sequence[Line], duration: float) -> str:
    steps = ["0%{transform:translateY(0)}"]
    steps += [
        f"{100 * line.at / duration:.2f}%{{transform:translateY(-{(number + 1 - ROWS) * LINE}px)}}"
        for number, line in enumerate(lines)
        if number >= ROWS
    ]
    return f"@keyframes scroll{{{''.join(steps)}}}"


def _typing(number: int, length: int, start: float, end: float) -> str:
    """Return the animation that shows a command character by character: all others are clipped."""
    steps = ["0%{clip-path:inset(0 100% 0 0)}"]
    for typed in range(1, length + 1):
        at = start + (end - start) * typed / length
        steps.append(f"{at:.2f}%{{clip-path:inset(0 {100 - 100 * typed / length:.1f}% 0 0)}}")
    return f"@keyframes t{number}{{{''.join(steps)}}}"


def _coloured(line: str) -> str:
    """Return a line with ANSI colours as SVG text."""
    text = Text.from_ansi(line)
    parts = []
    for piece in text.divide(sorted({edge for span in text.spans for edge in (span.start, span.end)})):
        names = sorted({name for span in piece.spans for name in _classes(span.style)})
        shown = escape(piece.plain)
        parts.append(f'<tspan class="{" ".join(names)}">{shown}</tspan>' if names else shown)
    return "".join(parts)


def _classes(style: object) -> list[str]:
    assert isinstance(style, Style)
    number = style.color.number if style.color else None
    names = [COLOURS[number % 8]] if number is not None and number < 16 else []
    return [name for name in (*names, "bold" if style.bold else "", "dim" if style.dim else "") if name]


def main(target: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        lines = record(COMMANDS, Path(folder))
    target.write_text(draw(lines, "A terminal: penstock init creates a project, its job runs, and its tests pass"))
    print(f"{target}: {len(lines)} lines, {target.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
