"""The live view of a job: redrawn in place on a terminal, plain lines elsewhere.

    with LiveView(lambda: client.progress(job_id).model_dump(by_alias=True)) as view:
        view.note("taking a savepoint")
        …

The input is any callable that returns the JSON of `GET /jobs/:id/progress` (see `rest.models.JobProgress`). While it
raises a `PenstockError` the last picture stays, with the reason below it: a JobManager that fails over comes back.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from rich.live import Live

from penstock.cli.connection import ENDED
from penstock.cli.dashboard import dashboard, plain_line
from penstock.cli.output import clock_time, console
from penstock.common.errors import PenstockError
from penstock.rest import models

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rich.console import Console

KEPT_RATES = 120
KEPT_NOTES = 6
PLAIN_SECONDS = 5.0
"""Time between two plain lines in which nothing happened."""
PATIENCE_SECONDS = 60.0
"""A JobManager that is away for longer does not come back: the view ends."""


class LiveView:
    """Shows what `poll` returns until the job has ended.

    Args:
        poll: returns the progress as JSON; called from the view's thread.
        interval: seconds between two polls.
        out: where to draw; None = stdout.
        plain_seconds: without a terminal, at least this long between two lines about an unchanged job.
        patience: seconds without an answer after which the view ends; None = never.
    """

    def __init__(
        self,
        poll: Callable[[], Mapping[str, Any]],
        *,
        interval: float = 1.0,
        out: Console | None = None,
        plain_seconds: float = PLAIN_SECONDS,
        patience: float | None = PATIENCE_SECONDS,
    ) -> None:
        self._poll = poll
        self._interval = interval
        self._out = out or console()
        self._plain_seconds = plain_seconds
        self._patience = patience
        self._rates: deque[float] = deque(maxlen=KEPT_RATES)
        self._notes: deque[str] = deque(maxlen=KEPT_NOTES)
        self._progress: models.JobProgress | None = None
        self.problem = ""
        """Why what is shown may be old; empty if it is not."""
        self._answered = time.monotonic()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._live: Live | None = None
        self._seen_event = -1
        self._line_due = 0.0
        self._line_key: object = None

    def run(self) -> models.JobProgress | None:
        """Show until the job has ended, or Ctrl-C, or `stop()`, or patience is at its end; returns what was seen last.

        Raises:
            PenstockError: the very first look failed.
        """
        self._look(first=True)
        try:
            if self._out.is_terminal:
                with Live(console=self._out, auto_refresh=False, transient=False) as live:
                    self._live = live
                    self._loop()
            else:
                self._loop()
        except KeyboardInterrupt:
            pass
        finally:
            self._live = None
        return self._progress

    def show_once(self) -> None:
        """Look once and write the whole picture, also where there is no terminal."""
        self._look(first=True)
        if self._progress is not None:
            self._out.print(dashboard(self._progress, expand=False))

    def note(self, text: str) -> None:
        """Add a line of the caller's, with the time. May be called from any thread."""
        line = f"{clock_time(int(time.time() * 1000))}  {text}"
        self._notes.append(line)
        if not self._out.is_terminal:
            self._out.print(line, markup=False, soft_wrap=True)

    def start(self) -> LiveView:
        """Show in a thread of its own until `stop()`. A job that cannot be reached yet is waited for."""
        self._thread = threading.Thread(target=self._run_in_thread, name="live-view", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Draw once more and end."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def __enter__(self) -> LiveView:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run_in_thread(self) -> None:
        while not self._stop.is_set():
            try:
                self.run()
                return
            except PenstockError:
                self._stop.wait(self._interval)

    def _loop(self) -> None:
        while True:
            self._draw()
            if self._has_ended():
                return
            if self._stop.wait(self._interval):
                self._look()
                self._draw()
                return
            self._look()

    def _has_ended(self) -> bool:
        if self._progress is not None and self._progress.state in ENDED:
            return True
        return self._patience is not None and time.monotonic() - self._answered > self._patience

    def _look(self, *, first: bool = False) -> None:
        try:
            self._progress = models.JobProgress.model_validate(self._poll())
        except PenstockError as error:
            if first:
                raise
            self.problem = f"this may be old: {error.message}"
            return
        self.problem = ""
        self._answered = time.monotonic()
        self._rates.append(self._progress.records_per_second)

    def _draw(self) -> None:
        if self._progress is None:
            return
        if self._live is not None:
            picture = dashboard(self._progress, list(self._rates), list(self._notes), self.problem)
            self._live.update(picture, refresh=True)
        else:
            self._write_lines(self._progress)

    def _write_lines(self, progress: models.JobProgress) -> None:
        """New events, and a line when something changed that matters or when it is time for one."""
        for event in progress.events:
            if event.timestamp > self._seen_event:
                self._line(f"{clock_time(event.timestamp)} {event.text}")
        self._seen_event = max([self._seen_event, *(event.timestamp for event in progress.events)])
        if self.problem:
            if self.problem != self._line_key:
                self._line(self.problem)
            self._line_key = self.problem
            return
        last = progress.checkpoints.last
        key = (progress.state, progress.parallelism, progress.restarts, last and last.id)
        now = time.monotonic()
        if now < self._line_due and key == self._line_key:
            return
        self._line_due, self._line_key = now + self._plain_seconds, key
        self._line(plain_line(progress))

    def _line(self, text: str) -> None:
        self._out.print(text, markup=False, soft_wrap=True)
