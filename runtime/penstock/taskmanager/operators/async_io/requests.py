"""The event loop of one async function, in a thread of its own: requests go on while the task does other things.

All of the user's code runs on that loop, one piece at a time (A51): the function's `open` and `close` too, because clients
of asynchronous services want a loop around them. The task hands requests over and is woken when some are answered.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from penstock.common.errors import RecordFormatError
from penstock.common.time import as_millis
from penstock.functions.async_functions import AsyncFunctionDescriptor
from penstock.functions.function import bind
from penstock.records.fields import shortened
from penstock.taskmanager.operators.async_io.answers import Request

T = TypeVar("T")


class RequestLoop:
    """Asks for what it is given, at most `capacity` at a time.

    Args:
        convert: of a result to its declared type; None: as it is.
        on_done: called on the loop's thread when there are answers and the last ones were taken.
    """

    def __init__(
        self,
        descriptor: AsyncFunctionDescriptor,
        convert: Callable[[Any], Any] | None,
        on_done: Callable[[], None],
    ) -> None:
        self._descriptor = descriptor
        self._timeout_s = as_millis(descriptor.timeout) / 1000
        self._convert = convert
        self._on_done = on_done
        self._waiting: deque[Request] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._done: deque[Request] = deque()
        self._has_told = False
        self._answered = threading.Event()
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event
        self._thread: threading.Thread | None = None

    @property
    def works_in(self) -> int | None:
        """The loop's thread, for `taskmanager.watchdog`."""
        return None if self._thread is None else self._thread.ident

    # --- called by the task ------------------------------------------------------------------------------------

    def start(self, open_function: Callable[[], None]) -> None:
        """Returns when the function is open; raises what its `open` did."""
        started: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=(started,), name="penstock-async", daemon=True)
        self._thread.start()
        started.result()
        self.call(open_function)
        fn = self._descriptor.async_function
        self._call = bind(fn, "async_invoke")
        self._on_timeout = getattr(fn, "timeout", None)
        predicate = self._descriptor.async_retry_strategy.get_retry_predicate()
        self._is_bad = predicate.result_predicate()
        self._may_pass = predicate.exception_predicate()

    def call(self, action: Callable[[], T]) -> T:
        """Run user code on the loop, between two steps of its requests."""

        async def run() -> T:
            return action()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    def ask(self, requests: list[Request]) -> None:
        self._loop.call_soon_threadsafe(self._accept, requests)

    def take_done(self) -> Iterator[Request]:
        """What was answered since the last call, in that order."""
        self._answered.clear()
        # Last before the look: what comes from now on is told of again, and nobody takes that back.
        self._has_told = False
        while self._done:
            yield self._done.popleft()

    def wait(self) -> None:
        """Until there is something to take."""
        self._answered.wait()

    def close(self, close_function: Callable[[], None]) -> None:
        """Give up what is under way. Raises what the function's `close` did."""
        if self._thread is None:
            return
        try:
            self.call(self._give_up)
            self.call(close_function)
        finally:
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()
            self._thread = None

    # --- on the loop's thread ----------------------------------------------------------------------------------

    def _run(self, started: Future[None]) -> None:
        with asyncio.Runner() as runner:
            runner.run(self._serve(started))

    async def _serve(self, started: Future[None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        started.set_result(None)
        await self._stop.wait()

    def _give_up(self) -> None:
        self._waiting.clear()
        for task in self._running:
            task.cancel()

    def _accept(self, requests: list[Request]) -> None:
        self._waiting.extend(requests)
        self._ask_more()

    def _ask_more(self) -> None:
        while self._waiting and len(self._running) < self._descriptor.capacity:
            request = self._waiting.popleft()
            task = self._loop.create_task(self._answer(request))
            self._running.add(task)
            task.add_done_callback(partial(self._on_answer, request))

    def _on_answer(self, request: Request, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if task.cancelled() and request.error is None:
            request.error = asyncio.CancelledError("the request was cancelled")
        self._done.append(request)
        if not self._has_told:
            self._has_told = True
            self._answered.set()
            self._on_done()
        self._ask_more()

    async def _answer(self, request: Request) -> None:
        try:
            request.results = self._checked(await self._ask(request.value))
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # SystemExit would end the loop, and nobody would be told
            request.error = error

    async def _ask(self, value: Any) -> Any:
        try:
            async with asyncio.timeout(self._timeout_s) as scope:
                return await self._attempts(value)
        except TimeoutError:
            if not scope.expired():
                raise
        if self._on_timeout is None:
            raise TimeoutError(f"no answer within {self._timeout_s} s")
        return self._on_timeout(value)

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
        return list(results) if self._convert is None else list(map(self._convert, results))
