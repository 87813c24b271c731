"""`AsyncDataStream`: calls external services for each record, with many requests in flight.

At most `capacity` requests are in flight at once. The task still processes timers and checkpoints. A checkpoint contains
the records whose requests are in flight, and a restore sends these requests again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.common.program.user_location import refusal
from penstock.common.time import TimeLike, as_millis
from penstock.common.type_info.type_inference import element_type, to_type_info
from penstock.datastream.data_stream import DataStream
from penstock.datastream.streams.arguments.checks import checked_function
from penstock.functions.async_io.async_functions import AsyncFunction, AsyncFunctionDescriptor
from penstock.functions.async_io.async_retry_strategies import AsyncRetryStrategy
from penstock.graph import operations

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    AsyncCallable = AsyncFunction | Callable[[Any], Coroutine[Any, Any, list[Any]]]

ORDERED = AsyncFunctionDescriptor.OutputMode.ORDERED
UNORDERED = AsyncFunctionDescriptor.OutputMode.UNORDERED


class AsyncDataStream:
    """Utility class that applies an async function to a stream.

    `timeout` covers all attempts of one record. After this time, Penstock calls the function's `timeout` method with the record.
    An ordered wait emits results in the order of their inputs, and an unordered wait emits each result when it completes. No
    result overtakes a watermark.
    """

    @staticmethod
    def unordered_wait(
        data_stream: DataStream,
        async_function: AsyncCallable,
        timeout: TimeLike,
        capacity: int = 100,
        output_type: Any = None,
    ) -> DataStream:
        """Apply an async function and emit each result when it completes, in any order between two watermarks.

        >>> from datetime import timedelta
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> class Square(AsyncFunction):
        ...     async def async_invoke(self, value: int) -> list[int]:
        ...         return [value * value]
        >>> numbers = env.from_collection([1, 2])
        >>> AsyncDataStream.unordered_wait(numbers, Square(), timedelta(seconds=5)).get_type()
        Types.LONG()
        """
        return _wait(data_stream, async_function, timeout, capacity, output_type, None, UNORDERED)

    @staticmethod
    def unordered_wait_with_retry(
        data_stream: DataStream,
        async_function: AsyncCallable,
        timeout: TimeLike,
        async_retry_strategy: AsyncRetryStrategy,
        capacity: int = 100,
        output_type: Any = None,
    ) -> DataStream:
        return _wait(data_stream, async_function, timeout, capacity, output_type, async_retry_strategy, UNORDERED)

    @staticmethod
    def ordered_wait(
        data_stream: DataStream,
        async_function: AsyncCallable,
        timeout: TimeLike,
        capacity: int = 100,
        output_type: Any = None,
    ) -> DataStream:
        return _wait(data_stream, async_function, timeout, capacity, output_type, None, ORDERED)

    @staticmethod
    def ordered_wait_with_retry(
        data_stream: DataStream,
        async_function: AsyncCallable,
        timeout: TimeLike,
        async_retry_strategy: AsyncRetryStrategy,
        capacity: int = 100,
        output_type: Any = None,
    ) -> DataStream:
        return _wait(data_stream, async_function, timeout, capacity, output_type, async_retry_strategy, ORDERED)


def _wait(
    stream: DataStream,
    function: AsyncCallable,
    timeout: TimeLike,
    capacity: int,
    output_type: Any,
    strategy: AsyncRetryStrategy | None,
    mode: AsyncFunctionDescriptor.OutputMode,
) -> DataStream:
    import inspect

    method = f"{mode.name.lower()}_wait"
    if not isinstance(stream, DataStream):
        raise refusal(f"{method} takes a stream, got {stream!r}")
    if not inspect.iscoroutinefunction(function):
        checked_function(function, AsyncFunction, operation=method, arguments=None, methods=("async_invoke",))
    timeout_ms = as_millis(timeout, "timeout")
    if timeout_ms <= 0:
        raise refusal(f"the timeout of {method} must be positive, got {timeout!r}")
    if isinstance(capacity, bool) or not isinstance(capacity, int) or capacity < 1:
        raise refusal(f"the capacity of {method} is a number of requests, got {capacity!r}")
    if strategy is not None and not isinstance(strategy, AsyncRetryStrategy):
        raise refusal(f"{method} takes an AsyncRetryStrategy, got {strategy!r}")
    declared = to_type_info(output_type)
    operation = operations.AsyncWait(
        function,
        timeout_ms=timeout_ms,
        capacity=capacity,
        retry_strategy=strategy or AsyncRetryStrategy.no_restart(),
        output_mode=mode,
        declared=declared,
        element_type=stream.get_type(),
    )
    name = f"Async Wait ({mode.name.lower()})"
    return stream._transform(name, operation, declared or element_type(function, "async_invoke"), about=function)
