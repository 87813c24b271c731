"""Requests of the JobManager to TaskManagers over their connections. A caller waits for the response."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as LateError
from typing import Generic, TypeVar

from penstock.rest.errors import Unavailable

PATIENCE_S = 10.0

_Q = TypeVar("_Q")
_A = TypeVar("_A")


class PendingRequests(Generic[_Q, _A]):
    """Pending requests. A REST thread sends each of them. Thread-safe."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._waiting: dict[int, Future[_A]] = {}
        self._lock = threading.Lock()

    def answered(self, number: int, answer: _A) -> None:
        """Deliver a response. It is dropped if no thread waits for it."""
        with self._lock:
            waiting = self._waiting.pop(number, None)
        if waiting is not None:
            waiting.set_result(answer)

    def ask(
        self,
        post: Callable[[_Q], bool],
        question: Callable[[int], _Q],
        more_s: float = 0.0,
        *,
        patience_s: float | None = None,
    ) -> _A:
        """Send a request and wait for its response.

        Args:
            post: function that sends to the TaskManager. It returns False if the TaskManager is disconnected.
            question: function that creates the request with this number.
            more_s: time that the response itself takes, in seconds.
            patience_s: additional time to wait, in seconds. None means `PATIENCE_S`.

        Raises:
            Unavailable: the TaskManager does not respond.
        """
        wait_s = (PATIENCE_S if patience_s is None else patience_s) + more_s
        number = next(self._numbers)
        future: Future[_A] = Future()
        with self._lock:
            self._waiting[number] = future
        try:
            if not post(question(number)):
                raise Unavailable("the TaskManager disconnected")
            return future.result(wait_s)
        except LateError:
            raise Unavailable(f"the TaskManager has not responded within {wait_s:.0f} s") from None
        finally:
            with self._lock:
                self._waiting.pop(number, None)
