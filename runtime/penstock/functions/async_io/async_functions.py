"""Async functions, which run many requests to an external service at the same time."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic

from typing_extensions import TypeVar

from penstock.functions.function import Function

if TYPE_CHECKING:
    from penstock.common.time import TimeLike
    from penstock.functions.async_io.async_retry_strategies import AsyncRetryStrategy

IN = TypeVar("IN", default=Any)
OUT = TypeVar("OUT", default=Any)


class AsyncFunction(Function, Generic[IN, OUT]):
    """A function that requests an external service for each value. `async_invoke` must not block: await slow calls.

    >>> class Enrich(AsyncFunction):
    ...     async def async_invoke(self, value):
    ...         return [(value, await self.client.get(value))]
    ...     def timeout(self, value):
    ...         return [(value, None)]
    """

    @abstractmethod
    async def async_invoke(self, value: IN, /) -> list[OUT]:
        """Return any number of results for the value."""

    def timeout(self, value: IN, /) -> list[OUT]:
        """Return the results for a value whose request took too long. An exception fails the job."""
        raise TimeoutError(f"the asynchronous request for {value!r} took longer than its timeout")


@dataclass(frozen=True)
class AsyncFunctionDescriptor:
    """An async function and its settings.

    Args:
        timeout: maximum time for one value, including all its attempts.
        capacity: maximum number of requests at the same time.
    """

    class OutputMode(Enum):
        ORDERED = 0
        UNORDERED = 1

    async_function: AsyncFunction | Callable[[Any], Coroutine[Any, Any, list[Any]]]
    timeout: TimeLike
    capacity: int
    async_retry_strategy: AsyncRetryStrategy
    output_mode: OutputMode
