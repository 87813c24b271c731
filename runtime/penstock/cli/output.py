"""The formats of times, sizes and tables."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType

WIDE = 200
"""Number of columns if the output is not a terminal, so that nothing is cut off."""


def console(*, stderr: bool = False) -> Console:
    found = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not found.is_terminal:
        found.width = WIDE
    return found


def table(*columns: str, right: Iterable[str] = (), title: str | None = None) -> Table:
    """Return a table without a frame. The columns in `right` contain numbers."""
    numbers = set(right)
    created = Table(box=None, pad_edge=False, title=title, title_justify="left", header_style="bold")
    for column in columns:
        created.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    return created


def text(value: Any) -> str:
    """Return a text unchanged, and any other value as JSON.

    >>> text("a"), text(["a", None])
    ('a', '["a", null]')
    """
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def show(*renderables: RenderableType) -> None:
    out = console()
    for renderable in renderables:
        out.print(renderable)


def local_time(ms: int) -> str:
    """Return a time (ms) in the format of Flink's command line.

    >>> local_time(-1)
    '-'
    """
    return "-" if ms < 0 else time.strftime("%d.%m.%Y %H:%M:%S", time.localtime(ms / 1000))


def clock_time(ms: int) -> str:
    """Return the local time of day of a time (ms)."""
    return "-" if ms < 0 else time.strftime("%H:%M:%S", time.localtime(ms / 1000))


def utc_time(ms: int | None) -> str:
    """Return an event time (ms) in UTC, to the second, or to the ms if they are not zero.

    >>> utc_time(1_539_810_794_000), utc_time(1_539_810_794_250), utc_time(None)
    ('2018-10-17 21:13:14', '2018-10-17 21:13:14.250', '-')
    """
    if ms is None:
        return "-"
    seconds, rest = divmod(ms, 1000)
    try:
        text = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))
    except (OverflowError, OSError, ValueError):
        return str(ms)
    return f"{text}.{rest:03}" if rest else text


def size(n: float) -> str:
    """Return a size in bytes.

    >>> size(512), size(1536), size(5 * 2**30)
    ('512 B', '1.5 KB', '5.0 GB')
    """
    if n < 1024:
        return f"{n:.0f} B"
    for unit in ("KB", "MB", "GB", "TB"):
        n /= 1024
        if n < 1024 or unit == "TB":
            break
    return f"{n:.1f} {unit}"


def span(ms: float) -> str:
    """Return a duration.

    >>> span(180), span(3_200), span(83_000), span(7_384_000), span(200_000_000)
    ('180 ms', '3.2 s', '1 min 23 s', '2 h 3 min', '2 d 7 h')
    """
    if ms < 1000:
        return f"{ms:.0f} ms"
    if ms < 60_000:
        return f"{ms / 1000:.1f} s"
    minutes, seconds = divmod(int(ms // 1000), 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} d {hours % 24} h"
