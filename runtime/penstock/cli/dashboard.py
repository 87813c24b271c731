"""The view of a job's progress for a terminal, and a version in one plain line. Pure functions of `JobProgress`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.box import ROUNDED
from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from penstock.cli.output import clock_time, size, span, table, utc_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.rest import models

STATE_STYLES = {
    "RUNNING": "bold green",
    "FINISHED": "bold green",
    "FAILED": "bold red",
    "FAILING": "bold red",
    "CANCELED": "bold",
}
_BARS = "▁▂▃▄▅▆▇█"
BUSY_WIDTH = 10
RATE_WIDTH = 20
SHOWN_EVENTS = 8


def dashboard(
    progress: models.JobProgress,
    rates: Sequence[float] = (),
    notes: Sequence[str] = (),
    problem: str = "",
    *,
    expand: bool = True,
) -> Panel:
    """Return the whole view. `rates`: records/s so far; `notes`: lines of the caller; `problem`: reason why the data may be old.

    `expand`: use the whole width, so that the frame keeps its size when it is redrawn.
    """
    state = Text(progress.state, style=STATE_STYLES.get(progress.state, "bold yellow"))
    end = progress.now if progress.end_time < 0 else progress.end_time
    title = Text.assemble(" ", (progress.name, "bold"), "  ", state, f"  {span(max(0, end - progress.start_time))} ")
    parts: list[Text | Table | Group] = [_numbers(progress, rates), Text(), _vertices(progress)]
    lines = _event_lines(progress, notes)
    if lines:
        parts += [Text(), *lines]
    if problem:
        parts += [Text(), Text(problem, style="bold yellow")]
    return Panel(
        Group(*parts),
        title=title,
        title_align="left",
        subtitle=progress.jid,
        subtitle_align="left",
        box=ROUNDED,
        expand=expand,
    )


def plain_line(progress: models.JobProgress) -> str:
    """Return the most important values in one line."""
    last = progress.checkpoints.last
    checkpoint = "none yet" if last is None else f"{last.id} ({span(last.duration)}, {size(last.checkpointed_size)})"
    return (
        f"{clock_time(progress.now)} {progress.state} | epoch {progress.epoch} | "
        f"{progress.records_per_second:,.0f} records/s, {progress.records:,} so far | "
        f"watermark {utc_time(progress.watermark)} | lag {_count(progress.lag)} | checkpoint {checkpoint} | "
        f"parallelism {progress.parallelism} | restarts {progress.restarts}"
    )


def sparkline(values: Sequence[float], width: int) -> str:
    """Return the last values as bars. The largest value has a full bar.

    >>> sparkline([0, 5, 10], 8)
    '▁▄█'
    """
    shown = list(values)[-width:]
    top = max(shown, default=0.0)
    if top <= 0:
        return _BARS[0] * len(shown)
    return "".join(_BARS[min(len(_BARS) - 1, int(value / top * (len(_BARS) - 1)))] for value in shown)


def _numbers(progress: models.JobProgress, rates: Sequence[float]) -> Table:
    checkpoints = progress.checkpoints
    epoch = str(progress.epoch)
    if progress.epoch_duration is not None:
        epoch += f"  ({span(progress.epoch_duration)} each)"
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim")
    grid.add_column()
    grid.add_column(style="dim")
    grid.add_column()
    grid.add_row("epoch", epoch, "parallelism", f"{progress.parallelism} of at most {progress.max_parallelism}")
    grid.add_row(
        "records/s",
        Text.assemble(
            (f"{progress.records_per_second:,.0f}", "bold"),
            "  ",
            (sparkline(rates, RATE_WIDTH).ljust(RATE_WIDTH), "cyan"),
        ),
        "slots",
        f"{progress.slots_total - progress.slots_available} of {progress.slots_total} used, "
        f"{progress.taskmanagers} TaskManagers",
    )
    grid.add_row("records", f"{progress.records:,}", "restarts", _alarming(progress.restarts))
    grid.add_row(
        "watermark",
        utc_time(progress.watermark),
        "checkpoints",
        Text.assemble(
            f"{checkpoints.completed} completed, ", _alarming(checkpoints.failed), " failed", _in_progress(checkpoints)
        ),
    )
    grid.add_row("lag", _count(progress.lag), "last", _last_checkpoint(progress))
    return grid


def _vertices(progress: models.JobProgress) -> Table:
    rows = table("Vertex", "Par.", "State", "In/s", "Out/s", "Busy", "Watermark", right=("Par.", "In/s", "Out/s"))
    for vertex in progress.vertices:
        filled = round(vertex.busy * BUSY_WIDTH)
        style = "red" if vertex.busy > 0.9 else "green"
        busy = Text.assemble(("█" * filled, style), ("░" * (BUSY_WIDTH - filled), "dim"), f" {vertex.busy:4.0%}")
        rows.add_row(
            Text(vertex.name),
            str(vertex.parallelism),
            Text(vertex.status, style=STATE_STYLES.get(vertex.status, "yellow")),
            f"{vertex.records_in_per_second:,.0f}",
            f"{vertex.records_out_per_second:,.0f}",
            busy,
            utc_time(vertex.watermark),
        )
    return rows


def _event_lines(progress: models.JobProgress, notes: Sequence[str]) -> list[Text]:
    events = [
        Text.assemble((clock_time(event.timestamp), "dim"), "  ", event.text)
        for event in progress.events[-SHOWN_EVENTS:]
    ]
    return events + [Text(note, style="cyan") for note in notes]


def _last_checkpoint(progress: models.JobProgress) -> str:
    last = progress.checkpoints.last
    if last is None:
        return "none yet"
    age = span(max(0, progress.now - last.trigger_timestamp))
    kind = "" if last.kind == "CHECKPOINT" else "savepoint "
    return f"{kind}{last.id}: {span(last.duration)}, {size(last.checkpointed_size)} new of {size(last.state_size)}, {age} ago"


def _in_progress(checkpoints: models.ProgressCheckpoints) -> str:
    return ", 1 in progress" if checkpoints.in_progress else ""


def _alarming(n: int) -> Text:
    return Text(str(n), style="bold yellow" if n else "")


def _count(n: int | None) -> str:
    return "-" if n is None else f"{n:,}"
