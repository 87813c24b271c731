"""Async functions: many requests to an outside service under way at once, and when they are tried again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic

from typing_extensions import TypeVar

from penstock.functions.function import Function

if TYPE_CHECKING:
    from penstock.common.time import TimeLike

IN = TypeVar("IN", default=Any)
OUT = TypeVar("OUT", default=Any)

ResultPredicate = Callable[[list[Any]], bool]
"""True: these results are not good, try again."""
ExceptionPredicate = Callable[[BaseException], bool]
"""True: this failure may pass, try again."""


class AsyncRetryPredicate(ABC):
    """When an attempt counts as failed."""

    @abstractmethod
    def result_predicate(self) -> ResultPredicate | None: ...

    @abstractmethod
    def exception_predicate(self) -> ExceptionPredicate | None: ...


class AsyncRetryStrategy(ABC):
    """How often and after what pause a request is tried again."""

    @abstractmethod
    def can_retry(self, current_attempts: int) -> bool:
        """`current_attempts`: how many were made so far, from 1."""

    @abstractmethod
    def get_backoff_time_millis(self, current_attempts: int) -> int: ...

    @abstractmethod
    def get_retry_predicate(self) -> AsyncRetryPredicate: ...

    @staticmethod
    def no_restart() -> AsyncRetryStrategy:
        from penstock.functions.async_retry_strategies import NoRetryStrategy

        return NoRetryStrategy()

    @staticmethod
    def fixed_delay(
        max_attempts: int,
        backoff_time_millis: TimeLike,
        result_predicate: ResultPredicate | None = None,
        exception_predicate: ExceptionPredicate | None = None,
    ) -> AsyncRetryStrategy:
        from penstock.functions.async_retry_strategies import FixedDelayRetryStrategy

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
        from penstock.functions.async_retry_strategies import ExponentialBackoffDelayRetryStrategy

        return ExponentialBackoffDelayRetryStrategy(
            max_attempts, initial_delay, max_retry_delay, multiplier, result_predicate, exception_predicate
        )


class AsyncFunction(Function, Generic[IN, OUT]):
    """Asks an outside service for each value. `async_invoke` must not block: await what takes time.

    >>> class Enrich(AsyncFunction):
    ...     async def async_invoke(self, value):
    ...         return [(value, await self.client.get(value))]
    ...     def timeout(self, value):
    ...         return [(value, None)]
    """

    @abstractmethod
    async def async_invoke(self, value: IN) -> list[OUT]:
        """The results for the value, any number."""

    def timeout(self, value: IN) -> list[OUT]:
        """The results for a value whose request took too long; raising fails the job."""
        raise TimeoutError(f"the asynchronous request for {value!r} took longer than its timeout")


@dataclass(frozen=True)
class AsyncFunctionDescriptor:
    """An async function and how it is run.

    Args:
        timeout: of one value, all its attempts together.
        capacity: how many requests may be under way at once.
    """

    class OutputMode(Enum):
        ORDERED = 0
        UNORDERED = 1

    async_function: AsyncFunction | Callable[[Any], Coroutine[Any, Any, list[Any]]]
    timeout: TimeLike
    capacity: int
    async_retry_strategy: AsyncRetryStrategy
    output_mode: OutputMode
