"""The end of `penstock run` by SIGTERM, as an exception, so that the process removes its token and its temporary folders."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Terminated(SystemExit):
    """SIGTERM, raised in the main thread. The exit code is 143, which shells also show for this signal."""

    def __init__(self) -> None:
        super().__init__(128 + signal.SIGTERM)


@contextmanager
def ending_on_sigterm() -> Iterator[None]:
    """Raise `Terminated` for SIGTERM during the block. If the program sets its own handler, that handler is used instead."""
    is_default = signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if threading.current_thread() is not threading.main_thread() or not is_default:
        yield
        return
    signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is _terminate:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _terminate(signum: int, frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a second signal ends the process at once
    raise Terminated
