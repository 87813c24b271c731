"""Retry strategies of async functions. The first attempt counts as an attempt."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from penstock.common.program.user_location import refusal
from penstock.common.time import TimeLike, as_millis

ResultPredicate = Callable[[list[Any]], bool]
"""A function that returns True if the results are not good. The request is then retried."""
ExceptionPredicate = Callable[[BaseException], bool]
"""A function that returns True if the error may be temporary. The request is then retried."""


class AsyncRetryPredicate(ABC):
    """The conditions under which an attempt counts as failed."""

    @abstractmethod
    def result_predicate(self) -> ResultPredicate | None: ...

    @abstractmethod
    def exception_predicate(self) -> ExceptionPredicate | None: ...


class AsyncRetryStrategy(ABC):
    """The number of retries and the pauses between them."""

    @abstractmethod
    def can_retry(self, current_attempts: int, /) -> bool:
        """Return whether to retry after `current_attempts` attempts, counted from 1."""

    @abstractmethod
    def get_backoff_time_millis(self, current_attempts: int, /) -> int: ...

    @abstractmethod
    def get_retry_predicate(self) -> AsyncRetryPredicate: ...

    @staticmethod
    def no_restart() -> AsyncRetryStrategy:
        return NoRetryStrategy()

    @staticmethod
    def fixed_delay(
        max_attempts: int,
        backoff_time_millis: TimeLike,
        result_predicate: ResultPredicate | None = None,
        exception_predicate: ExceptionPredicate | None = None,
    ) -> AsyncRetryStrategy:
        return FixedDelayRetryStrategy(max_attempts, backoff_time_millis, result_predicate, exception_predicate)

    @staticmethod
    def exponential_backoff(
        max_attempts: int,
        initial_delay: TimeLike,
        max_retry_delay: TimeLike,
        multiplier: float,
        result_predicate: ResultPredicate | None = None,
        exception_predicate: ExceptionPredicate | None = None,
    ) -> AsyncRetryStrategy:
        return ExponentialBackoffDelayRetryStrategy(
            max_attempts, initial_delay, max_retry_delay, multiplier, result_predicate, exception_predicate
        )


class RetryPredicate(AsyncRetryPredicate):
    """The two conditions under which an attempt counts as failed. A condition that is None never applies."""

    def __init__(
        self, result_predicate: ResultPredicate | None = None, exception_predicate: ExceptionPredicate | None = None
    ) -> None:
        self._result_predicate = result_predicate
        self._exception_predicate = exception_predicate

    def result_predicate(self) -> ResultPredicate | None:
        return self._result_predicate

    def exception_predicate(self) -> ExceptionPredicate | None:
        return self._exception_predicate


class NoRetryStrategy(AsyncRetryStrategy):
    """A strategy with one attempt and no retries."""

    def can_retry(self, current_attempts: int) -> bool:
        return False

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        return 0

    def get_retry_predicate(self) -> AsyncRetryPredicate:
        return RetryPredicate()


class FixedDelayRetryStrategy(AsyncRetryStrategy):
    """A strategy with at most `max_attempts` attempts and the same pause before each retry.

    >>> strategy = FixedDelayRetryStrategy(3, 100)
    >>> [strategy.can_retry(attempts) for attempts in (1, 2, 3)]
    [True, True, False]
    """

    def __init__(
        self,
        max_attempts: int,
        backoff_time_millis: TimeLike,
        result_predicate: ResultPredicate | None = None,
        exception_predicate: ExceptionPredicate | None = None,
    ) -> None:
        self._max_attempts = _positive(max_attempts)
        self._backoff_ms = as_millis(backoff_time_millis, "backoff_time_millis")
        self._predicate = RetryPredicate(result_predicate, exception_predicate)

    def can_retry(self, current_attempts: int) -> bool:
        return current_attempts < self._max_attempts

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        return self._backoff_ms

    def get_retry_predicate(self) -> AsyncRetryPredicate:
        return self._predicate


class ExponentialBackoffDelayRetryStrategy(AsyncRetryStrategy):
    """A strategy with at most `max_attempts` attempts and a pause that grows by a factor up to a limit.

    >>> strategy = ExponentialBackoffDelayRetryStrategy(5, 100, 1000, 4.0)
    >>> [strategy.get_backoff_time_millis(attempts) for attempts in (1, 2, 3)]
    [100, 400, 1000]
    """

    def __init__(
        self,
        max_attempts: int,
        initial_delay: TimeLike,
        max_retry_delay: TimeLike,
        multiplier: float,
        result_predicate: ResultPredicate | None = None,
        exception_predicate: ExceptionPredicate | None = None,
    ) -> None:
        if multiplier < 1:
            raise refusal(f"the multiplier of an exponential backoff must be at least 1, got {multiplier}")
        self._max_attempts = _positive(max_attempts)
        self._initial_ms = as_millis(initial_delay, "initial_delay")
        self._max_ms = as_millis(max_retry_delay, "max_retry_delay")
        self._multiplier = multiplier
        self._predicate = RetryPredicate(result_predicate, exception_predicate)

    def can_retry(self, current_attempts: int) -> bool:
        return current_attempts < self._max_attempts

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        return int(min(self._max_ms, self._initial_ms * self._multiplier ** (current_attempts - 1)))

    def get_retry_predicate(self) -> AsyncRetryPredicate:
        return self._predicate


def _positive(max_attempts: int) -> int:
    if max_attempts < 1:
        raise refusal(f"max_attempts must be at least 1, got {max_attempts}", "1 means no retry")
    return max_attempts
