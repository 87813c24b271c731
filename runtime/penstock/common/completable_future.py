"""`CompletableFuture`: the result of a call that ends later."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


class CompletableFuture(Future[T]):
    """A `concurrent.futures.Future`. `result()` waits for the result or raises, and `done()` returns whether it is complete.

    >>> CompletableFuture.completed(3).result()
    3
    """

    @staticmethod
    def completed(value: T) -> CompletableFuture[T]:
        future: CompletableFuture[T] = CompletableFuture()
        future.set_result(value)
        return future
