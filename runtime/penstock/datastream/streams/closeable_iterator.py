"""`CloseableIterator`: an iterator over the results of a running job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType


class CloseableIterator:
    """Iterator over the records of a running job. Closing it cancels the job. Use it in a `with` statement, or exhaust it.

    >>> with CloseableIterator(iter([1, 2])) as values:
    ...     print(list(values))
    [1, 2]
    """

    def __init__(self, values: Iterator[Any]) -> None:
        self._values = values

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._values)

    def next(self) -> Any:
        """Return the next record, as `next(iterator)` does. PyFlink's iterator has this method too."""
        return next(self)

    def close(self) -> None:
        """Cancel the job. Repeated calls have no effect."""
        close = getattr(self._values, "close", None)
        if close is not None:
            close()

    def cancel(self) -> None:
        """Request the cancellation of the job, from any thread. The iterator then ends after the records that have already arrived.

        `close` also waits for the end of the job. Only the thread that reads the records may call it.
        """
        cancel = getattr(self._values, "cancel", None)
        if cancel is not None:
            cancel()

    def mapped(self, function: Callable[[Any], Any]) -> CloseableIterator:
        """Return an iterator over the results of the function. It closes and cancels the same job."""
        return CloseableIterator(_Mapped(function, self))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class _Mapped:
    def __init__(self, function: Callable[[Any], Any], values: CloseableIterator) -> None:
        self._function = function
        self._values = values
        self.close = values.close
        self.cancel = values.cancel

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self._function(next(self._values))
