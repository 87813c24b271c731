"""The event loop of one async function, in a separate thread. Requests continue while the task does other work.

All user code runs on this loop, one step at a time. This includes the function's `open` and `close`, because clients of
asynchronous services need a running loop. The task passes requests to the loop, and the loop wakes the task when some
are answered.

All requests have the same timeout, so their deadlines are in the order of their starts. One timer for the first pending
request is enough. `asyncio.timeout` would set one timer per request, which costs more than most requests to memory.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

from penstock.common.errors import RecordFormatError
from penstock.common.time import as_millis
from penstock.functions.async_io.async_functions import AsyncFunctionDescriptor
from penstock.functions.function import bind
from penstock.records.fields import shortened
from penstock.taskmanager.operators.async_io.answers import Request

T = TypeVar("T")
_MAX_ANSWERED = 4
"""Maximum number of deadlines, as a multiple of the capacity. Behind the deadline of a slow request, the deadlines of
answered requests collect. Above the maximum, these are removed.
"""


class RequestLoop:
    """The loop that runs requests, at most `capacity` at the same time.

    Args:
        convert: converts a result to its declared type. None leaves the result unchanged.
        on_done: called on the loop's thread when an answer is ready. It is called again only after the task has taken
            the answers.
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
        self._running: dict[asyncio.Task[None], Request] = {}
        self._deadlines: deque[tuple[float, asyncio.Task[None]]] = deque()
        """Deadlines on the loop's clock, the next one first. Deadlines of answered requests may be among them."""
        self._late: set[asyncio.Task[None]] = set()
        """Tasks that are cancelled because of their timeout."""
        self._timer: asyncio.TimerHandle | None = None
        self._done: deque[Request] = deque()
        self._has_notified = False
        self._answered = threading.Event()
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event
        self._thread: threading.Thread | None = None

    @property
    def worker_thread_id(self) -> int | None:
        """The identifier of the loop's thread, for `taskmanager.watching.watchdog`."""
        return None if self._thread is None else self._thread.ident

    # --- called by the task ------------------------------------------------------------------------------------

    def start(self, open_function: Callable[[], None]) -> None:
        """Start the loop, and return when the function is open. Raise the error of the function's `open`."""
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
        tries_again = self._is_bad is not None or self._may_pass is not None
        self._submit: Callable[[Any], Any] = self._attempts if tries_again else self._call

    def call(self, action: Callable[[], T]) -> T:
        """Run user code on the loop, between two steps of its requests."""

        async def run() -> T:
            return action()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    def submit(self, requests: list[Request]) -> None:
        self._loop.call_soon_threadsafe(self._accept, requests)

    def take_done(self) -> Iterator[Request]:
        """Yield the requests that were answered since the last call, in the order of the answers."""
        self._answered.clear()
        # Reset the flag before reading the answers, so that every later answer triggers a new notification.
        self._has_notified = False
        while self._done:
            yield self._done.popleft()

    def wait(self) -> None:
        """Wait until an answer is ready."""
        self._answered.wait()

    def close(self, close_function: Callable[[], None]) -> None:
        """Cancel the pending requests. Raise the error of the function's `close`."""
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
        self._deadlines.clear()
        if self._timer is not None:
            self._timer.cancel()
        for task in self._running:
            task.cancel()

    def _accept(self, requests: list[Request]) -> None:
        self._waiting.extend(requests)
        self._accept_more()

    def _accept_more(self) -> None:
        waiting, running = self._waiting, self._running
        room = self._descriptor.capacity - len(running)
        if not waiting or room <= 0:
            return
        deadline = self._loop.time() + self._timeout_s
        while waiting and room > 0:
            room -= 1
            request = waiting.popleft()
            task = self._loop.create_task(self._answer(request))
            running[task] = request
            task.add_done_callback(self._on_answer)
            self._deadlines.append((deadline, task))
        if len(self._deadlines) > _MAX_ANSWERED * self._descriptor.capacity:
            self._deadlines = deque(entry for entry in self._deadlines if not entry[1].done())
        if self._timer is None:
            self._expect_next()

    def _expect_next(self) -> None:
        deadlines = self._deadlines
        while deadlines and deadlines[0][1].done():
            deadlines.popleft()
        self._timer = self._loop.call_at(deadlines[0][0], self._on_deadline) if deadlines else None

    def _on_deadline(self) -> None:
        now, deadlines = self._loop.time(), self._deadlines
        while deadlines and (deadlines[0][0] <= now or deadlines[0][1].done()):
            _, task = deadlines.popleft()
            if not task.done():
                self._late.add(task)
                task.cancel()
        self._expect_next()

    def _on_answer(self, task: asyncio.Task[None]) -> None:
        request = self._running.pop(task)
        if task.cancelled() and request.error is None:
            self._settle_cancelled(request, is_late=task in self._late)
        self._late.discard(task)
        deadlines = self._deadlines
        while deadlines and deadlines[0][1].done():
            deadlines.popleft()
        self._done.append(request)
        if not self._has_notified:
            self._has_notified = True
            self._answered.set()
            self._on_done()
        if self._waiting:
            self._accept_more()

    def _settle_cancelled(self, request: Request, *, is_late: bool) -> None:
        """Settle a cancelled request.

        If `is_late`, the timeout ended before the request's first step, because the loop was blocked.
        """
        if not is_late:
            request.error = asyncio.CancelledError("the request was cancelled")
            return
        try:
            request.results = self._checked(self._call_timeout(request.value))
        except BaseException as error:
            request.error = error

    async def _answer(self, request: Request) -> None:
        try:
            try:
                results = await self._awaitable(self._submit(request.value))
            except asyncio.CancelledError:
                if not self._is_late():
                    raise
                results = self._call_timeout(request.value)
            request.results = self._checked(results)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # SystemExit would end the loop without a report
            request.error = error

    def _is_late(self) -> bool:
        """Return whether the current request was cancelled because of its timeout and for no other reason."""
        task = asyncio.current_task(self._loop)
        assert task is not None
        return task in self._late and task.uncancel() == 0

    def _call_timeout(self, value: Any) -> Any:
        if self._on_timeout is None:
            raise TimeoutError(f"the request was not answered within {self._timeout_s} s")
        return self._on_timeout(value)

    async def _attempts(self, value: Any) -> Any:
        strategy = self._descriptor.async_retry_strategy
        attempts = 0
        while True:
            attempts += 1
            try:
                results = await self._awaitable(self._call(value))
            except Exception as error:
                again = self._may_pass is not None and self._may_pass(error) and strategy.can_retry(attempts)
                if not again:
                    raise
            else:
                if self._is_bad is None or not self._is_bad(results) or not strategy.can_retry(attempts):
                    return results
            await asyncio.sleep(strategy.get_backoff_time_millis(attempts) / 1000)

    @staticmethod
    def _awaitable(answer: Any) -> Any:
        if inspect.isawaitable(answer):
            return answer
        raise RecordFormatError(
            f"async_invoke returned {shortened(answer)}, which cannot be awaited",
            remedy="define it with `async def`, or use map or flat_map for code that does not wait",
        )

    def _checked(self, results: Any) -> list[Any]:
        if results is None:
            raise RecordFormatError(
                "The result of AsyncFunction cannot be none; async_invoke or timeout returned None, not a list of results",
                remedy="return [] for no result",
            )
        if isinstance(results, str | bytes | dict) or not hasattr(results, "__iter__"):
            raise RecordFormatError(
                f"The result of AsyncFunction should be of list type: async_invoke returned {shortened(results)}, not a list of results",
                remedy="return [result]",
            )
        return list(results) if self._convert is None else list(map(self._convert, results))
