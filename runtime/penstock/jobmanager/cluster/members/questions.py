"""Questions that the JobManager asks TaskManagers over their connections, and whose answers are waited for."""

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


class Questions(Generic[_Q, _A]):
    """Each is asked by a thread of REST's. Thread-safe."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._waiting: dict[int, Future[_A]] = {}
        self._lock = threading.Lock()

    def answered(self, number: int, answer: _A) -> None:
        """An answer that nobody waits for any more is let go."""
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
        patience_s: float = PATIENCE_S,
    ) -> _A:
        """
        Args:
            post: sends to the TaskManager; False: it has gone.
            question: the one with this number.
            more_s: how long the answer takes by itself.
            patience_s: how long is waited beyond that.

        Raises:
            Unavailable: it does not answer.
        """
        number = next(self._numbers)
        future: Future[_A] = Future()
        with self._lock:
            self._waiting[number] = future
        try:
            if not post(question(number)):
                raise Unavailable("the TaskManager has gone")
            return future.result(patience_s + more_s)
        except LateError:
            raise Unavailable(f"the TaskManager has not answered within {patience_s + more_s:.0f} s") from None
        finally:
            with self._lock:
                self._waiting.pop(number, None)
