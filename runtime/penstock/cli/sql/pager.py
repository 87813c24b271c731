"""`Pager`: a view of a running query's result that fills the terminal. It shows one page and changes while rows arrive."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from prompt_toolkit.application import Application
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.layout import HSplit, Layout, Window
from prompt_toolkit.layout.controls import FormattedTextControl

from penstock.table.client.live_rows import LiveRows
from penstock.table.table_result import cells, fitted

if TYPE_CHECKING:
    from prompt_toolkit.input import Input
    from prompt_toolkit.key_binding.key_processor import KeyPressEvent
    from prompt_toolkit.output import Output

    from penstock.common.types import Row

_WIDEST = 40
_SHIFT = 20
"""Columns of the terminal by which the arrow keys move the page."""
_REFRESH_S = 0.2
_HELP = "q quit   n/p page   g/G first/last   ←/→ columns"


class Pager:
    """A view of a result. A thread reads the rows until the query ends.

    Args:
        rows: iterator over the changes. Its method `cancel` cancels the query.
        changelog: whether to show the changes instead of the resulting table.
    """

    def __init__(
        self,
        names: Sequence[str],
        rows: Any,
        *,
        changelog: bool,
        limit: int,
        input: Input | None = None,
        output: Output | None = None,
    ) -> None:
        self._names = (["op"] if changelog else []) + list(names)
        self._rows = rows
        self.found = LiveRows(changelog=changelog, limit=limit)
        self.error: BaseException | None = None
        self.is_cancelled = False
        self._ended_at: float | None = None
        self._began = time.monotonic()
        self._follows = changelog
        """Whether the view stays on the last page."""
        self._top = 0
        self._shift = 0
        self._app: Application[None] = Application(
            layout=Layout(
                HSplit(
                    [
                        Window(FormattedTextControl(self._page, show_cursor=False), wrap_lines=False),
                        Window(FormattedTextControl(self._status), height=1, style="reverse"),
                    ]
                )
            ),
            key_bindings=self._keys(),
            full_screen=True,
            refresh_interval=_REFRESH_S,
            input=input,
            output=output,
        )

    def run(self) -> None:
        """Show the result until the user quits, and cancel the query if it still runs.

        Raises:
            Exception: the query failed.
        """
        reader = threading.Thread(target=self._read, name="sql-result", daemon=True)
        try:
            self._app.run(pre_run=reader.start)
        finally:
            if reader.is_alive():
                self.is_cancelled = True
                self._rows.cancel()
                reader.join()
        if self.error is not None:
            raise self.error

    def _read(self) -> None:
        try:
            row: Row
            for row in _until(self._rows, lambda: self.is_cancelled):
                self.found.add(row)
        except BaseException as error:  # `run` raises it in the thread of the shell
            self.error = error
            if self._app.loop is not None:
                self._app.loop.call_soon_threadsafe(self._exit)
        finally:
            self._rows.close()
            self._ended_at = time.monotonic()

    def _exit(self) -> None:
        if self._app.future is not None and not self._app.future.done():
            self._app.exit()

    # --- picture ----------------------------------------------------------------------------------------------

    @property
    def _height(self) -> int:
        return max(1, int(self._app.output.get_size().rows) - 4)

    def _last_top(self) -> int:
        return max(0, len(self.found) - self._height)

    def _page(self) -> str:
        self._top = self._last_top() if self._follows else min(self._top, self._last_top())
        rows = self.found.part(self._top, self._height)
        widths = [
            min(_WIDEST, max([cells(name), *(cells(row[index][: _WIDEST + 1]) for row in rows)]))
            for index, name in enumerate(self._names)
        ]
        lines = ["  ".join(map(fitted, self._names, widths)), "  ".join("-" * width for width in widths)]
        lines += ["  ".join(map(fitted, row, widths)) for row in rows]
        return "\n".join(line[self._shift :] for line in lines)

    def _status(self) -> str:
        count, height = len(self.found), self._height
        page, pages = -(-self._top // height) + 1, max(1, -(-count // height))
        state = "running" if self._ended_at is None else "ended"
        seconds = (self._ended_at or time.monotonic()) - self._began
        return f" {state} {seconds:.0f} s   {count} rows, {self.found.received} changes   page {page}/{pages}   {_HELP}"

    # --- keys -------------------------------------------------------------------------------------------------

    def _keys(self) -> KeyBindings:
        actions: list[tuple[tuple[str, ...], Callable[[], None]]] = [
            (("q", "Q", "c-c"), self._exit),
            (("n", "pagedown", "space"), lambda: self._move(self._top + self._height)),
            (("p", "pageup"), lambda: self._move(self._top - self._height)),
            (("down",), lambda: self._move(self._top + 1)),
            (("up",), lambda: self._move(self._top - 1)),
            (("g", "home"), lambda: self._move(0)),
            (("G", "end"), self._follow),
            (("right",), lambda: self._shift_by(_SHIFT)),
            (("left",), lambda: self._shift_by(-_SHIFT)),
        ]
        keys = KeyBindings()
        for names, action in actions:
            for name in names:
                keys.add(name)(partial(_press, action))
        return keys

    def _follow(self) -> None:
        self._follows = True

    def _shift_by(self, columns: int) -> None:
        self._shift = max(0, self._shift + columns)

    def _move(self, top: int) -> None:
        self._follows = False
        self._top = max(0, top)


def _press(action: Callable[[], None], event: KeyPressEvent) -> None:
    action()


def _until(rows: Iterator[Row], ended: Any) -> Iterator[Row]:
    for row in rows:
        if ended():
            return
        yield row
