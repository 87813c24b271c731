"""`CompletableFuture`: an answer that comes later."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


class CompletableFuture(Future[T]):
    """A `concurrent.futures.Future`: `result()` waits for the answer or raises, `done()` tells whether it is there.

    >>> CompletableFuture.completed(3).result()
    3
    """

    @staticmethod
    def completed(value: T) -> CompletableFuture[T]:
        future: CompletableFuture[T] = CompletableFuture()
        future.set_result(value)
        return future
