"""A way for another thread of the process to wake a sleeping task."""

from __future__ import annotations

import os
import select
from contextlib import suppress


class Waker:
    """The waker of one task. It costs nothing until an operator calls `open`.

    >>> waker = Waker()
    >>> waker.open()
    >>> waker.set()
    >>> waker.wait(1), waker.take(), waker.take()
    (True, True, False)
    >>> waker.close()
    """

    def __init__(self) -> None:
        self._fd: int | None = None

    def open(self) -> None:
        if self._fd is None:
            self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def files(self) -> tuple[int, ...]:
        """Return the file descriptors for `select`. They are readable after a call of `set`."""
        return () if self._fd is None else (self._fd,)

    def set(self) -> None:
        """Wake the task. Any thread may call this method, but not after `close`."""
        if self._fd is not None:
            os.eventfd_write(self._fd, 1)

    def take(self) -> bool:
        """Return whether `set` was called since the last call of `take`."""
        if self._fd is not None:
            with suppress(BlockingIOError):
                return os.eventfd_read(self._fd) > 0
        return False

    def wait(self, seconds: float) -> bool:
        """Return whether `set` was called, or is called within the timeout."""
        return bool(select.select(self.files(), (), (), seconds)[0])

    def close(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)
