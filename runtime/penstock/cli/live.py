"""The live view of a job: redrawn in place on a terminal, plain lines elsewhere.

    with LiveView(lambda: client.progress(job_id).model_dump(by_alias=True)) as view:
        view.note("taking a savepoint")
        …

The input is any callable that returns the JSON of `GET /jobs/:id/progress` (see `rest.models.JobProgress`). If it
raises a `PenstockError`, the last picture remains, with the reason below the picture. A JobManager may come back after
a failover.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from rich.live import Live

from penstock.cli.dashboard import dashboard, plain_line
from penstock.cli.output import clock_time, console
from penstock.common.errors import PenstockError
from penstock.common.job_status import GLOBALLY_TERMINAL
from penstock.rest import models

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rich.console import Console

MAX_RATES = 120
MAX_NOTES = 6
PLAIN_SECONDS = 5.0
"""Maximum time in seconds between two plain lines about an unchanged job."""
PATIENCE_SECONDS = 60.0
"""Time in seconds after which an unreachable JobManager is considered lost, and the view ends."""


class LiveView:
    """View that shows the results of `poll` until the job has ended.

    Args:
        poll: function that returns the progress as JSON. The view's thread calls it.
        interval: seconds between two polls.
        out: console to draw on. None means stdout.
        plain_seconds: without a terminal, seconds between two lines about an unchanged job.
        patience: seconds without a response after which the view ends. None means never.
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
        self._rates: deque[float] = deque(maxlen=MAX_RATES)
        self._notes: deque[str] = deque(maxlen=MAX_NOTES)
        self._progress: models.JobProgress | None = None
        self.problem = ""
        """Reason why the shown data may be old. Empty if the data is current."""
        self._answered = time.monotonic()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._live: Live | None = None
        self._seen_event = -1
        self._line_due = 0.0
        self._line_key: object = None

    def run(self) -> models.JobProgress | None:
        """Show the job until it has ended, the user presses Ctrl-C, `stop()` is called, or `patience` seconds pass
        without a response. Return the last progress.

        Raises:
            PenstockError: the first poll failed.
        """
        self._poll_once(first=True)
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
        """Poll once and write the whole picture, even without a terminal."""
        self._poll_once(first=True)
        if self._progress is not None:
            self._out.print(dashboard(self._progress, expand=False))

    def note(self, text: str) -> None:
        """Add a line with the time and the caller's text. Any thread may call it."""
        line = f"{clock_time(int(time.time() * 1000))}  {text}"
        self._notes.append(line)
        if not self._out.is_terminal:
            self._out.print(line, markup=False, soft_wrap=True)

    def start(self) -> LiveView:
        """Show the job in a separate thread until `stop()`. If the job is not yet reachable, wait for it."""
        self._thread = threading.Thread(target=self._run_in_thread, name="live-view", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Draw once more and stop."""
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
                self._poll_once()
                self._draw()
                return
            self._poll_once()

    def _has_ended(self) -> bool:
        if self._progress is not None and self._progress.state in GLOBALLY_TERMINAL:
            return True
        return self._patience is not None and time.monotonic() - self._answered > self._patience

    def _poll_once(self, *, first: bool = False) -> None:
        try:
            self._progress = models.JobProgress.model_validate(self._poll())
        except PenstockError as error:
            if first:
                raise
            self.problem = f"these values may be outdated: {error.message}"
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
        """Write new events, and a line when an important value has changed or the interval has passed."""
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
