"""A reader can do the tutorial: its files and commands, copied into an empty folder, print what the page shows."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.unit.test_docs import ROOT
from tools.servers.base.process import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = (ROOT / "docs/tutorial.md").read_text()
QUICKSTART = (ROOT / "docs/operator/quickstart.md").read_text()
BLOCK = re.compile(r"^```(python|diff|sh|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
VARIABLE = (
    (r"[0-9a-f]{32}", "JOB"),
    (r"savepoint-[0-9a-f]{6}-[0-9a-f]{12}", "SAVEPOINT"),
    (r"/chk-\d+|checkpoint \d+", "CHECKPOINT"),
    (r"file://\S*/(?=checkpoints|savepoints)", "FOLDER/"),
    (r"\d\d\.\d\d\.\d{4} \d\d:\d\d:\d\d", "TIME"),
    (r"(?<=process id is )\d+|(?<=log is )\S+", "PROCESS"),
    (r'(?<="minute":)\d+', "MINUTE"),
    (r"(?<=passed in )[\d.]+(?=s)", "SECONDS"),
    (r" +", " "),
)
"""Parts of the output that differ in each run."""
OPEN_WINDOW = re.compile(r"(tea|coffee) \[")
"""A row of state. A snapshot between two minutes has no open window, and one before the next watermark has two."""
OTHER_PORT = "Its JobManager is at"
"""The line that a job prints if it does not use the default port."""


def lines_of(output: str) -> list[str]:
    """Return the lines without the parts that differ in each run."""
    for pattern, name in VARIABLE:
        output = re.sub(pattern, name, output)
    lines = [line.rstrip() for line in output.splitlines()]
    return [line for line in lines if not OPEN_WINDOW.match(line) and not line.startswith(OTHER_PORT)]


def edit(text: str, change: str) -> str:
    """Replace each group of lines with `-` by the lines with `+` that follow it."""
    for old, new in re.findall(r"((?:^-.*\n)+)((?:^\+.*\n)+)", change, re.MULTILINE):
        before, after = (re.sub(r"^.", "", lines, flags=re.MULTILINE) for lines in (old, new))
        assert text.count(before) == 1, f"the file has not exactly one place with\n{before}"
        text = text.replace(before, after)
    return text


class Reader:
    """A reader with an empty folder, who copies the blocks of a page in order."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        port = free_port()
        settings = folder.with_name("settings")
        settings.mkdir()
        (settings / "penstock.yaml").write_text(f"rest.port: {port}\n")
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")} | {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PENSTOCK_CONF_DIR": str(settings),
            "PENSTOCK_MASTER": f"http://localhost:{port}",
        }
        self._processes: list[int] = []

    def enter(self, block: str) -> str:
        """Run the commands in a shell that stops at the first failure. Return their output."""
        slow = block.replace("sleep 10", "sleep 25")  # a machine that also runs other tests needs more time
        # The variable has the port of this test for the other commands. It would send a program to a cluster.
        slow = slow.replace("penstock run", "env -u PENSTOCK_MASTER penstock run")
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", slow],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        self._processes += map(int, re.findall(r"process id is (\d+)", done.stdout))
        assert done.returncode == 0, f"{block}\nended with {done.returncode}:\n{done.stdout}{done.stderr}"
        return done.stdout

    def leave(self) -> None:
        """Kill the jobs that still run."""
        for process in self._processes:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    (tmp_path / "shop").mkdir()
    reader = Reader(tmp_path / "shop")
    yield reader
    reader.leave()


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(1200)
def test_the_commands_of_the_tutorial_print_what_the_page_shows(reader: Reader) -> None:
    output, command = "", ""
    for kind, block in BLOCK.findall(PAGE):
        if kind == "sh":
            command, output = block, reader.enter(block)
        elif kind == "text":
            assert lines_of(output) == lines_of(block), f"{command}printed\n{output}"
        else:
            name, _, text = block.partition("\n")
            file = reader.folder / name.removeprefix("# ")
            file.write_text(block if kind == "python" else edit(file.read_text(), text))
    written = [line for file in (reader.folder / "takings").rglob("*.jsonl") for line in file.read_text().splitlines()]
    minutes = {int(minute) for line in written for minute in re.findall(r'"minute":(\d+)', line)}
    assert sorted(minutes) == list(range(len(minutes))), "a minute is missing"
    assert len(written) == 2 * len(minutes) > 20


def test_commands_for_kubernetes_agree_with_the_quickstart() -> None:
    commands = [shlex.split(line) for line in PAGE.splitlines() if line.startswith("kubectl ")]
    assert len(commands) >= 5
    known = {tuple(shlex.split(line)[:2]) for line in QUICKSTART.splitlines() if line.startswith("kubectl ")}
    assert not [words for words in commands if tuple(words[:2]) not in known]
    for shared in (
        "localhost/penstock-base:dev",
        "--for=condition=Ready --timeout=5m",
        "penstock-s3",
        "s3://penstock/",
    ):
        assert shared in PAGE
        assert shared in QUICKSTART + (ROOT / "docs/operator/quickstart/wordcount.yaml").read_text()
