"""A thread that runs one task after the other, for work that may never return."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class WorkThread:
    """Thread that starts with its first work.

    A thread that does not end, in a user's function or in a call to the JVM, does not prevent the end of the process. The
    threads of an executor of the standard library would prevent it.

    >>> WorkThread("sums").submit(lambda: 1 + 1).result()
    2
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._work: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    @property
    def ident(self) -> int:
        """Return the thread's id, or 0 if it has not started."""
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
            except BaseException as error:  # the caller that requests the result handles it
                future.set_exception(error)
            else:
                future.set_result(result)

    def close(self) -> None:
        """End the thread after its pending work."""
        self._work.put(None)
