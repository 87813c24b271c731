"""A thread that does one thing after the other, for work that may never return."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class WorkThread:
    """It starts with its first work. A thread that does not end by itself, in the middle of a user's function or of a call
    to the JVM, keeps no process from ending, which those of an executor would.

    >>> WorkThread("sums").submit(lambda: 1 + 1).result()
    2
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._work: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    @property
    def ident(self) -> int:
        """0: it has not started."""
        return 0 if self._thread is None else self._thread.ident or 0

    def submit(self, work: Callable[[], T]) -> Future[T]:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        future: Future[T] = Future()
        self._work.put((future, work))
        return future

    def _run(self) -> None:
        while (item := self._work.get()) is not None:
            future, work = item
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = work()
            except BaseException as error:  # belongs to whoever asks for the result
                future.set_exception(error)
            else:
                future.set_result(result)

    def close(self) -> None:
        """It ends after what it was given."""
        self._work.put(None)
