"""Async I/O (A51-A55): requests of a batch run side by side on the operator's own event loop.

An epoch ends with nothing in flight, so the batch waits for all its answers. Inputs whose answers are outstanding are
then never part of a checkpoint, and no result overtakes a watermark or a barrier; what is lost is the overlap of one
batch's slowest request with the next batch, which a batch of thousands of records hardly feels.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from penstock.common.errors import RecordFormatError
from penstock.common.time import as_millis
from penstock.functions.async_functions import AsyncFunctionDescriptor
from penstock.records.batch import RowBatch
from penstock.records.fields import shortened
from penstock.taskmanager.operators.user_code import FunctionOperator, raise_user_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.common.typeinfo import TypeInformation
    from penstock.records.batch import Batch


class AsyncWaitOperator(FunctionOperator):
    """Calls `async_invoke(value)` for every record, `capacity` at a time.

    Args:
        declared: type the results are converted to if it has a Row in it.
    """

    method = "async_invoke"

    def __init__(self, descriptor: AsyncFunctionDescriptor, declared: TypeInformation | None = None) -> None:
        super().__init__(descriptor.async_function)
        self._descriptor = descriptor
        self._timeout = as_millis(descriptor.timeout) / 1000
        self._declared = None if declared is None or declared.is_storable else declared
        self._runner: asyncio.Runner | None = None

    def open(self) -> None:
        self._runner = asyncio.Runner()
        predicate = self._descriptor.async_retry_strategy.get_retry_predicate()
        self._is_bad = predicate.result_predicate()
        self._may_pass = predicate.exception_predicate()
        # Opened inside the loop: clients of asynchronous services want one around them.
        self._runner.run(self._open())

    async def _open(self) -> None:
        super().open()

    async def _close(self) -> None:
        super().close()

    def close(self) -> None:
        if self._runner is not None:
            try:
                self._runner.run(self._close())
            finally:
                self._runner.close()
                self._runner = None

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        rows = batch.rows()
        if not rows.values:
            return
        assert self._runner is not None
        answers = self._runner.run(self._ask_all(rows.values))
        if self._descriptor.output_mode is AsyncFunctionDescriptor.OutputMode.ORDERED:
            answers.sort(key=lambda answer: answer[0])
        values: list[Any] = []
        timestamps: list[int] | None = None if rows.timestamps is None else []
        for index, results in answers:
            values.extend(results)
            if timestamps is not None and rows.timestamps is not None:
                timestamps.extend([rows.timestamps[index]] * len(results))
        if values:
            self.output.emit(RowBatch(values, timestamps))

    async def _ask_all(self, values: list[Any]) -> list[tuple[int, list[Any]]]:
        """(index of the input, its results), as they are answered."""
        answers: list[tuple[int, list[Any]]] = []
        numbered = enumerate(values)
        askers = [
            asyncio.ensure_future(self._ask_in_turn(numbered, answers))
            for _ in range(min(self._descriptor.capacity, len(values)))
        ]
        try:
            await asyncio.gather(*askers)
        finally:
            for asker in askers:
                asker.cancel()
            await asyncio.gather(*askers, return_exceptions=True)
        return answers

    async def _ask_in_turn(self, numbered: Iterator[tuple[int, Any]], answers: list[tuple[int, list[Any]]]) -> None:
        for index, value in numbered:
            try:
                answers.append((index, self._checked(await self._ask(value))))
            except Exception as error:
                raise_user_error(self.context, error, f"{type(self.fn).__qualname__} on {shortened(value)}")

    async def _ask(self, value: Any) -> Any:
        try:
            async with asyncio.timeout(self._timeout) as scope:
                return await self._attempts(value)
        except TimeoutError:
            if not scope.expired():
                raise
        timeout = getattr(self.fn, "timeout", None)
        if timeout is None:
            raise TimeoutError(f"no answer within {self._timeout} s")
        return timeout(value)

    async def _attempts(self, value: Any) -> Any:
        strategy = self._descriptor.async_retry_strategy
        attempts = 0
        while True:
            attempts += 1
            try:
                results = await self._call(value)
            except Exception as error:
                again = self._may_pass is not None and self._may_pass(error) and strategy.can_retry(attempts)
                if not again:
                    raise
            else:
                if self._is_bad is None or not self._is_bad(results) or not strategy.can_retry(attempts):
                    return results
            await asyncio.sleep(strategy.get_backoff_time_millis(attempts) / 1000)

    def _checked(self, results: Any) -> list[Any]:
        if results is None:
            raise RecordFormatError(
                "async_invoke or timeout returned None, not a list of results", remedy="return [] for no result"
            )
        if isinstance(results, str | bytes | dict) or not hasattr(results, "__iter__"):
            raise RecordFormatError(
                f"async_invoke returned {shortened(results)}, not a list of results", remedy="return [result]"
            )
        if self._declared is None:
            return list(results)
        return list(map(self._declared.convert, results))
