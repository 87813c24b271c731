"""`penstock dev` in a real terminal: each test edits the program while it runs."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PATIENCE_S = 60.0
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
RESTART_S = 20.0
"""Bound for a loaded machine. An idle one needs less than 1 s."""

JOB = """
    from penstock.connectors.simple.datagen import DataGeneratorSource
    from penstock.common.watermark_strategy import WatermarkStrategy
    from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
    from penstock.datastream.state import value_state
    import rules


    class Count(KeyedProcessFunction):
        count = value_state(int)

        def process_element(self, value, ctx):
            self.count = (self.count or 0) + 1
            yield rules.show(self.count)


    class Last(KeyedProcessFunction):
        last = value_state(int)

        def process_element(self, value, ctx):
            self.last = value


    env = StreamExecutionEnvironment.get_execution_environment()
    source = DataGeneratorSource(lambda n: n, 10**9, 50.0)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    keyed = numbers.key_by(lambda n: 0)
    keyed.process(Count()).name("Count").uid("count").print()
    keyed.process(Last()).name("Last").uid("last").print()
    env.execute("counts")
"""
RULES = "def show(count):\n    return f'plain {count}'\n"


class Developing:
    """A `penstock dev` on a terminal. `text` is its whole output."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.text = ""
        self._terminal, inner = pty.openpty()
        command = [sys.executable, "-m", "penstock.cli", "dev", "-D", "rest.port=0", *options, "job.py"]
        environment = {**os.environ, "TMPDIR": str(folder)}
        # The process is the leader of a session on this terminal, so Ctrl-C reaches it as in a shell.
        self.process = subprocess.Popen(
            command,
            stdin=inner,
            stdout=inner,
            stderr=inner,
            cwd=folder,
            env=environment,
            start_new_session=True,
            preexec_fn=lambda: _control(inner),
        )
        os.close(inner)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._terminal, 65536)
            except OSError:
                return
            if not data:
                return
            self.text += _COLOURS.sub("", data.decode(errors="replace").replace("\r\n", "\n"))

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def save(self, name: str, change: Callable[[str], str]) -> int:
        """Replace the file as an editor does. Return the position in the output before the change."""
        before = len(self.text)
        path = self.folder / name
        draft = path.with_suffix(".draft")
        draft.write_text(change(path.read_text()))
        draft.replace(path)
        return before

    def shows(self, pattern: str, since: int = 0, seconds: float = PATIENCE_S) -> re.Match[str]:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found = re.search(pattern, self.text[since:])
            if found:
                return found
            assert self.process.poll() is None, self.text
            time.sleep(0.02)
        raise AssertionError(f"no {pattern!r} in\n{self.text[since:]}")

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        os.close(self._terminal)


def _control(terminal: int) -> None:
    """Make the terminal the controlling one of the new session. A shell in the background ignores SIGINT, and its processes inherit this."""
    import fcntl
    import termios

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "job.py").write_text(textwrap.dedent(JOB))
    (tmp_path / "rules.py").write_text(RULES)
    return tmp_path


@pytest.fixture
def developing(folder: Path) -> Iterator[Developing]:
    found = Developing(folder)
    yield found
    found.close()


def test_a_change_restarts_the_job_with_its_state_and_ctrl_c_ends_it(developing: Developing) -> None:
    count = int(developing.shows(r"plain (\d\d+)")[1])
    since = developing.save("rules.py", lambda text: text.replace("plain", "changed"))
    started = time.monotonic()
    first = int(developing.shows(r"changed (\d+)\n", since, RESTART_S)[1])
    took = time.monotonic() - started
    print(f"{took:.2f} s from the save to the first result of the new program")
    last = int(re.findall(r"plain (\d+)\n", developing.text)[-1])
    assert first == last + 1 >= count, "each record is counted once"
    assert "counts: state kept: numbers, Count, Last" in developing.text[since:]
    developing.type("\x03")
    assert developing.process.wait(10) == 0
    time.sleep(0.1)
    after = developing.text[developing.text.index("^C") :]
    assert after.strip().splitlines()[-1] == "dev: stopped", after
    assert "Traceback" not in after
    left = [path.name for path in developing.folder.iterdir() if path.name.startswith("penstock-")]
    assert left == [f"penstock-{os.getuid()}"], "only the folder of tokens is left"


def test_an_incompatible_change_is_named_and_the_rest_of_the_state_is_kept(developing: Developing) -> None:
    developing.shows(r"plain \d\d+")

    def with_text(program: str) -> str:
        return program.replace("last = value_state(int)", "last = value_state(str)").replace(
            "self.last = value", "self.last = str(value)"
        )

    since = developing.save("job.py", with_text)
    lost = developing.shows(r"not kept: Last: (.+)", since, RESTART_S)[1]
    assert "last" in lost
    assert "str" in lost
    shown = developing.shows(
        r"counts: state kept: numbers, Count\n(.*\n)*?dev: counts runs(.*\n)*?plain (\d+)\n", since
    )
    assert int(shown[3]) > 10


def test_a_change_that_only_a_task_can_notice_is_named_and_the_job_starts_without_that_state(
    folder: Path,
) -> None:
    """The type of the state is not visible in the code of `open`."""
    hidden = """
    def open(self, context):
        self.state = context.get_state(rules.described())

    def process_element(self, value, ctx):
        self.state.update(rules.KIND(value))
"""
    described = "KIND = int\n\n\ndef described():\n    return ValueStateDescriptor('last', KIND)\n"
    job = (folder / "job.py").read_text()
    start = job.index("    last = value_state(int)")
    (folder / "job.py").write_text(job[:start] + hidden.lstrip("\n") + job[job.index("\n\nenv = ") :])
    (folder / "rules.py").write_text(
        f"from penstock.datastream.state import ValueStateDescriptor\n\n{RULES}\n\n{described}"
    )
    developing = Developing(folder)
    try:
        developing.shows(r"plain \d\d+")
        since = developing.save("rules.py", lambda text: text.replace("KIND = int", "KIND = str"))
        developing.shows(r"not kept: Last: ", since, RESTART_S)
        assert int(developing.shows(r"state kept: numbers, Count\n(.*\n)*plain (\d+)\n", since, RESTART_S)[2]) > 10
    finally:
        developing.close()


def test_a_removed_operator_is_named(developing: Developing) -> None:
    developing.shows(r"plain \d\d+")
    gone = 'keyed.process(Last()).name("Last").uid("last").print()'
    since = developing.save("job.py", lambda text: text.replace(gone, ""))
    developing.shows(r"not kept: Last: no operator has the uid 'last' \(keyed state last, ", since, RESTART_S)
    developing.shows(r"counts runs", since)


def test_errors_of_a_change_are_shown_and_the_next_save_continues_with_the_state(developing: Developing) -> None:
    count = int(developing.shows(r"plain (\d\d+)")[1])
    since = developing.save("rules.py", lambda text: text.replace("return f'", "return f"))
    developing.shows(r"rules\.py\", line 2\n(.*\n)*SyntaxError", since, RESTART_S)
    developing.shows(r"the former program keeps running(.*\n)+plain \d+", since)
    since = developing.save("rules.py", lambda _: "def show(count):\n    return missing\n")
    developing.shows(r"NameError: name 'missing' is not defined \(at .*rules\.py:2 in show\)", since, RESTART_S)
    developing.shows(r"job\.py failed\. It runs again after the next save", since)
    since = developing.save("job.py", lambda text: "1 / 0\n" + text)
    developing.shows(r"job\.py\", line 1, in <module>\n\s+1 / 0\n(.*\n)*ZeroDivisionError", since, RESTART_S)
    developing.save("rules.py", lambda _: RULES)
    since = developing.save("job.py", lambda text: text.removeprefix("1 / 0\n"))
    assert int(developing.shows(r"plain (\d+)\n", since, RESTART_S)[1]) > count


def test_a_breakpoint_has_the_terminal_and_a_restart_waits_for_it(developing: Developing) -> None:
    developing.shows(r"plain \d\d+")
    since = developing.save("rules.py", lambda text: text.replace("    return", "    breakpoint()\n    return"))
    developing.shows(r"\(Pdb\) ", since, RESTART_S)
    developing.type("p 'count is', count\n")
    developing.shows(r"\('count is', \d+\)", since)
    saved = developing.save("rules.py", lambda _: RULES)
    developing.shows(r"the program is at a breakpoint", saved)
    assert "counts runs" not in developing.text[saved:]
    developing.type("import os; os.environ['PYTHONBREAKPOINT'] = '0'\n")
    developing.type("c\n")
    developing.shows(r"counts runs(.*\n)+plain \d+", saved, RESTART_S)


def test_a_finished_program_waits_for_the_next_save(folder: Path) -> None:
    (folder / "job.py").write_text(textwrap.dedent(JOB).replace("10**9, 50.0", "20"))
    developing = Developing(folder)
    try:
        developing.shows(r"plain 20\n(.*\n)*dev: job\.py has ended")
        since = developing.save("rules.py", lambda text: text.replace("plain", "again"))
        developing.shows(r"again 1\n(.*\n)*again 20\n", since, RESTART_S)
        assert developing.process.poll() is None
        developing.process.send_signal(signal.SIGINT)
        assert developing.process.wait(10) == 0
    finally:
        developing.close()


@pytest.mark.parametrize("second", ["counts", "others"])
def test_each_job_of_a_program_has_its_own_state(folder: Path, second: str) -> None:
    text = textwrap.dedent(JOB).replace("plain", "first")
    head, graph = text.split("env = ")
    bounded = f"env = {graph}".replace("10**9, 50.0", "20")
    unbounded = bounded.replace("20)", "10**9, 50.0)").replace('"counts"', f'"{second}"')
    (folder / "job.py").write_text(f"{head}print('begins')\n{bounded}print('next')\n{unbounded}")
    developing = Developing(folder)
    try:
        developing.shows(r"next\n(.*\n)*plain 3\d\n")
        since = developing.save("rules.py", lambda text: text.replace("plain", "again"))
        developing.shows(r"begins\n(.*\n)*again 1\n(.*\n)*again 20\n(.*\n)*next\n", since, RESTART_S)
        place = developing.text.rindex("next\n")
        assert int(developing.shows(r"again (\d+)\n", place)[1]) > 30
    finally:
        developing.close()
