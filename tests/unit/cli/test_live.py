from __future__ import annotations

import io
import time
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from penstock.cli.dashboard import dashboard, plain_line, sparkline
from penstock.cli.errors import MasterUnreachable
from penstock.cli.live import LiveView
from penstock.rest import models
from penstock.rest.views.progress import job_progress
from tests.unit.rest.fake_gateway import JOB_ID, START, FakeGateway

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.unit.cli.terminal import Terminal

NOW = START + 83_000


def progress(**more: Any) -> dict[str, Any]:
    gateway = FakeGateway()
    found = job_progress(gateway.job(JOB_ID), gateway.checkpoints(JOB_ID), gateway.cluster(), gateway.metrics, NOW)
    return found.model_copy(update=more).model_dump(by_alias=True)


class Screen:
    """A console that records its output."""

    def __init__(self, *, is_terminal: bool, width: int = 110) -> None:
        self._file = io.StringIO()
        self.console = Console(
            file=self._file, force_terminal=is_terminal, width=width, markup=False, emoji=False, highlight=False
        )

    @property
    def text(self) -> str:
        return self._file.getvalue()

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()


class Story:
    """A client that returns or raises the given progresses in order, and then repeats the last one."""

    def __init__(self, *parts: dict[str, Any] | Exception) -> None:
        self._rest: Iterator[dict[str, Any] | Exception] = iter(parts)
        self._last: dict[str, Any] | Exception = parts[-1]
        self.polls = 0

    def __call__(self) -> dict[str, Any]:
        self.polls += 1
        part = next(self._rest, self._last)
        if isinstance(part, Exception):
            raise part
        return part


def view(story: Story, screen: Screen, **more: Any) -> LiveView:
    return LiveView(story, interval=0.01, out=screen.console, **more)


def test_the_view_shows_all_facts_of_a_job() -> None:
    screen = Screen(is_terminal=False)
    screen.console.print(dashboard(models.JobProgress.model_validate(progress()), [1, 2, 3], ["12:00:00  a note"]))
    for text in (
        "Socket Window WordCount  RUNNING  1 min 23 s",
        "412  (180 ms each)",
        "12,346",
        "▃▅█",
        "2018-10-17 21:13:20",
        "1,200",
        "10 completed, 1 failed, 1 in progress",
        "savepoint 3: 160 ms, 200 B new of 1000 B",
        "2 of at most 128",
        "2 of 8 used, 2 TaskManagers",
        "Source: readings -> Map",
        "job is RUNNING",
        "12:00:00  a note",
        JOB_ID,
    ):
        assert text in screen.text, text


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_view_fits_any_width(width: int) -> None:
    screen = Screen(is_terminal=False, width=width)
    screen.console.print(dashboard(models.JobProgress.model_validate(progress())))
    assert {len(line) for line in screen.lines} == {width}


def test_a_job_without_any_facts_can_be_shown() -> None:
    nothing = progress(
        watermark=None,
        lag=None,
        epoch_duration=None,
        vertices=[],
        events=[],
        checkpoints=models.ProgressCheckpoints(),
        state="CREATED",
    )
    found = models.JobProgress.model_validate(nothing)
    screen = Screen(is_terminal=False)
    screen.console.print(dashboard(found))
    assert "none yet" in screen.text
    assert "watermark - | lag - | checkpoint none yet" in plain_line(found)


def test_without_a_terminal_it_writes_lines_until_the_job_has_ended() -> None:
    screen = Screen(is_terminal=False)
    story = Story(progress(), progress(parallelism=4), progress(parallelism=4, state="FINISHED"))
    last = view(story, screen).run()
    assert last is not None
    assert last.state == "FINISHED"
    assert "\x1b" not in screen.text
    events = [line for line in screen.lines if " | " not in line]
    lines = [line for line in screen.lines if " | " in line]
    assert [line.split(maxsplit=1)[1] for line in events] == ["job is CREATED", "job is RUNNING"]
    assert len(lines) == 3
    assert "RUNNING | epoch 412 | 12,346 records/s, 4,000,000 so far | watermark 2018-10-17 21:13:20" in lines[0]
    assert "parallelism 4" in lines[1]


def test_an_unchanged_job_is_written_only_once() -> None:
    screen = Screen(is_terminal=False)
    story = Story(*[progress() for _ in range(20)], progress(state="CANCELED"))
    view(story, screen, plain_seconds=60).run()
    assert len([line for line in screen.lines if " | " in line]) == 2


def test_on_a_terminal_it_draws_in_place() -> None:
    screen = Screen(is_terminal=True)
    view(Story(progress(), progress(state="FINISHED")), screen).run()
    assert "\x1b[" in screen.text
    assert "FINISHED" in screen.text


@pytest.mark.parametrize("is_terminal", [True, False])
def test_the_view_waits_for_a_master_that_is_temporarily_unavailable(is_terminal: bool) -> None:
    screen = Screen(is_terminal=is_terminal)
    away = MasterUnreachable("the JobManager at http://x does not respond")
    last = view(Story(progress(), away, away, progress(state="FINISHED")), screen).run()
    assert last is not None
    assert last.state == "FINISHED"
    assert "these values may be outdated: the JobManager at http://x does not respond" in screen.text


def test_the_view_does_not_wait_forever_for_a_master() -> None:
    screen = Screen(is_terminal=False)
    last = view(Story(progress(), MasterUnreachable("gone")), screen, patience=0.2).run()
    assert last is not None
    assert last.state == "RUNNING"
    assert screen.lines[-1] == "these values may be outdated: gone"
    assert screen.text.count("these values may be outdated") == 1


def test_a_master_that_never_answers_is_an_error() -> None:
    with pytest.raises(MasterUnreachable):
        view(Story(MasterUnreachable("no")), Screen(is_terminal=False)).run()


def test_the_background_view_waits_for_the_job_and_writes_notes() -> None:
    screen = Screen(is_terminal=False)
    story = Story(MasterUnreachable("not yet"), progress())
    with view(story, screen) as live:
        deadline = time.monotonic() + 10
        while story.polls < 5 and time.monotonic() < deadline:
            time.sleep(0.01)
        live.note("taking a [savepoint]")
    assert any(line.endswith("  taking a [savepoint]") for line in screen.lines)
    assert "RUNNING | epoch 412" in screen.text


def test_top_watches_the_only_job_until_it_ends(terminal: Terminal) -> None:
    terminal.environment["COLUMNS"] = "100"
    assert "Socket Window WordCount  RUNNING" in terminal("top", "--once").out
    terminal("cancel", JOB_ID)
    outcome = terminal("top", JOB_ID, "-i", "0.1")
    assert outcome.code == 0
    assert " CANCELED | epoch 412" in outcome.out
    assert terminal("top").code == 1


def test_a_sparkline_shows_the_last_values() -> None:
    assert sparkline([9, 9, 0, 7], 2) == "▁█"
    assert sparkline([], 5) == ""
    assert sparkline([0, 0], 5) == "▁▁"
