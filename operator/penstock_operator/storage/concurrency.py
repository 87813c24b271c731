"""Execution of many calls with limited concurrency."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

T = TypeVar("T")

AT_ONCE = 4
"""Default concurrency: half of the threads of one endpoint."""


async def few_at_a_time(calls: Iterable[Callable[[], Awaitable[T]]], at_once: int = AT_ONCE) -> list[T]:
    """Return the results in the order of the calls. The first error cancels the other calls.

    >>> async def square(n: int) -> int:
    ...     return n * n
    >>> asyncio.run(few_at_a_time((lambda n=n: square(n) for n in (1, 2, 3)), at_once=2))
    [1, 4, 9]
    """
    gate = asyncio.Semaphore(at_once)

    async def one(call: Callable[[], Awaitable[T]]) -> T:
        async with gate:
            return await call()

    tasks = [asyncio.ensure_future(one(call)) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
